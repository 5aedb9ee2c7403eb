// When the engine lets the live meter run: how much of the time it may take beside streams.
#include <gtest/gtest.h>

#include "engine/kv_auditor.h"
#include "engine_harness.h"

namespace tidemill {
namespace {

constexpr std::chrono::milliseconds piece{40};

// Has work without end; each piece of it takes 40 ms.
class BusyAuditor final : public KvAuditor {
 public:
  BusyAuditor(VirtualClock& clock, std::vector<Clock::Time>& ends) : clock_(clock), ends_(ends) {}
  void offer(const EndedChoice&) override {}
  void note_step(int64_t) override {}
  bool run() override {
    clock_.advance(piece);
    ends_.push_back(clock_.now());
    ++stats_.computed_rows;
    return true;
  }
  const AuditStats& stats() const override { return stats_; }

 private:
  VirtualClock& clock_;
  std::vector<Clock::Time>& ends_;
  AuditStats stats_;
};

class TokenTimes final : public EventListener {
 public:
  explicit TokenTimes(const VirtualClock& clock) : clock_(clock) {}
  void publish(std::vector<RequestEvent> events) override {
    for (const RequestEvent& event : events)
      if (event.kind == RequestEvent::Kind::token) times.push_back(clock_.now());
  }
  std::vector<Clock::Time> times;

 private:
  const VirtualClock& clock_;
};

TEST(AuditTest, StreamsAreSlowedByAnEighth) {
  const EngineConfig config = pool_config(32, 16);
  VirtualClock clock;
  std::vector<Clock::Time> ends;
  TokenTimes listener(clock);
  Engine engine(config, std::make_unique<SimulatedExecutor>(config, SimulatedOptions{.clock = &clock}), clock, listener,
                nullptr, std::make_unique<BusyAuditor>(clock, ends));
  ASSERT_TRUE(std::holds_alternative<RequestId>(engine.submit(make_request(8, 300))));
  while (listener.times.size() < 300) ASSERT_TRUE(engine.step_once());
  const std::vector<Clock::Time> pieces = ends;
  ASSERT_GT(pieces.size(), 3u) << "it gets its turn";
  for (size_t i = 1; i < listener.times.size(); ++i)
    EXPECT_LT(listener.times[i] - listener.times[i - 1], piece + std::chrono::milliseconds(6)) << "a step, and a piece";
  for (size_t i = 1; i < pieces.size(); ++i)
    EXPECT_GE(pieces[i] - pieces[i - 1], 9 * piece) << "then steps have eight times as long";
  // Nobody streams any more: it need not pause.
  const size_t before = ends.size();
  engine.step_once();
  engine.step_once();
  engine.step_once();
  EXPECT_GE(ends.size(), before + 2);
}

}  // namespace
}  // namespace tidemill
