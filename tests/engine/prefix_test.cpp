// Prefix hits: exactly what is there, for exactly whom it may be (H25, H26).
#include <gtest/gtest.h>

#include <random>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

Request with_prompt(std::vector<TokenId> prompt, int64_t max_tokens = 4) {
  Request request = make_request(1, max_tokens);
  request.prompt = std::move(prompt);
  request.sampling.logprobs = 1;
  return request;
}

int32_t cached_of(Harness& harness, const Request& request) {
  const RequestId id = harness.submit(request);
  harness.run();
  EXPECT_EQ(harness.answer(id).draws.size(), static_cast<size_t>(*request.max_tokens));
  EngineConfig config = pool_config(64, 16);
  config.prefix_caching = false;
  Harness plain(config);
  const RequestId expected = plain.submit(request);
  plain.run();
  EXPECT_EQ(harness.answer(id).draws, plain.answer(expected).draws);
  return harness.answer(id).finished->usage.cached_tokens;
}

TEST(PrefixHits, AreFullBlocksBeforeTheLastToken) {
  for (const auto& [num_tokens, num_cached] : {std::pair{83, 80}, {80, 64}, {81, 80}, {16, 0}, {17, 16}, {1, 0}}) {
    Harness harness(pool_config(16, 16));
    EXPECT_EQ(cached_of(harness, with_prompt(prompt_of(num_tokens))), 0);
    EXPECT_EQ(cached_of(harness, with_prompt(prompt_of(num_tokens))), num_cached);
    const EngineStats stats = harness.engine().stats();
    EXPECT_EQ(stats.prefix_cache_hits, static_cast<uint64_t>(num_cached));
    EXPECT_EQ(stats.prefix_cache_queries, 2u * num_tokens);
    EXPECT_EQ(stats.prompt_tokens_cached, static_cast<uint64_t>(num_cached));
  }
}

TEST(PrefixHits, EndBeforeTheBlockThatDiffers) {
  Harness harness(pool_config(16, 16));
  std::vector<TokenId> prompt = prompt_of(83);
  cached_of(harness, with_prompt(prompt));
  prompt[2 * 16 + 5] += 1;
  EXPECT_EQ(cached_of(harness, with_prompt(prompt)), 32);
  prompt[3] += 1;
  EXPECT_EQ(cached_of(harness, with_prompt(prompt)), 0);
}

TEST(PrefixHits, ShrinkFromTheTailAsBlocksAreNeeded) {
  Harness harness(pool_config(16, 16));
  const std::vector<TokenId> prompt = prompt_of(83);
  cached_of(harness, with_prompt(prompt));
  int32_t last = 80;
  std::vector<int32_t> seen;
  for (int32_t filler = 1; filler < 12; ++filler) {
    // 11 blocks are free besides the five; each round takes one more of what is left.
    Harness again(pool_config(16, 16));
    cached_of(again, with_prompt(prompt));
    again.run_alone(make_request(160 + 8 * filler, 1, 50));
    const int32_t cached = cached_of(again, with_prompt(prompt));
    EXPECT_EQ(cached % 16, 0);
    EXPECT_LE(cached, last);
    seen.push_back(cached);
    last = cached;
  }
  EXPECT_EQ(seen.front(), 80);
  EXPECT_EQ(seen.back(), 0);
}

TEST(PrefixHits, AreCountedWhenARequestIsAdmittedNotWhenItArrives) {
  EngineConfig config = pool_config(16, 16);
  config.max_num_seqs = 1;
  Harness harness(config);
  const std::vector<TokenId> prompt = prompt_of(83);
  cached_of(harness, with_prompt(prompt));
  harness.submit(make_request(240, 1, 51));  // needs all blocks but one
  const RequestId id = harness.submit(with_prompt(prompt));
  harness.run();
  EXPECT_LE(harness.answer(id).finished->usage.cached_tokens, 16);
  harness.expect_quiet();
}

TEST(PrefixHits, ComeFromARunningRequestToo) {
  Harness harness(pool_config(64, 16));
  harness.submit(with_prompt(prompt_of(83), 200));
  harness.step(5);
  const RequestId id = harness.submit(with_prompt(prompt_of(83)));
  harness.step(2);
  EXPECT_EQ(harness.engine().stats().num_requests_running, 2);
  EXPECT_EQ(harness.engine().stats().num_blocks_held, 6 + 1);
  harness.run();
  EXPECT_EQ(harness.answer(id).finished->usage.cached_tokens, 80);
}

