#include "engine/plan_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

// Every plan of a run with preemptions, choices, windows and encoded blocks, through text and back, drives a second
// executor that checks each read: nothing that matters is lost.
TEST(PlanJson, ARecordedRunReplays) {
  EngineConfig config = pool_config(16, 16);
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 40, .same_format = false, .window_tokens = 0},
                   {.tail_bytes = 50, .sealed_bytes = 50, .same_format = true, .window_tokens = 20}};
  config.extra_formats = {{.groups = config.groups, .tail_name = "t", .sealed_name = "s", .key = "s"}};
  std::vector<std::string> plans, results;
  SimulatedOptions options;
  options.observer = [&](const StepPlan& plan, const StepResult& result) {
    plans.push_back(plan_to_json(plan).dump());
    results.push_back(result_to_json(result).dump());
  };
  Harness harness(config, options);
  for (int32_t i = 0; i < 6; ++i) {
    Request request = make_request(50, 60, i);
    request.num_choices = 1 + i % 2;
    request.kv_format = static_cast<KvFormatId>(i % 2);
    request.prompt_logprobs = i % 3 - 1;
    request.sampling.logprobs = 2;
    request.sampling.temperature = 0.5f;
    request.sampling.logit_bias = {{3, -1.5f}};
    request.sampling.bad_words = {{1, 2}, {3}};
    harness.submit(request);
  }
  harness.run();
  EXPECT_GT(harness.engine().stats().num_preemptions, 0u);

  SimulatedExecutor replay(config, {});
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto plan = plan_from_json(nlohmann::json::parse(plans[i]));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan_to_json(*plan).dump(), plans[i]);
    EXPECT_EQ(result_to_json(replay.execute(*plan)).dump(), results[i]);
    const auto result = result_from_json(nlohmann::json::parse(results[i]));
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result_to_json(*result).dump(), results[i]);
  }
}

TEST(PlanJson, EveryFieldOfTheParametersTravels) {
  StepPlan plan;
  plan.step = 3;
  PlannedSequence& sequence = plan.sequences.emplace_back();
  SamplingParams& params = sequence.start.emplace().sampling;
  params.temperature = 0.25f;
  params.top_k = 5;
  params.top_p = 0.5f;
  params.min_p = 0.125f;
  params.repetition_penalty = 1.5f;
  params.presence_penalty = 0.5f;
  params.frequency_penalty = -0.5f;
  params.logit_bias = {{1, 2.0f}};
  params.allowed_token_ids = {1, 2};
  params.bad_words = {{4}};
  params.stop_token_ids = {5};
  params.end_token_ids = {6};
  params.ignore_eos = true;
  params.min_tokens = 7;
  params.logprobs = 0;
  params.seed = ~uint64_t{0};
  const auto read = plan_from_json(nlohmann::json::parse(plan_to_json(plan).dump()));
  ASSERT_TRUE(read.ok());
  const SamplingParams& back = read->sequences[0].start->sampling;
  EXPECT_EQ(back.temperature, params.temperature);
  EXPECT_EQ(back.top_k, params.top_k);
  EXPECT_EQ(back.top_p, params.top_p);
  EXPECT_EQ(back.min_p, params.min_p);
  EXPECT_EQ(back.repetition_penalty, params.repetition_penalty);
  EXPECT_EQ(back.presence_penalty, params.presence_penalty);
  EXPECT_EQ(back.frequency_penalty, params.frequency_penalty);
  EXPECT_EQ(back.logit_bias, params.logit_bias);
  EXPECT_EQ(back.allowed_token_ids, params.allowed_token_ids);
  EXPECT_EQ(back.bad_words, params.bad_words);
  EXPECT_EQ(back.stop_token_ids, params.stop_token_ids);
  EXPECT_EQ(back.end_token_ids, params.end_token_ids);
  EXPECT_EQ(back.ignore_eos, params.ignore_eos);
  EXPECT_EQ(back.min_tokens, params.min_tokens);
  EXPECT_EQ(back.logprobs, params.logprobs);
  EXPECT_EQ(back.seed, params.seed);
}

TEST(PlanJson, WhatIsNotAPlanIsRefused) {
  for (const char* text : {"[]", "3", R"({"step": -1})", R"({"step": "1"})", R"({"ended": 3})", R"({"ended": [1.5]})",
                           R"({"moves": [{"kind": "fly"}]})", R"({"moves": [{"kind": "copy", "from": [1]}]})",
                           R"({"sequences": [{"slot": 3000000000}]})", R"({"sequences": [{"draw": 1}]})",
                           R"({"sequences": [7]})", R"({"moves": [{"kind": "copy", "from": [256, 1]}]})"}) {
    const auto plan = plan_from_json(nlohmann::json::parse(text));
    ASSERT_FALSE(plan.ok()) << text;
    EXPECT_FALSE(plan.error().message.empty());
  }
}

}  // namespace
}  // namespace tidemill
