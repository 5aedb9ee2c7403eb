// What is refused at the door, what is cut short, and what runs out of time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(Limits, PromptsAtTheContextLength) {
  Harness harness(pool_config(64, 16, 64));
  EXPECT_EQ(harness.run_alone(make_request(63, 1)).size(), 1u);
  const uint64_t steps_before = harness.num_steps;
  for (int32_t num_tokens : {64, 65, 10000}) {
    const Refusal refusal = harness.refused(make_request(num_tokens, 1));
    EXPECT_EQ(refusal.kind, Refusal::Kind::context_length_exceeded);
    EXPECT_THAT(refusal.message, HasSubstr(std::to_string(num_tokens) + " tokens"));
    EXPECT_THAT(refusal.message, HasSubstr("length is 64"));
  }
  EXPECT_EQ(harness.num_steps, steps_before);
  const RequestId id = harness.submit(make_request(62, 10));
  harness.run();
  EXPECT_EQ(harness.answer(id).tokens.size(), 2u);
  EXPECT_EQ(harness.answer(id).finished->reason, FinishReason::length);
  EXPECT_EQ(harness.engine().stats().refused[static_cast<size_t>(Refusal::Kind::context_length_exceeded)], 3u);
  harness.expect_quiet();
}

TEST(Limits, APromptAloneMayFillTheContext) {
  Harness harness(pool_config(64, 16, 64));
  Request request = make_request(64, 0);
  request.prompt_logprobs = 0;
  request.num_choices = 2;
  const RequestId id = harness.submit(request);
  harness.run();
  EXPECT_EQ(harness.prompt_logprobs[id].size(), 63u);
  for (int32_t choice : {0, 1}) EXPECT_EQ(harness.answer(id, choice).finished->reason, FinishReason::length);
  EXPECT_EQ(harness.refused(make_request(65, 0)).kind, Refusal::Kind::context_length_exceeded);
  request.max_tokens.reset();
  EXPECT_EQ(harness.refused(request).kind, Refusal::Kind::context_length_exceeded);
  harness.expect_quiet();
}

TEST(Limits, TheContextIsCheckedBeforeAFullQueue) {
  EngineConfig config = pool_config(64, 16, 64);
  config.max_num_seqs = 1;
  config.max_num_queued_requests = 1;
  Harness harness(config);
  harness.submit(make_request(10, 30));
  harness.submit(make_request(10, 30));
  EXPECT_EQ(harness.refused(make_request(10, 30)).kind, Refusal::Kind::queue_full);
  EXPECT_EQ(harness.refused(make_request(64, 30)).kind, Refusal::Kind::context_length_exceeded);
}

TEST(Limits, HugeTokenLimitsAreClampedAndNeverWrap) {
  for (int64_t max_tokens : {int64_t{2147483647}, std::numeric_limits<int64_t>::max(), int64_t{1000000000000000000}}) {
    Harness harness(pool_config(64, 16, 100));
    const RequestId id = harness.submit(make_request(40, max_tokens));
    harness.run();
    EXPECT_EQ(harness.answer(id).tokens.size(), 60u);
    EXPECT_EQ(harness.answer(id).finished->reason, FinishReason::length);
  }
  Harness harness(pool_config(64, 16, 100));
  EXPECT_EQ(harness.refused(make_request(4, -1)).kind, Refusal::Kind::invalid);
  EXPECT_EQ(harness.refused(make_request(4, std::numeric_limits<int64_t>::min())).kind, Refusal::Kind::invalid);
  EXPECT_EQ(harness.refused(make_request(0, 4)).kind, Refusal::Kind::invalid);
  Request absent = make_request(40, 0);
  absent.max_tokens.reset();
  EXPECT_EQ(harness.run_alone(absent).size(), 60u);
}

TEST(Limits, NoTokensWanted) {
  Harness harness(pool_config(64, 16));
  Request request = make_request(100, 0);
  request.prompt_logprobs = 1;
  request.num_choices = 2;
  const RequestId id = harness.submit(request);
  const RequestId plain = harness.submit(make_request(1, 0));
  harness.run();
  for (int32_t choice : {0, 1}) {
    ASSERT_TRUE(harness.answer(id, choice).finished);
    EXPECT_EQ(harness.answer(id, choice).finished->reason, FinishReason::length);
    EXPECT_EQ(harness.answer(id, choice).finished->usage.completion_tokens, 0);
    EXPECT_TRUE(harness.answer(id, choice).tokens.empty());
  }
  ASSERT_EQ(harness.prompt_logprobs[id].size(), 99u);
  for (size_t i = 0; i < 99; ++i) EXPECT_EQ(harness.prompt_logprobs[id][i].token, request.prompt[i + 1]);
  EXPECT_TRUE(harness.answer(plain).finished);
  EXPECT_EQ(harness.engine().stats().generation_tokens, 0u);
  harness.expect_quiet();
}

