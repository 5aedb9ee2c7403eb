// Requests that arrive together with one common prefix: it is computed once, whoever ends or is preempted meanwhile.
#include <gtest/gtest.h>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

constexpr int32_t block_size = 16;
constexpr int32_t num_common = 10 * block_size;

// `num_common` tokens that all have, and some of its own.
Request member(int32_t name, int64_t max_tokens = 3, int32_t num_own = 5) {
  Request request = make_request(1, max_tokens);
  request.prompt = prompt_of(num_common, 900);
  for (TokenId token : prompt_of(num_own, name)) request.prompt.push_back(token);
  return request;
}

EngineConfig burst_config(int32_t max_rows = 64) {
  EngineConfig config = pool_config(200, block_size);
  config.max_num_batched_tokens = max_rows;
  return config;
}

std::vector<TokenId> answer_alone(const Request& request) {
  EngineConfig config = burst_config();
  config.prefix_caching = false;
  Harness harness(config);
  return harness.run_alone(request);
}

TEST(PrefixBurst, ComputesTheCommonPartOnce) {
  for (int32_t max_rows : {16, 64, 1024}) {
    Harness harness(burst_config(max_rows));
    std::vector<RequestId> ids;
    for (int32_t i = 0; i < 8; ++i) ids.push_back(harness.submit(member(i)));
    harness.run();
    const EngineStats stats = harness.engine().stats();
    EXPECT_EQ(stats.prompt_tokens_computed, static_cast<uint64_t>(num_common + 8 * 5)) << max_rows;
    EXPECT_EQ(stats.prompt_tokens - stats.prompt_tokens_cached, stats.prompt_tokens_computed);
    EXPECT_EQ(stats.prefix_requests, 8u);
    EXPECT_EQ(stats.prefix_request_hits, 7u);
    EXPECT_EQ(stats.prefix_waits, 7u);
    for (int32_t i = 0; i < 8; ++i) {
      EXPECT_EQ(harness.answer(ids[i]).tokens, answer_alone(member(i)));
      EXPECT_EQ(harness.answer(ids[i]).finished->usage.cached_tokens, i == 0 ? 0 : num_common);
    }
    harness.expect_quiet();
  }
}

TEST(PrefixBurst, WaitsOnlyAsLongAsTheCommonPartTakes) {
  Harness harness(burst_config(32));
  Request first = member(0, 3, 600);
  const RequestId long_one = harness.submit(first);
  const RequestId short_one = harness.submit(member(1));
  harness.run();
  EXPECT_EQ(harness.answer(short_one).finished->usage.cached_tokens, num_common);
  EXPECT_LT(harness.answer(short_one).steps.front(), harness.answer(long_one).steps.front());
}

TEST(PrefixBurst, LeavesOthersAlone) {
  Harness harness(burst_config(512));
  harness.submit(member(0));
  harness.submit(member(1));
  const RequestId other = harness.submit(make_request(20, 3, 5));
  Request salted = member(0);
  salted.cache_salt = "s";
  const RequestId apart = harness.submit(salted);
  harness.step(1);
  EXPECT_EQ(harness.engine().stats().num_requests_running, 3) << "the second member waits, nobody else does";
  harness.run();
  EXPECT_EQ(harness.answer(apart).finished->usage.cached_tokens, 0);
  EXPECT_EQ(harness.answer(other).tokens, answer_alone(make_request(20, 3, 5)));
}

TEST(PrefixBurst, AWaiterTakesOverFromOneThatIsCancelled) {
  for (int steps = 0; steps < 6; ++steps) {
    Harness harness(burst_config(48));
    std::vector<RequestId> ids;
    for (int32_t i = 0; i < 4; ++i) ids.push_back(harness.submit(member(i)));
    harness.step(steps);
    harness.engine().cancel(ids[0]);
    harness.run();
    for (int32_t i = 1; i < 4; ++i) EXPECT_EQ(harness.answer(ids[i]).tokens, answer_alone(member(i)));
    // What the first had finished is not computed again: at most the block that it was in.
    const EngineStats stats = harness.engine().stats();
    EXPECT_LE(stats.prompt_tokens_computed, static_cast<uint64_t>(num_common + 4 * 5 + block_size));
    harness.expect_quiet();
  }
}

