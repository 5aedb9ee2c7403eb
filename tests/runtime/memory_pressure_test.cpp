#include "runtime/memory_pressure.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "sim/simulated_executor.h"

namespace tidemill {
namespace {

constexpr size_t mib = size_t{1} << 20;
constexpr BreathingRules rules{.min_bytes = 100 * mib, .max_bytes = 2000 * mib, .reserve_bytes = 512 * mib};

size_t next(size_t budget_mib, size_t occupied_mib, size_t available_mib, std::optional<double> stalled = {}) {
  return next_budget_bytes(rules, budget_mib * mib, occupied_mib * mib,
                           {.available_bytes = available_mib * mib, .stalled_perc = stalled}) /
         mib;
}

TEST(MemoryPressure, ReadsTheKernelsText) {
  EXPECT_EQ(parse_stalled_perc("some avg10=1.50 avg60=0.00 avg300=0.00 total=5\nfull avg10=9.00"), 1.5);
  for (const char* text : {"", "full avg10=9.00", "some avg10=", "some avg10=x", "some avg10=-1", "some avg10=1e9"})
    EXPECT_FALSE(parse_stalled_perc(text)) << text;
  EXPECT_GT(read_memory_pressure().available_bytes, 0u);
}

TEST(MemoryPressure, ShrinksWhereMemoryIsShort) {
  EXPECT_EQ(next(1000, 1000, 412), 875u);  // 100 are missing, an eighth is more
  EXPECT_EQ(next(1000, 1000, 12), 500u);
  EXPECT_EQ(next(1000, 600, 12), 100u);  // what was never used gives nothing back
  EXPECT_EQ(next(1000, 1000, 8000, 50.0), 875u);
  EXPECT_EQ(next(100, 100, 0), 100u);
}

TEST(MemoryPressure, GrowsWhereThereIsRoomAndUse) {
  EXPECT_EQ(next(1000, 1000, 4000), 1125u);
  EXPECT_EQ(next(1000, 1000, 4000, 0.5), 1125u);
  EXPECT_EQ(next(1000, 1000, 4000, 5.0), 1000u);  // neither calm nor short
  EXPECT_EQ(next(1000, 900, 4000), 1000u);        // not full
  EXPECT_EQ(next(1000, 1000, 1100), 1000u);       // it would have to shrink again
  EXPECT_EQ(next(1950, 1950, 9000), 2000u);
}

// Counts what became of requests; the engine's thread tells.
class Ends : public EventListener {
 public:
  void publish(std::vector<RequestEvent> events) override {
    for (const RequestEvent& event : events) {
      if (event.kind != RequestEvent::Kind::finished) continue;
      ++num_;
      num_whole_ += event.reason == FinishReason::length && event.usage.completion_tokens == 20;
    }
  }
  int num() const { return num_; }
  int num_whole() const { return num_whole_; }

 private:
  std::atomic<int> num_{0}, num_whole_{0};
};

// The size follows a made-up machine down and up again, while requests run; none is lost or cut short.
TEST(Breathing, FollowsThePressure) {
  EngineConfig config;
  config.groups = {{.tail_bytes = mib, .sealed_bytes = mib, .same_format = true, .window_tokens = 0}};
  config.block_size_tokens = 16;
  config.kv_budget_bytes = config.kv_largest_budget_bytes = 800 * mib;
  config.max_model_len_tokens = 1024;
  config.vocabulary_end_ids = {7};
  Ends ends;
  SystemClock clock;
  Engine engine(config, std::make_unique<SimulatedExecutor>(config, SimulatedOptions{}), clock, ends);
  engine.start();
  std::atomic<size_t> available = 8000 * mib;
  const BreathingRules small{.min_bytes = 100 * mib, .max_bytes = 800 * mib, .reserve_bytes = 512 * mib};
  const Breathing breathing(
      engine, small, [&available] { return MemoryPressure{.available_bytes = available, .stalled_perc = 0.0}; },
      std::chrono::milliseconds(1));
  int num_sent = 0;
  const auto serve_until = [&](const auto& reached) {
    for (int i = 0; i < 20000 && !reached(engine.stats()); ++i) {
      Request request;
      for (int32_t token = 0; token < 300; ++token) request.prompt.push_back(100 + (num_sent * 7 + token) % 800);
      request.max_tokens = 20;
      request.sampling.ignore_eos = true;
      num_sent += std::holds_alternative<RequestId>(engine.submit(std::move(request)));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return reached(engine.stats());
  };
  EXPECT_TRUE(serve_until([](const EngineStats& stats) { return stats.kv_occupied_bytes > 700 * mib; }));
  available = 100 * mib;
  EXPECT_TRUE(serve_until([](const EngineStats& stats) {
    return stats.kv_budget_bytes == 100 * mib && stats.kv_occupied_bytes <= 100 * mib;
  }));
  available = 8000 * mib;
  EXPECT_TRUE(serve_until([](const EngineStats& stats) { return stats.kv_budget_bytes == 800 * mib; }));
  for (int i = 0; i < 20000 && ends.num() < num_sent; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ends.num_whole(), num_sent);
}

}  // namespace
}  // namespace tidemill
