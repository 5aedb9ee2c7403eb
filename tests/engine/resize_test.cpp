// A pool that shrinks and grows under load: nobody is lost, no answer shows it, and memory beyond the budget goes back.
#include <gtest/gtest.h>

#include <random>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

constexpr int32_t block_size = 16;
constexpr size_t full = 100 * 100;

EngineConfig breathing(int32_t num_blocks = 100) {
  EngineConfig config = pool_config(num_blocks, block_size);
  config.max_num_batched_tokens = 128;
  return config;
}

std::vector<TokenId> answer_alone(const Request& request) {
  EngineConfig config = breathing(200);
  config.prefix_caching = false;
  Harness harness(config);
  return harness.run_alone(request);
}

TEST(Resize, IdleMemoryGoesBackAtOnce) {
  Harness harness(breathing());
  harness.run_alone(make_request(500, 4));
  EXPECT_GE(harness.engine().stats().kv_cached_bytes, 30u * 100);
  EXPECT_FALSE(harness.engine().resize_cache(1000));
  harness.run();
  EngineStats stats = harness.engine().stats();
  EXPECT_EQ(stats.kv_budget_bytes, 1000u);
  EXPECT_LE(stats.kv_occupied_bytes, 1000u);
  EXPECT_FALSE(harness.last_plan.moves.empty());
  for (const BlockMove& move : harness.last_plan.moves) EXPECT_EQ(move.kind, MoveKind::drop);
  EXPECT_FALSE(harness.engine().resize_cache(full));
  harness.run();
  EXPECT_EQ(harness.engine().stats().kv_budget_bytes, full);
  EXPECT_EQ(harness.run_alone(make_request(500, 4)), answer_alone(make_request(500, 4)));
  harness.expect_quiet();
}

TEST(Resize, StaysWithinItsLimits) {
  EngineConfig config = breathing();
  config.kv_largest_budget_bytes = 2 * full;
  Harness harness(config);
  EXPECT_TRUE(harness.engine().resize_cache(0));
  EXPECT_TRUE(harness.engine().resize_cache(99));
  EXPECT_TRUE(harness.engine().resize_cache(2 * full + 1));
  EXPECT_FALSE(harness.engine().resize_cache(2 * full));
  harness.run();
  EXPECT_EQ(harness.engine().stats().kv_budget_bytes, 2 * full);
  // What could not have fit before does now, and is refused again later.
  config.max_model_len_tokens = 3000;
  Harness longer(config);
  EXPECT_EQ(longer.refused(make_request(2000, 1)).kind, Refusal::Kind::kv_capacity_exceeded);
  EXPECT_FALSE(longer.engine().resize_cache(2 * full));
  longer.run();
  longer.run_alone(make_request(2000, 1));
  EXPECT_FALSE(longer.engine().resize_cache(full));
  longer.run();
  EXPECT_EQ(longer.refused(make_request(2000, 1)).kind, Refusal::Kind::kv_capacity_exceeded);
}

TEST(Resize, KeepsTheRoomOfThoseWhoAreHere) {
  Harness harness(breathing());
  const Request request = make_request(600, 300);
  const RequestId id = harness.submit(request);
  harness.step(3);
  EXPECT_FALSE(harness.engine().resize_cache(1000));
  const RequestId late = harness.submit(make_request(50, 20, 3));
  harness.run();
  EXPECT_EQ(harness.answer(id).tokens, answer_alone(request));
  EXPECT_EQ(harness.answer(id).finished->reason, FinishReason::length);
  EXPECT_EQ(harness.answer(id).tokens.size(), 300u);
  EXPECT_EQ(harness.answer(late).tokens, answer_alone(make_request(50, 20, 3)));
  EXPECT_EQ(harness.engine().stats().kv_budget_bytes, 1000u);
  EXPECT_LE(harness.engine().stats().kv_occupied_bytes, 1000u);
  harness.expect_quiet();
}

TEST(Resize, UpAndDownUnderLoad) {
  for (int32_t seed = 0; seed < 5; ++seed) {
    Harness harness(breathing());
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::vector<std::pair<RequestId, Request>> requests;
    for (int round = 0; round < 200; ++round) {
      if (round % 2 == 0) {
        Request request = make_request(1 + static_cast<int32_t>(random() % 200), 1 + random() % 60,
                                       static_cast<int32_t>(random() % 20));
        request.num_choices = random() % 5 == 0 ? 3 : 1;
        requests.emplace_back(harness.submit(request), request);
      }
      if (round % 10 == 0) {
        EXPECT_FALSE(harness.engine().resize_cache(round % 20 == 0 ? full * 3 / 10 : full));
      }
      harness.step(3);
    }
    harness.run();
    for (auto& [id, request] : requests) {
      for (int32_t choice = 0; choice < request.num_choices; ++choice) {
        ASSERT_TRUE(harness.answer(id, choice).finished);
        EXPECT_EQ(harness.answer(id, choice).tokens, answer_alone(request));
      }
    }
    EXPECT_GT(harness.engine().stats().num_preemptions, 0u);
    EXPECT_EQ(harness.engine().stats().kv_budget_bytes, full);
    harness.expect_quiet();
  }
}

}  // namespace
}  // namespace tidemill