// H20: pool of 16 blocks of 16 tokens, context of 1,024.
class NeverFits : public testing::TestWithParam<std::string> {
 protected:
  // An engine whose pool is empty, full of cached blocks, or in part held by another request.
  std::unique_ptr<Harness> make() {
    auto harness = std::make_unique<Harness>(pool_config(16, 16));
    if (GetParam() == "cached") {
      harness->run_alone(make_request(250, 2, 77));
      EXPECT_GE(harness->engine().stats().num_blocks_cached, 15);
    } else if (GetParam() == "held") {
      harness->submit(make_request(49, 12, 78));  // 4 blocks
      harness->step(3);
      EXPECT_EQ(harness->engine().stats().num_blocks_held, 4);
    }
    return harness;
  }
};

TEST_P(NeverFits, IsRefusedWithBothNumbers) {
  auto harness = make();
  const Refusal refusal = harness->refused(make_request(400, 1));
  EXPECT_EQ(refusal.kind, Refusal::Kind::kv_capacity_exceeded);
  EXPECT_THAT(refusal.message, HasSubstr("400 tokens"));
  EXPECT_THAT(refusal.message, HasSubstr("at most 256"));
  const RequestId small = harness->submit(make_request(10, 5));
  harness->run();
  EXPECT_EQ(harness->answer(small).tokens.size(), 5u);
  harness->expect_quiet();
}

TEST_P(NeverFits, OutputBeyondThePoolEndsWhenItIsFull) {
  auto harness = make();
  const RequestId id = harness->submit(make_request(200, 200));
  const RequestId small = harness->submit(make_request(10, 5, 1));
  harness->run();
  // 256 positions hold KV, and the last row still draws.
  EXPECT_EQ(harness->answer(id).tokens.size(), 57u);
  EXPECT_EQ(harness->answer(id).finished->reason, FinishReason::length);
  EXPECT_EQ(harness->answer(small).tokens.size(), 5u);
  harness->expect_quiet();
}

TEST_P(NeverFits, ExactlyFull) {
  for (int32_t num_tokens : {256, 255, 241}) {
    auto harness = make();
    const RequestId id = harness->submit(make_request(num_tokens, 1));
    const RequestId small = harness->submit(make_request(10, 5, 1));
    harness->run();
    EXPECT_EQ(harness->answer(id).tokens.size(), 1u);
    EXPECT_EQ(harness->answer(small).tokens.size(), 5u);
    harness->expect_quiet();
  }
  auto harness = make();
  EXPECT_EQ(harness->refused(make_request(257, 1)).kind, Refusal::Kind::kv_capacity_exceeded);
}

INSTANTIATE_TEST_SUITE_P(Pools, NeverFits, testing::Values("empty", "cached", "held"),
                         [](const auto& info) { return info.param; });

// H24: two slots and a queue of four.
TEST(Limits, TwentyAtOnceAreSixAndFourteen) {
  EngineConfig config = pool_config(64, 16);
  config.max_num_seqs = 2;
  config.max_num_queued_requests = 4;
  Harness harness(config);
  for (int round = 0; round < 3; ++round) {
    int num_accepted = 0, num_full = 0;
    for (int i = 0; i < 20; ++i) {
      auto result = harness.engine().submit(make_request(20, 30, i));
      num_accepted += result.index() == 0;
      if (const Refusal* refusal = std::get_if<Refusal>(&result)) {
        ++num_full;
        EXPECT_EQ(refusal->kind, Refusal::Kind::queue_full);
        EXPECT_GT(refusal->retry_after.count(), 0);
      }
    }
    EXPECT_EQ(num_accepted, 6);
    EXPECT_EQ(num_full, 14);
    for (int i = 0; i < 40; ++i) {
      harness.step();
      EXPECT_LE(harness.engine().stats().num_requests_waiting, 4);
    }
    harness.run();
  }
  EXPECT_EQ(harness.answers.size(), 18u);
  harness.expect_quiet();
}

TEST(Limits, RetryAfterComesFromTheMeasuredThroughput) {
  EngineConfig config = pool_config(64, 16);
  config.max_num_seqs = 1;
  config.max_num_queued_requests = 1;
  Harness harness(config);
  const Clock::Time begin = harness.clock().now();
  for (int i = 0; i < 5; ++i) harness.run_alone(make_request(20, 50, i));
  const double each_ms = std::chrono::duration<double, std::milli>(harness.clock().now() - begin).count() / 5;
  harness.submit(make_request(20, 50));
  harness.submit(make_request(20, 50));
  const Refusal refusal = harness.refused(make_request(20, 50));
  EXPECT_NEAR(static_cast<double>(refusal.retry_after.count()), each_ms, 0.2 * each_ms + 2);
}

