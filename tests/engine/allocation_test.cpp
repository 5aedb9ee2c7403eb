// What a step allocates on the engine's thread, from scheduling to the hand-over of its events: nothing, once every
// container has seen its largest step; but for blocks that fill, which the prefix cache remembers.
#include <gtest/gtest.h>

#include "count_allocations.h"
#include "engine/engine_harness.h"

namespace tidemill {
namespace {

using testing::allocations_are_counted;
using testing::num_allocations;

// Draws the same token for everybody and uses its results' memory again.
class ConstantExecutor final : public Executor {
 public:
  StepResult execute(const StepPlan& plan) override {
    StepResult result = std::exchange(spare_, {});
    result.sequences.clear();
    result.sequences.resize(plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      if (!plan.sequences[i].draw) continue;
      result.sequences[i].draw.emplace();
      result.sequences[i].draw->token = 5;
    }
    return result;
  }
  void recycle(StepResult result) override { spare_ = std::move(result); }

 private:
  StepResult spare_;
};

class RecyclingListener final : public EventListener {
 public:
  void publish(std::vector<RequestEvent> events) override {
    num_events += events.size();
    spare_ = std::move(events);
  }
  std::vector<RequestEvent> spare_events() override { return std::exchange(spare_, {}); }
  size_t num_events = 0;

 private:
  std::vector<RequestEvent> spare_;
};

// num_formats: in which the streams' blocks are kept, by turns.
void expect_no_allocations(int32_t num_formats) {
  EngineConfig config = pool_config(2000, 64, 1024);
  for (int32_t i = 1; i < num_formats; ++i) {
    BlockGroup group{.tail_bytes = 150, .sealed_bytes = 80, .same_format = false, .window_tokens = 0};
    config.extra_formats.push_back({.groups = {group}, .tail_name = "t", .sealed_name = "s", .key = "s"});
  }
  config.max_num_seqs = 64;
  config.max_num_batched_tokens = 512;
  config.itl_multiple = 2.3;
  const SystemClock clock;
  RecyclingListener listener;
  Engine engine(config, std::make_unique<ConstantExecutor>(), clock, listener);
  for (int32_t i = 0; i < 64; ++i) {
    Request request = make_request(64, 400, i);
    request.latency_class = static_cast<LatencyClass>(i % 3);
    request.kv_format = static_cast<KvFormatId>(i % num_formats);
    ASSERT_TRUE(std::holds_alternative<RequestId>(engine.submit(std::move(request))));
  }
  while (listener.num_events < 64 * 140) engine.step_once();  // everybody decodes
  const size_t events_before = listener.num_events;
  const auto held = [&engine] { return engine.stats().kv_held_bytes; };
  std::vector<size_t> nums;
  std::vector<bool> takes_block;
  for (int i = 0; i < 150; ++i) {
    const size_t held_before = held();
    const size_t before = num_allocations;
    engine.step_once();
    nums.push_back(num_allocations - before);
    takes_block.push_back(held() != held_before);
  }
  size_t num_between = 0, num_at_ends = 0, num_steps_between = 0;
  for (size_t i = 0; i + 1 < nums.size(); ++i) {
    // A block fills one step before the next one is taken.
    const bool between = !takes_block[i] && !takes_block[i + 1];
    (between ? num_between : num_at_ends) += nums[i];
    num_steps_between += between;
  }
  EXPECT_GE(listener.num_events - events_before, 64u * 150 / 2);
  EXPECT_GT(num_steps_between, 50u);
  EXPECT_EQ(num_between, 0u);
  // A block that fills enters the prefix cache with its tokens: 2 or 3 blocks of 64 streams here.
  EXPECT_LE(num_at_ends, 64u * 3 * 8);
}

TEST(Allocation, AStepOfSixtyFourStreamsAllocatesNothingBetweenTheEndsOfBlocks) {
  if (!allocations_are_counted) GTEST_SKIP() << "a sanitizer counts allocations itself";
  expect_no_allocations(1);
}

TEST(Allocation, NorDoesAStepOfStreamsInTwoFormats) {
  if (!allocations_are_counted) GTEST_SKIP() << "a sanitizer counts allocations itself";
  expect_no_allocations(2);
}

}  // namespace
}  // namespace tidemill
