#include "engine/engine.h"

#include <gtest/gtest.h>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

TEST(Engine, OneRequestRunsToItsLength) {
  Harness harness(pool_config(64, 16));
  const RequestId id = harness.submit(make_request(100, 20));
  harness.run();
  const Answer& answer = harness.answer(id);
  EXPECT_EQ(answer.tokens.size(), 20u);
  ASSERT_TRUE(answer.finished);
  EXPECT_EQ(answer.finished->reason, FinishReason::length);
  EXPECT_TRUE(answer.finished->request_done);
  EXPECT_EQ(answer.finished->usage.prompt_tokens, 100);
  EXPECT_EQ(answer.finished->usage.completion_tokens, 20);
  EXPECT_EQ(harness.num_steps, 2 + 19u);  // 64 + 36 prompt rows, the second of which draws
  EXPECT_LE(harness.max_rows, 64);
  harness.expect_quiet();
}

TEST(Engine, TokensAreTheSameAloneAndInCompany) {
  std::vector<std::vector<TokenId>> alone;
  for (int32_t i = 0; i < 12; ++i) {
    Harness harness(pool_config(64, 16));
    alone.push_back(harness.run_alone(make_request(1 + i * 13, 30, i)));
  }
  Harness harness(pool_config(64, 16));
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 12; ++i) {
    ids.push_back(harness.submit(make_request(1 + i * 13, 30, i)));
    if (i % 3 == 0) harness.step(2);
  }
  harness.run();
  for (int32_t i = 0; i < 12; ++i) EXPECT_EQ(harness.answer(ids[i]).tokens, alone[i]) << i;
  EXPECT_LE(harness.max_rows, 64);
  harness.expect_quiet();
}

}  // namespace
}  // namespace tidemill