TEST(Limits, QueuedTokens) {
  EngineConfig config = pool_config(64, 16);
  config.max_num_seqs = 1;
  config.max_num_queued_tokens = 100;
  config.max_queued_tokens_per_tenant = 60;
  Harness harness(config);
  Request request = make_request(50, 20);
  request.tenant = "a";
  harness.submit(request);
  harness.step();  // it runs: nothing is queued
  harness.submit(request);
  EXPECT_EQ(harness.refused(request).kind, Refusal::Kind::tenant_limit);
  request.tenant = "b";
  harness.submit(request);
  EXPECT_EQ(harness.engine().stats().num_queued_tokens, 100);
  request.tenant = "c";
  EXPECT_EQ(harness.refused(request).kind, Refusal::Kind::queue_full);
  harness.run();
  harness.submit(request);
  harness.expect_quiet();
}

TEST(Limits, TimeLimits) {
  EngineConfig config = pool_config(64, 16);
  config.max_num_seqs = 1;
  config.queue_timeout = milliseconds(500);
  Harness harness(config);
  Request slow = make_request(20, 900);
  slow.timeout = milliseconds(1000);
  const RequestId running = harness.submit(slow);
  const RequestId waiting = harness.submit(make_request(20, 5));
  Request patient = make_request(20, 5);
  patient.queue_timeout = milliseconds(100000);  // the engine's own limit is shorter
  const RequestId waiting_too = harness.submit(patient);
  harness.run();
  for (RequestId id : {waiting, waiting_too}) {
    EXPECT_EQ(harness.answer(id).finished->reason, FinishReason::timeout);
    EXPECT_TRUE(harness.answer(id).tokens.empty());
    EXPECT_NEAR(harness.answer(id).finished->timings.queue_ms, 500, 20);
  }
  EXPECT_EQ(harness.answer(running).finished->reason, FinishReason::timeout);
  EXPECT_GT(harness.answer(running).tokens.size(), 50u);
  EXPECT_FALSE(harness.answer(running).finished->message.empty());
  harness.expect_quiet();
}

TEST(Limits, CancelTakesEffectInTheNextStep) {
  Harness harness(pool_config(64, 16));
  const RequestId decoding = harness.submit(make_request(20, 500));
  const RequestId reading = harness.submit(make_request(600, 500, 1));
  harness.step(4);
  EXPECT_FALSE(harness.answer(decoding).tokens.empty());
  EXPECT_TRUE(harness.answer(reading).tokens.empty());
  harness.engine().cancel(decoding);
  harness.engine().cancel(reading);
  harness.engine().cancel(reading);
  harness.engine().cancel(12345);
  harness.step();
  EXPECT_EQ(harness.answer(decoding).finished->reason, FinishReason::abort);
  EXPECT_EQ(harness.answer(reading).finished->reason, FinishReason::abort);
  EXPECT_EQ(harness.engine().stats().num_blocks_held, 0);
  EXPECT_EQ(harness.engine().stats().num_aborted_requests, 2u);
  harness.expect_quiet();
  EXPECT_EQ(harness.run_alone(make_request(1000, 3, 5)).size(), 3u);
}

TEST(Limits, AStopStringFoundLater) {
  Harness harness(pool_config(64, 16));
  const RequestId id = harness.submit(make_request(20, 500));
  harness.step(12);
  const size_t num_drawn = harness.answer(id).tokens.size();
  ASSERT_GT(num_drawn, 8u);
  harness.engine().finish_choice(id, 0, 5);
  harness.engine().finish_choice(id, 0, 6);
  harness.engine().finish_choice(id, 3, 6);
  harness.run();
  const RequestEvent& finished = *harness.answer(id).finished;
  EXPECT_EQ(finished.reason, FinishReason::stop);
  EXPECT_EQ(finished.usage.completion_tokens, 5);
  EXPECT_EQ(finished.usage.discarded_tokens, static_cast<int32_t>(num_drawn) - 5);
  EXPECT_EQ(harness.engine().stats().generation_tokens, 5u);
  EXPECT_EQ(harness.engine().stats().discarded_tokens, num_drawn - 5);
  harness.expect_quiet();
}