TEST(PrefixHits, CoverWhatWasGeneratedAndSealed) {
  Harness harness(pool_config(64, 16));
  std::vector<TokenId> conversation = prompt_of(20);
  for (TokenId token : harness.run_alone(with_prompt(conversation, 40))) conversation.push_back(token);
  conversation.push_back(5);
  EXPECT_EQ(cached_of(harness, with_prompt(conversation)), 48);  // 59 positions were computed
}

TEST(PrefixHits, RandomPromptsThatShareInAPoolTooSmall) {
  std::mt19937 random(3);
  Harness harness(pool_config(16, 16));
  std::vector<std::vector<TokenId>> prompts;
  for (int32_t i = 0; i < 30; ++i) {
    std::vector<TokenId> prompt = prompt_of(static_cast<int32_t>(random() % 90), static_cast<int32_t>(random() % 3));
    for (TokenId token : prompt_of(1 + static_cast<int32_t>(random() % 40), i)) prompt.push_back(token);
    prompts.push_back(prompt);
  }
  std::vector<std::vector<Draw>> expected(30);
  for (int round = 0; round < 2000; ++round) {
    const size_t which = random() % 30;
    const Request request = with_prompt(prompts[which], 3);
    const RequestId id = harness.submit(request);
    if (random() % 3 != 0) harness.run();
    if (!harness.answer(id).finished) continue;
    if (expected[which].empty()) {
      Harness alone(pool_config(64, 16));
      const RequestId plain = alone.submit(request);
      alone.run();
      expected[which] = alone.answer(plain).draws;
    }
    EXPECT_EQ(harness.answer(id).draws, expected[which]);
    EXPECT_EQ(harness.answer(id).finished->usage.cached_tokens % 16, 0);
  }
  EXPECT_GT(harness.engine().stats().prefix_cache_hits, 1000u);
  harness.expect_quiet();
}

TEST(PrefixHits, StayWithinASalt) {
  Harness harness(pool_config(64, 16));
  const auto cached = [&](const std::string& salt, const std::string& tenant = "") {
    Request request = with_prompt(prompt_of(6 * 16 + 1));
    request.cache_salt = salt;
    request.tenant = tenant;
    return cached_of(harness, request);
  };
  EXPECT_EQ(cached("A"), 0);
  EXPECT_EQ(cached("A"), 96);
  EXPECT_EQ(cached("B"), 0);
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached(""), 96);
  EXPECT_EQ(cached("", "A"), 96);  // whose key it was does not matter
  const std::string large(1 << 20, 'x');
  std::string almost = large;
  almost.back() = 'y';
  EXPECT_EQ(cached(large), 0);
  EXPECT_EQ(cached(almost), 0);
  EXPECT_EQ(cached(large), 96);
}

TEST(PrefixHits, StayWithinATenantWhateverTheSalt) {
  Harness harness(pool_config(64, 16));
  const auto cached = [&](const std::string& salt, const std::string& tenant) {
    Request request = with_prompt(prompt_of(6 * 16 + 1));
    request.cache_salt = salt;
    request.cache_tenant = tenant;
    return cached_of(harness, request);
  };
  EXPECT_EQ(cached("s", "one"), 0);
  EXPECT_EQ(cached("s", "two"), 0);
  EXPECT_EQ(cached("s", "one"), 96);
  EXPECT_EQ(cached("ab", "c"), 0);
  EXPECT_EQ(cached("a", "bc"), 0);
  EXPECT_EQ(cached("", "sone"), 0);
}

TEST(PrefixHits, NoneWithoutPrefixCaching) {
  EngineConfig config = pool_config(64, 16);
  config.prefix_caching = false;
  Harness harness(config);
  EXPECT_EQ(cached_of(harness, with_prompt(prompt_of(83))), 0);
  EXPECT_EQ(cached_of(harness, with_prompt(prompt_of(83))), 0);
  EXPECT_EQ(harness.engine().stats().num_blocks_cached, 0);
  EXPECT_EQ(harness.engine().stats().prefix_cache_queries, 0u);
}

TEST(PrefixHits, PromptLogprobsComputeEveryRow) {
  Harness harness(pool_config(64, 16));
  cached_of(harness, with_prompt(prompt_of(83)));
  Request request = with_prompt(prompt_of(83));
  request.prompt_logprobs = 2;
  const RequestId id = harness.submit(request);
  harness.run();
  EXPECT_EQ(harness.answer(id).finished->usage.cached_tokens, 0);
  EXPECT_EQ(harness.prompt_logprobs[id].size(), 82u);
}

}  // namespace
}  // namespace tidemill