TEST(PrefixBurst, AWaiterTakesOverFromOneThatIsPreempted) {
  for (bool cancel : {false, true}) {
    EngineConfig config = burst_config(32);
    config.max_num_seqs = 2;
    Harness harness(config);
    const RequestId stream = harness.submit(make_request(20, 60, 5));
    harness.step(2);
    const auto submit_bulk = [&](int32_t name) {
      Request request = member(name, 6);
      request.latency_class = LatencyClass::bulk;
      return harness.submit(request);
    };
    const RequestId preempted = submit_bulk(0);
    const RequestId waiter = submit_bulk(1);
    harness.step(2);  // the prompt of the first is half computed
    Request urgent = make_request(20, 3, 6);
    urgent.latency_class = LatencyClass::interactive;
    const RequestId stranger = harness.submit(urgent);
    harness.step(2);
    EXPECT_EQ(harness.engine().stats().num_preemptions, 1u);
    EXPECT_TRUE(harness.answer(preempted).tokens.empty());
    if (cancel) harness.engine().cancel(preempted);
    harness.run();
    if (!cancel) {
      EXPECT_EQ(harness.answer(preempted).tokens, answer_alone(member(0, 6)));
    }
    EXPECT_EQ(harness.answer(waiter).tokens, answer_alone(member(1, 6)));
    EXPECT_EQ(harness.answer(stream).tokens, answer_alone(make_request(20, 60, 5)));
    EXPECT_EQ(harness.answer(stranger).tokens, answer_alone(urgent));
    harness.expect_quiet();
  }
}

// A bulk request computes; an interactive one waits for its blocks; standard prompts may not come between.
TEST(PrefixBurst, TheOneThatComputesIsServedAsTheBestThatWaits) {
  const auto steps_to_token = [](LatencyClass latency_class, bool priorities) {
    EngineConfig config = burst_config(32);
    if (priorities) config.policy = PolicyKind::priority;
    Harness harness(config);
    Request first = member(0);
    if (priorities) {
      first.priority = 5;
    } else {
      first.latency_class = LatencyClass::bulk;
    }
    harness.submit(first);
    harness.step(1);
    for (int32_t i = 0; i < 3; ++i) harness.submit(make_request(300, 3, 20 + i));
    Request waiter = member(1);
    waiter.latency_class = latency_class;
    if (priorities) waiter.priority = latency_class == LatencyClass::interactive ? -1 : 9;
    const RequestId id = harness.submit(waiter);
    harness.run();
    EXPECT_EQ(harness.answer(id).finished->usage.cached_tokens, num_common);
    return harness.answer(id).steps.front();
  };
  // The prefix takes five steps, and the waiter's own part half of one.
  EXPECT_LE(steps_to_token(LatencyClass::interactive, false), 8u);
  EXPECT_GT(steps_to_token(LatencyClass::bulk, false), 20u);
  EXPECT_LE(steps_to_token(LatencyClass::interactive, true), 8u);
}

TEST(PrefixBurst, ChoicesOfManyRequestsShareIt) {
  Harness harness(burst_config(64));
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 3; ++i) {
    Request request = member(i);
    request.num_choices = 3;
    ids.push_back(harness.submit(request));
  }
  harness.run();
  for (int32_t i = 0; i < 3; ++i) {
    for (int32_t choice = 0; choice < 3; ++choice) {
      EXPECT_EQ(harness.answer(ids[i], choice).tokens, answer_alone(member(i)));
    }
  }
  // Each choice computes the last token of the prompt for itself.
  EXPECT_EQ(harness.engine().stats().prompt_tokens_computed, static_cast<uint64_t>(num_common + 3 * (5 + 2)));
  harness.expect_quiet();
}

TEST(PrefixBurst, InAPoolTooSmallForAll) {
  EngineConfig config = burst_config(48);
  config.kv_budget_bytes = 24 * 100;
  Harness harness(config);
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 12; ++i) ids.push_back(harness.submit(member(i, 40, 20)));
  harness.run();
  for (int32_t i = 0; i < 12; ++i) EXPECT_EQ(harness.answer(ids[i]).tokens, answer_alone(member(i, 40, 20)));
  EXPECT_EQ(harness.engine().stats().prefix_request_hits, 11u);
  harness.expect_quiet();
}

}  // namespace
}  // namespace tidemill