TEST(Limits, StopAndEndTokens) {
  SimulatedOptions options;  // 30, 31, ... ; the end token at the fifth place
  options.script = [](std::span<const TokenId> tokens, int32_t num_prompt, const SamplingParams&) {
    const int32_t index = static_cast<int32_t>(tokens.size()) - num_prompt;
    return index == 4 ? end_token : 30 + index;
  };
  Harness harness(pool_config(64, 16), options);
  Request request = make_request(20, 10);
  request.sampling.ignore_eos = false;
  const RequestId ends = harness.submit(request);
  request.sampling.ignore_eos = true;
  const RequestId ignores = harness.submit(request);
  request.sampling.stop_token_ids = {32};
  const RequestId stops = harness.submit(request);
  request.sampling.min_tokens = 3;
  const RequestId barred = harness.submit(request);
  harness.run();
  EXPECT_EQ(harness.answer(ends).tokens.size(), 5u);
  EXPECT_EQ(harness.answer(ends).finished->reason, FinishReason::stop);
  EXPECT_EQ(harness.answer(ends).finished->stop_token, end_token);
  EXPECT_EQ(harness.answer(ends).finished->usage.completion_tokens, 5);
  EXPECT_EQ(harness.answer(ignores).tokens.size(), 10u);
  EXPECT_EQ(harness.answer(stops).tokens, (std::vector<TokenId>{30, 31, 32}));
  EXPECT_EQ(harness.answer(stops).finished->stop_token, 32);
  EXPECT_EQ(harness.answer(barred).tokens.size(), 10u);
}

TEST(Limits, ShutdownLetsRunningRequestsFinish) {
  EngineConfig config = pool_config(64, 16);
  config.max_num_seqs = 2;
  Harness harness(config);
  const RequestId quick = harness.submit(make_request(20, 20));
  const RequestId slow = harness.submit(make_request(20, 900, 1));
  const RequestId waiting = harness.submit(make_request(20, 5, 2));
  harness.step(3);
  EXPECT_FALSE(harness.engine().finished());
  harness.engine().shutdown(milliseconds(1000));
  EXPECT_EQ(harness.refused(make_request(20, 5)).kind, Refusal::Kind::shutting_down);
  harness.step();
  EXPECT_EQ(harness.answer(waiting).finished->reason, FinishReason::shutdown);
  const Clock::Time begin = harness.clock().now();
  harness.run();
  EXPECT_TRUE(harness.engine().finished());
  EXPECT_EQ(harness.answer(quick).finished->reason, FinishReason::length);
  EXPECT_EQ(harness.answer(quick).tokens.size(), 20u);
  EXPECT_EQ(harness.answer(slow).finished->reason, FinishReason::shutdown);
  EXPECT_LT(harness.clock().now() - begin, milliseconds(1100));
}

TEST(Limits, ASecondShutdownEndsAtOnceAndSoDoesTheDestructor) {
  Harness harness(pool_config(64, 16));
  const RequestId id = harness.submit(make_request(20, 900));
  harness.step(3);
  harness.engine().shutdown(milliseconds(100000));
  harness.step(3);
  EXPECT_FALSE(harness.engine().finished());
  harness.engine().shutdown(milliseconds(0));
  harness.step();
  EXPECT_TRUE(harness.engine().finished());
  EXPECT_EQ(harness.answer(id).finished->reason, FinishReason::shutdown);

  struct Counter : EventListener {
    int num_finished = 0;
    void publish(std::vector<RequestEvent> events) override {
      for (const RequestEvent& event : events) num_finished += event.kind == RequestEvent::Kind::finished;
    }
  } counter;
  VirtualClock clock;
  const EngineConfig config = pool_config(64, 16);
  {
    Engine engine(config, std::make_unique<SimulatedExecutor>(config, SimulatedOptions{}), clock, counter);
    engine.submit(make_request(5, 5));
    engine.step_once();
    engine.submit(make_request(5, 5));
  }
  EXPECT_EQ(counter.num_finished, 2);
}

TEST(Limits, ProgressIsReportedWhileAPromptIsRead) {
  Harness harness(pool_config(64, 16));
  Request request = make_request(200, 3);
  request.want_progress = true;
  const RequestId id = harness.submit(request);
  harness.run();
  std::vector<int32_t> computed;
  for (const RequestEvent& event : harness.progress[id]) {
    computed.push_back(event.num_prompt_computed);
    EXPECT_EQ(event.num_prompt_tokens, 200);
  }
  EXPECT_EQ(computed, (std::vector<int32_t>{64, 128, 192, 200}));
}

TEST(Limits, AStepThatDoesNotEndIsStuck) {
  EngineConfig config = pool_config(64, 16);
  bool stuck_inside = false, stuck_early = true;
  Engine* engine = nullptr;
  VirtualClock* clock = nullptr;
  SimulatedOptions options;
  options.observer = [&](const StepPlan&, const StepResult&) {
    stuck_early = engine->stuck();
    clock->advance(std::chrono::seconds(61));
    stuck_inside = engine->stuck();
  };
  Harness harness(config, options);
  engine = &harness.engine();
  clock = &harness.clock();
  harness.submit(make_request(5, 1));
  harness.step();
  EXPECT_FALSE(stuck_early);
  EXPECT_TRUE(stuck_inside);
  EXPECT_FALSE(harness.engine().stuck());
}

}  // namespace
}  // namespace tidemill
