// n > 1 and seeds: one prompt, many choices, each drawn as if alone (H16, H29).
#include <gtest/gtest.h>

#include <set>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

Request seeded(int32_t num_prompt, int64_t max_tokens, uint64_t seed, int32_t num_choices = 1) {
  Request request = make_request(num_prompt, max_tokens);
  request.sampling.temperature = 1;
  request.has_seed = true;
  request.sampling.seed = seed;
  request.num_choices = num_choices;
  return request;
}

TEST(Choices, EachIsTheOnlyChoiceOfItsSeed) {
  for (int32_t num_prompt : {1, 15, 16, 17, 33, 100}) {
    Harness harness(pool_config(64, 16));
    const RequestId id = harness.submit(seeded(num_prompt, 20, 7, 3));
    harness.run();
    std::set<std::vector<TokenId>> texts;
    for (int32_t choice = 0; choice < 3; ++choice) {
      Harness alone(pool_config(64, 16));
      EXPECT_EQ(harness.answer(id, choice).tokens, alone.run_alone(seeded(num_prompt, 20, 7 + choice)));
      texts.insert(harness.answer(id, choice).tokens);
      ASSERT_TRUE(harness.answer(id, choice).finished);
      EXPECT_EQ(harness.answer(id, choice).finished->usage.prompt_tokens, num_prompt);
    }
    EXPECT_EQ(texts.size(), 3u);
    EXPECT_EQ(harness.answers.size(), 3u);
    harness.expect_quiet();
  }
}

TEST(Choices, GreedyOnesAreEqual) {
  Harness harness(pool_config(64, 16));
  Request request = make_request(40, 20);
  request.num_choices = 3;
  const RequestId id = harness.submit(request);
  harness.run();
  EXPECT_EQ(harness.answer(id, 0).tokens, harness.answer(id, 1).tokens);
  EXPECT_EQ(harness.answer(id, 0).tokens, harness.answer(id, 2).tokens);
}

TEST(Choices, EndEachInItsOwnTime) {
  SimulatedOptions options;  // choice with seed 7 + i ends after 2, 5 and 9 tokens
  options.script = [](std::span<const TokenId> tokens, int32_t num_prompt, const SamplingParams& sampling) {
    const int32_t index = static_cast<int32_t>(tokens.size()) - num_prompt;
    const int32_t ends[] = {1, 4, 8};
    return std::optional<TokenId>(index == ends[sampling.seed - 7] ? end_token : 50 + index);
  };
  Harness harness(pool_config(64, 16), options);
  Request request = seeded(40, 30, 7, 3);
  request.sampling.ignore_eos = false;
  const RequestId id = harness.submit(request);
  harness.run();
  const size_t lengths[] = {2, 5, 9};
  for (int32_t choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(harness.answer(id, choice).tokens.size(), lengths[choice]);
    EXPECT_EQ(harness.answer(id, choice).finished->reason, FinishReason::stop);
    EXPECT_EQ(harness.answer(id, choice).finished->request_done, choice == 2);
  }
}

TEST(Choices, ThePromptIsComputedOnceAndItsFullBlocksAreShared) {
  for (bool prefix_caching : {true, false}) {
    EngineConfig config = pool_config(64, 16);
    config.prefix_caching = prefix_caching;
    int64_t num_rows = 0;
    SimulatedOptions options;
    options.observer = [&](const StepPlan& plan, const StepResult&) { num_rows += plan.num_rows(); };
    Harness harness(config, options);
    const RequestId id = harness.submit(seeded(100, 2, 7, 4));
    while (harness.answer(id, 0).tokens.empty()) harness.step();
    EXPECT_EQ(harness.engine().stats().num_blocks_held, 6 + 4);  // 96 tokens shared, a tail each
    EXPECT_EQ(num_rows, 99 + 4);
    harness.expect_quiet();
  }
}

TEST(Choices, MoreThanThereAreSlots) {
  for (const BatchingMode mode : {BatchingMode::continuous, BatchingMode::fixed, BatchingMode::none}) {
    EngineConfig config = pool_config(64, 16);
    config.max_num_seqs = 3;
    config.batching = mode;
    Harness harness(config);
    const RequestId id = harness.submit(seeded(50, 10, 7, 8));
    harness.run();
    for (int32_t choice = 0; choice < 8; ++choice) {
      Harness alone(pool_config(64, 16));
      EXPECT_EQ(harness.answer(id, choice).tokens, alone.run_alone(seeded(50, 10, 7 + choice)));
    }
    harness.expect_quiet();
  }
}

TEST(Choices, TheNumberIsChecked) {
  Harness harness(pool_config(64, 16));
  for (int32_t num_choices : {0, -1, 129, 2147483647}) {
    EXPECT_EQ(harness.refused(seeded(5, 5, 1, num_choices)).kind, Refusal::Kind::invalid);
  }
}

TEST(Choices, HangUpAfterTheFirstEnded) {
  Harness harness(pool_config(64, 16));
  Request request = seeded(40, 200, 7, 3);
  const RequestId id = harness.submit(request);
  harness.step(10);
  harness.engine().finish_choice(id, 0, 3);
  harness.step(2);
  EXPECT_TRUE(harness.answer(id, 0).finished);
  EXPECT_FALSE(harness.done[id]);
  harness.engine().cancel(id);
  harness.step();
  EXPECT_TRUE(harness.done[id]);
  EXPECT_EQ(harness.answer(id, 0).finished->reason, FinishReason::stop);
  EXPECT_EQ(harness.answer(id, 2).finished->reason, FinishReason::abort);
  // Cancelled before its choices part: each still ends once.
  const RequestId early = harness.submit(seeded(500, 200, 7, 3));
  harness.step(2);
  harness.engine().cancel(early);
  harness.step();
  for (int32_t choice = 0; choice < 3; ++choice) EXPECT_TRUE(harness.answer(early, choice).finished);
  harness.expect_quiet();
}

TEST(Seeds, ADrawDependsOnSeedAndPositionAlone) {
  const Request request = seeded(30, 64, 42);
  const std::vector<TokenId> alone = Harness(pool_config(64, 16)).run_alone(request);
  EXPECT_NE(alone, Harness(pool_config(64, 16)).run_alone(seeded(30, 64, 43)));
  Harness harness(pool_config(64, 16));
  Request unseeded = request;
  unseeded.has_seed = false;
  std::vector<RequestId> same;
  same.push_back(harness.submit(request));
  harness.step(3);
  const RequestId first_unseeded = harness.submit(unseeded);
  harness.submit(seeded(30, 64, 7));
  same.push_back(harness.submit(request));
  const RequestId second_unseeded = harness.submit(unseeded);
  same.push_back(harness.submit(seeded(30, 64, 42, 2)));
  harness.run();
  for (RequestId id : same) EXPECT_EQ(harness.answer(id).tokens, alone);
  EXPECT_NE(harness.answer(first_unseeded).tokens, harness.answer(second_unseeded).tokens);
  EXPECT_NE(harness.answer(first_unseeded).tokens, alone);
}

TEST(Seeds, UnseededRequestsDifferBetweenStartsUnlessTheServerHasASeed) {
  Request request = seeded(30, 20, 0);
  request.has_seed = false;
  EngineConfig config = pool_config(64, 16);
  EXPECT_EQ(Harness(config).run_alone(request), Harness(config).run_alone(request));
  config.seed = 0;
  EXPECT_NE(Harness(config).run_alone(request), Harness(config).run_alone(request));
}

}  // namespace
}  // namespace tidemill
