// How long steps take beside streams, and what latency classes promise (M6, M16). Times are virtual, of the simulated
// executor's cost model, so every run is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

double ms(Clock::Time from, Clock::Time to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// A step takes 5 ms, 0.3 ms a row, 0.1 ms a draw; reading costs little.
CostModel machine() {
  return {.per_step = milliseconds(5),
          .per_row = microseconds(300),
          .per_draw = microseconds(100),
          .per_position = std::chrono::nanoseconds(200),
          .per_prompt_position = std::chrono::nanoseconds(100)};
}

EngineConfig serving(int32_t max_num_seqs = 32) {
  EngineConfig config = pool_config(4000, 16, 16000);
  config.max_num_seqs = max_num_seqs;
  config.max_num_batched_tokens = 512;
  config.itl_multiple = 2.3;
  return config;
}

// What a step had, and how long it took.
struct Step {
  int32_t num_decodes = 0;
  int32_t num_prompt_rows = 0;
  double ms = 0;
};

struct Watched {
  explicit Watched(const EngineConfig& config, std::chrono::nanoseconds per_moved_block = {})
      : harness(config, options(per_moved_block)) {}
  SimulatedOptions options(std::chrono::nanoseconds per_moved_block) {
    SimulatedOptions simulated;
    simulated.cost = machine();
    simulated.cost.per_moved_block = per_moved_block;
    simulated.observer = [this](const StepPlan& plan, const StepResult& result) {
      Step step;
      for (const PlannedSequence& sequence : plan.sequences) {
        (sequence.num_rows == 1 ? step.num_decodes : step.num_prompt_rows) += sequence.num_rows;
      }
      step.ms = static_cast<double>(result.duration_ns) / 1e6;
      steps.push_back(step);
    };
    return simulated;
  }
  RequestId submit(int32_t num_prompt_tokens, int64_t max_tokens, int32_t name,
                   LatencyClass latency_class = LatencyClass::standard) {
    Request request = make_request(num_prompt_tokens, max_tokens, name);
    request.latency_class = latency_class;
    const RequestId id = harness.submit(std::move(request));
    sent[id] = harness.clock().now();
    return id;
  }
  // Streams that decode, so that the model of costs has seen such steps.
  std::vector<RequestId> warm_up(int32_t num_streams, int64_t max_tokens) {
    submit(1200, 20, 900);
    harness.run();
    std::vector<RequestId> ids;
    for (int32_t i = 0; i < num_streams; ++i) ids.push_back(submit(20, max_tokens, i));
    harness.step(20);
    steps.clear();
    return ids;
  }
  std::vector<double> gaps_ms(RequestId id) {
    std::vector<double> gaps;
    const std::vector<Clock::Time>& times = harness.answer(id).times;
    for (size_t i = 1; i < times.size(); ++i) gaps.push_back(ms(times[i - 1], times[i]));
    return gaps;
  }
  double first_token_ms(RequestId id) { return ms(sent.at(id), harness.answer(id).times.front()); }

  std::vector<Step> steps;
  std::map<RequestId, Clock::Time> sent;
  Harness harness;
};

TEST(StepTime, AStepWithStreamsStaysUnderTheTarget) {
  EngineConfig config = serving();
  config.target_itl = milliseconds(40);
  Watched watched(config);
  watched.warm_up(8, 2000);
  const RequestId document = watched.submit(6000, 3, 50);
  while (!watched.harness.done[document]) watched.harness.step();
  size_t num_with_prompt = 0;
  for (const Step& step : watched.steps) {
    EXPECT_EQ(step.num_decodes >= 8, true) << "streams get a row in every step";
    EXPECT_LE(step.ms, 40 * 1.05);
    num_with_prompt += step.num_prompt_rows > 0;
  }
  // 32 ms of 40 are left for it, which is about 100 rows at its beginning and 40 at its end.
  EXPECT_GT(num_with_prompt, 60u);
  EXPECT_LT(num_with_prompt, 150u);
  EXPECT_GT(watched.steps[1].num_prompt_rows, 1.5 * watched.steps[num_with_prompt - 3].num_prompt_rows);
}

TEST(StepTime, WhatMovingBlocksTakesIsPartOfTheTarget) {
  EngineConfig config = serving();
  config.target_itl = milliseconds(40);
  config.groups = pool_config(900, 16, 16000).groups;
  config.kv_budget_bytes = pool_config(900, 16, 16000).kv_budget_bytes;
  config.kv_host_bytes = config.kv_budget_bytes;
  Watched watched(config, milliseconds(1));
  watched.warm_up(8, 3000);
  std::vector<double> times;
  for (int32_t i = 0; i < 10; ++i) {
    const RequestId document = watched.submit(4000, 2, 50 + i);
    while (!watched.harness.done[document]) watched.harness.step();
    for (const Step& step : watched.steps) {
      if (i >= 3 && step.num_prompt_rows > 0) times.push_back(step.ms);
    }
    watched.steps.clear();
  }
  std::ranges::sort(times);
  EXPECT_GT(watched.harness.engine().stats().ladder.moves[static_cast<size_t>(MoveKind::spill)].num_blocks, 1000);
  EXPECT_NEAR(times[times.size() / 2], 40, 1.5);
}

TEST(StepTime, WithoutATargetTheStepsOfAllWhoAreHereAreTheMeasure) {
  Watched watched(serving());
  watched.warm_up(8, 400);
  const double decode_ms = watched.harness.engine().stats().step_time.sum();  // only to see that there are any
  EXPECT_GT(decode_ms, 0);
  for (int32_t i = 0; i < 8; ++i) watched.submit(150, 100, 60 + i);
  watched.harness.step(6);
  // 16 streams take 11.4 ms and a little for what they read.
  for (const Step& step : watched.steps) EXPECT_LE(step.ms, 2.3 * 12.5);
  EXPECT_GT(watched.steps[1].ms, 2.3 * 10);
}

TEST(StepTime, WithoutStreamsPromptsGetTheWholeBudget) {
  EngineConfig config = serving();
  config.target_itl = milliseconds(10);
  Watched watched(config);
  watched.submit(2000, 1, 1);
  watched.harness.run();
  EXPECT_EQ(watched.steps.size(), 4u);
  EXPECT_EQ(watched.steps.front().num_prompt_rows, 512);
}

TEST(StepTime, APromptGetsOnThoughTheTargetCannotBeHeld) {
  EngineConfig config = serving();
  config.target_itl = milliseconds(1);
  Watched watched(config);
  watched.warm_up(8, 2000);
  const RequestId prompt = watched.submit(1600, 2, 50);
  while (!watched.harness.done[prompt]) watched.harness.step();
  EXPECT_LE(watched.steps.size(), 1600u / 16 + 3);
}

TEST(StepTime, LongDocumentsThatWaitMayTakeTwiceTheUsual) {
  Watched watched(serving());
  watched.warm_up(8, 3000);
  std::vector<RequestId> documents;
  for (int32_t i = 0; i < 4; ++i) documents.push_back(watched.submit(6000, 2, 60 + i));
  watched.harness.step(100);
  double longest = 0;
  for (const Step& step : watched.steps) longest = std::max(longest, step.ms);
  EXPECT_GT(longest, 2.3 * 16);  // 12 streams, of which 4 read 6,000 positions, take 15 ms
  EXPECT_LT(longest, 2 * 2.3 * 16);
}

// 24 sequences of which 16 have 6,000 positions decode in 34 ms. As long as those are prompts, their length is no
// reason to keep the streams waiting for 2.3 times that; when they are streams, it is.
TEST(StepTime, ContextsCountOnceTheyAreDecodedFrom) {
  EngineConfig config = serving();
  config.max_num_batched_tokens = 4096;
  config.groups = pool_config(10000, 16, 16000).groups;
  config.kv_budget_bytes = pool_config(10000, 16, 16000).kv_budget_bytes;
  Watched watched(config);
  watched.warm_up(8, 3000);
  std::vector<RequestId> documents;
  for (int32_t i = 0; i < 15; ++i) documents.push_back(watched.submit(6000, 3000, 60 + i));
  watched.harness.step(100);
  double longest = 0;
  for (const Step& step : watched.steps) longest = std::max(longest, step.ms);
  EXPECT_GT(longest, 50);
  EXPECT_LT(longest, 65 * 1.05);

  const auto decoding = [&] { return watched.steps.back().num_decodes == 23; };
  for (int32_t i = 0; i < 5000 && !decoding(); ++i) watched.harness.step();
  ASSERT_TRUE(decoding());
  watched.steps.clear();
  const RequestId last = watched.submit(6000, 2, 90);
  while (!watched.harness.done[last]) watched.harness.step();
  longest = 0;
  for (const Step& step : watched.steps) longest = std::max(longest, step.ms);
  EXPECT_GT(longest, 65 * 1.1);
  EXPECT_LT(longest, 2.3 * 38);
}

TEST(StepTime, AShortPromptDoesNotWaitForALongOne) {
  EngineConfig config = serving();
  config.target_itl = milliseconds(30);
  Watched watched(config);
  watched.warm_up(8, 3000);
  watched.submit(6000, 2, 60);
  watched.harness.step(3);
  const RequestId question = watched.submit(40, 5, 61);
  watched.harness.step(10);
  ASSERT_FALSE(watched.harness.answer(question).times.empty());
  EXPECT_LE(watched.first_token_ms(question), 3 * 32);
}

TEST(StepTime, AnswersDoNotDependOnIt) {
  std::vector<std::vector<TokenId>> answers[2];
  for (int limited = 0; limited < 2; ++limited) {
    EngineConfig config = serving();
    config.itl_multiple = 0;
    if (limited == 1) config.target_itl = milliseconds(12);
    Watched watched(config);
    std::vector<RequestId> ids;
    for (int32_t i = 0; i < 20; ++i) {
      ids.push_back(watched.submit(10 + i * 40, 20, i, static_cast<LatencyClass>(i % 3)));
      watched.harness.step(2);
    }
    watched.harness.run();
    for (RequestId id : ids) answers[limited].push_back(watched.harness.answer(id).tokens);
  }
  EXPECT_EQ(answers[0], answers[1]);
}

TEST(StepTime, PredictionsAndPhasesAreInTheStatistics) {
  Watched watched(serving());
  watched.warm_up(8, 200);
  watched.submit(500, 20, 50);
  watched.harness.run();
  const EngineStats stats = watched.harness.engine().stats();
  EXPECT_EQ(stats.step_time.count(), stats.num_steps);
  EXPECT_EQ(stats.step_time_error.count(), stats.num_steps);
  // The executor's model is of the fitted form, so after some steps there is hardly an error.
  EXPECT_LT(stats.step_time_error.sum() / static_cast<double>(stats.step_time_error.count()), 0.1);
  EXPECT_NEAR(stats.phase_s[static_cast<size_t>(StepPhase::execute)], stats.step_time.sum(), 1e-6);
}

// --- Classes.

TEST(LatencyClasses, AnInteractiveStreamKeepsItsGapBesideBulk) {
  EngineConfig config = serving(32);
  config.target_itl = milliseconds(25);
  Watched watched(config);
  watched.warm_up(4, 10);
  watched.harness.run();
  std::vector<RequestId> bulk;
  for (int32_t i = 0; i < 60; ++i) bulk.push_back(watched.submit(300, 100, 100 + i, LatencyClass::bulk));
  watched.harness.step(60);
  EXPECT_EQ(watched.harness.engine().stats().num_requests_running, 32);
  const RequestId chat = watched.submit(60, 100, 500, LatencyClass::interactive);
  while (!watched.harness.done[chat]) watched.harness.step();
  EXPECT_LT(watched.first_token_ms(chat), 300);  // it takes the slot of a bulk request
  for (double gap : watched.gaps_ms(chat)) EXPECT_LE(gap, 25 * 1.06);
  EXPECT_LT(watched.harness.answer(chat).finished->timings.itl_jitter, 0.4);
  watched.harness.run();
  for (RequestId id : bulk) EXPECT_EQ(watched.harness.answer(id).tokens.size(), 100u);
  watched.harness.expect_quiet();
}

TEST(LatencyClasses, BulkStreamsTakeWhatIsLeftAndNeverStop) {
  EngineConfig config = serving(64);
  config.target_itl = milliseconds(16);
  Watched watched(config);
  std::vector<RequestId> bulk;
  for (int32_t i = 0; i < 48; ++i) bulk.push_back(watched.submit(20, 400, 100 + i, LatencyClass::bulk));
  watched.harness.step(30);
  const RequestId chat = watched.submit(10, 300, 500, LatencyClass::interactive);
  watched.harness.step(5);
  std::map<RequestId, size_t> before;
  for (RequestId id : bulk) before[id] = watched.harness.answer(id).tokens.size();
  watched.steps.clear();
  watched.harness.step(100);
  for (size_t i = 1; i < watched.steps.size(); ++i) EXPECT_LE(watched.steps[i].ms, 16 * 1.06);
  EXPECT_GE(watched.harness.answer(chat).tokens.size(), 100u);  // one a step
  size_t least = 1000, most = 0;
  for (RequestId id : bulk) {
    const size_t num = watched.harness.answer(id).tokens.size() - before[id];
    least = std::min(least, num);
    most = std::max(most, num);
  }
  EXPECT_GE(least, 30u);        // about 20 of 48 fit into a step
  EXPECT_LE(most - least, 6u);  // who has fewer tokens comes first among equals
  watched.harness.run();
}

TEST(LatencyClasses, OnlyBulkMeansNoBound) {
  Watched watched(serving());
  for (int32_t i = 0; i < 8; ++i) watched.submit(20, 300, i, LatencyClass::bulk);
  watched.harness.step(20);
  watched.steps.clear();
  watched.submit(2000, 2, 50, LatencyClass::bulk);
  watched.harness.step(2);
  EXPECT_EQ(watched.steps.front().num_prompt_rows, 512 - 8);
}

TEST(LatencyClasses, TheOrderOfTheQueue) {
  Watched watched(serving(1));
  watched.submit(10, 30, 0);
  watched.harness.step(2);
  const RequestId bulk = watched.submit(10, 5, 1, LatencyClass::bulk);
  const RequestId standard = watched.submit(10, 5, 2);
  const RequestId interactive = watched.submit(10, 5, 3, LatencyClass::interactive);
  const EngineStats stats = [&] {
    watched.harness.step();
    return watched.harness.engine().stats();
  }();
  for (const ClassStats& each : stats.classes) EXPECT_EQ(each.num_waiting, 1);
  EXPECT_EQ(stats.classes[1].num_running, 1);
  watched.harness.run();
  EXPECT_LT(watched.harness.answer(interactive).steps.front(), watched.harness.answer(standard).steps.front());
  EXPECT_LT(watched.harness.answer(standard).steps.front(), watched.harness.answer(bulk).steps.front());
}

TEST(LatencyClasses, PriorityOrdersInsideAClass) {
  EngineConfig config = serving(1);
  config.policy = PolicyKind::priority;
  Watched watched(config);
  watched.submit(10, 30, 0);
  watched.harness.step(2);
  const auto submit = [&](LatencyClass latency_class, int32_t priority, int32_t name) {
    Request request = make_request(10, 5, name);
    request.latency_class = latency_class;
    request.priority = priority;
    return watched.harness.submit(std::move(request));
  };
  const RequestId urgent_bulk = submit(LatencyClass::bulk, -5, 1);
  const RequestId late = submit(LatencyClass::interactive, 3, 2);
  const RequestId early = submit(LatencyClass::interactive, 1, 3);
  watched.harness.run();
  EXPECT_LT(watched.harness.answer(early).steps.front(), watched.harness.answer(late).steps.front());
  EXPECT_LT(watched.harness.answer(late).steps.front(), watched.harness.answer(urgent_bulk).steps.front());
}

// Interactive requests without end, one always waiting: does the bulk one get in?
int served_before_bulk(std::chrono::milliseconds aging) {
  EngineConfig config = serving(1);
  config.priority_aging = aging;
  Watched watched(config);
  watched.submit(10, 5, 0, LatencyClass::interactive);
  watched.harness.step();
  const RequestId patient = watched.submit(10, 5, 1, LatencyClass::bulk);
  for (int32_t i = 0; i < 500; ++i) {
    watched.submit(10, 5, 2 + i, LatencyClass::interactive);
    while (watched.harness.engine().stats().classes[0].num_waiting > 1) watched.harness.step();
    watched.harness.step(2);
    if (!watched.harness.answer(patient).tokens.empty()) {
      watched.harness.run();
      return i;
    }
  }
  watched.harness.run();
  return 500;
}

TEST(LatencyClasses, WhoWaitedLongGetsATurn) {
  const int num = served_before_bulk(milliseconds(1000));
  EXPECT_GT(num, 20);  // 1 to 2 seconds of requests of 45 ms
  EXPECT_LT(num, 100);
  EXPECT_EQ(served_before_bulk(milliseconds(0)), 500);
}

TEST(LatencyClasses, WaitingBulkDoesNotOutrankNewInteractiveRequests) {
  EngineConfig config = serving(1);
  config.priority_aging = milliseconds(100);
  Watched watched(config);
  std::vector<RequestId> bulk;
  for (int32_t i = 0; i < 200; ++i) bulk.push_back(watched.submit(10, 3, i, LatencyClass::bulk));
  watched.harness.step(100);  // all that still wait have waited long
  int num_overtaken = 0;
  for (int32_t i = 0; i < 20; ++i) {
    const RequestId chat = watched.submit(10, 3, 500 + i, LatencyClass::interactive);
    const auto finished = [&] {
      return std::ranges::count_if(bulk, [&](RequestId id) { return watched.harness.done[id]; });
    };
    const auto before = finished();
    while (!watched.harness.done[chat]) watched.harness.step();
    num_overtaken += static_cast<int>(finished() - before);
  }
  EXPECT_LE(num_overtaken, 20 + 10);  // the one that runs at the moment, and now and then a turn
  watched.harness.run();
}

TEST(LatencyClasses, BulkGivesWayWhenBlocksRunOut) {
  EngineConfig config = pool_config(24, 16);
  Watched watched(config);
  const RequestId standard = watched.submit(60, 100, 1);
  const RequestId bulk = watched.submit(60, 100, 2, LatencyClass::bulk);
  const RequestId other = watched.submit(60, 100, 3);
  watched.harness.run();
  EXPECT_EQ(watched.harness.answer(standard).finished->timings.num_preemptions, 0);
  EXPECT_EQ(watched.harness.answer(other).finished->timings.num_preemptions, 0);
  EXPECT_GT(watched.harness.answer(bulk).finished->timings.num_preemptions, 0);
  for (RequestId id : {standard, bulk, other}) EXPECT_EQ(watched.harness.answer(id).tokens.size(), 100u);
}

TEST(LatencyClasses, AWaitingRequestTakesBlocksFromBulk) {
  Watched watched(pool_config(24, 16));
  const RequestId bulk = watched.submit(100, 200, 1, LatencyClass::bulk);
  const RequestId other = watched.submit(100, 200, 2, LatencyClass::bulk);
  watched.harness.step(20);
  const RequestId chat = watched.submit(200, 10, 3);
  watched.harness.step(5);
  EXPECT_FALSE(watched.harness.answer(chat).tokens.empty());
  watched.harness.run();
  for (RequestId id : {bulk, other}) EXPECT_EQ(watched.harness.answer(id).tokens.size(), 200u);
  watched.harness.expect_quiet();
}

// --- Jitter.

TEST(Jitter, IsTheDeviationOfTheGapsOverTheirMean) {
  Watched watched(serving());
  const RequestId stream = watched.submit(20, 60, 1, LatencyClass::interactive);
  watched.harness.step(20);
  watched.submit(400, 5, 2);
  watched.harness.run();
  const std::vector<double> gaps = watched.gaps_ms(stream);
  double mean = 0, square = 0;
  for (double gap : gaps) mean += gap / static_cast<double>(gaps.size());
  for (double gap : gaps) square += (gap - mean) * (gap - mean) / static_cast<double>(gaps.size());
  const RequestTimings& timings = watched.harness.answer(stream).finished->timings;
  EXPECT_GT(timings.itl_jitter, 0.05);
  EXPECT_NEAR(timings.itl_jitter, std::sqrt(square) / mean, 1e-6);
  EXPECT_NEAR(timings.mean_itl_ms, mean, 1e-6);
  const EngineStats stats = watched.harness.engine().stats();
  EXPECT_EQ(stats.classes[0].itl_jitter.count(), 1u);
  EXPECT_NEAR(stats.classes[0].itl_jitter.sum(), timings.itl_jitter, 1e-9);
  EXPECT_EQ(stats.classes[0].inter_token_latency.count(), 59u);
  EXPECT_EQ(stats.classes[0].time_to_first_token.count(), 1u);
  EXPECT_EQ(stats.classes[1].inter_token_latency.count(), 4u);
  EXPECT_EQ(stats.classes[2].time_to_first_token.count(), 0u);
}

}  // namespace
}  // namespace tidemill
