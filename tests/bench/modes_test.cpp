// The comparison of modes on a scripted executor: the same code as with a model, in a moment.
#include "bench/modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/test_server.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;
using Steps = std::vector<std::pair<int32_t, double>>;

TEST(LosslessSeconds, AddsPromptsAndSteps) {
  const Steps steps = {{1, 1.0}, {4, 2.5}};
  const std::vector<RequestLengths> one = {{100, 5}};
  EXPECT_DOUBLE_EQ(lossless_seconds(one, 1, 50, steps), 2 + 4);  // the first token comes with the prompt
  const std::vector<RequestLengths> four(4, RequestLengths{100, 5});
  EXPECT_DOUBLE_EQ(lossless_seconds(four, 1, 50, steps), 24);
  EXPECT_DOUBLE_EQ(lossless_seconds(four, 4, 50, steps), 8 + 4 * 2.5);
  EXPECT_DOUBLE_EQ(lossless_seconds(four, 2, 50, steps), 8 + 2 * 4 * 1.5);  // 1.5 s lies between 1 and 4
  EXPECT_DOUBLE_EQ(lossless_seconds(four, 9, 50, steps), 8 + 4 * 2.5);
}

TEST(LosslessSeconds, FillsPlacesAsTheyGetFree) {
  const Steps steps = {{1, 1.0}, {2, 1.0}};
  const std::vector<RequestLengths> requests = {{0, 11}, {0, 3}, {0, 3}};
  EXPECT_DOUBLE_EQ(lossless_seconds(requests, 2, 50, steps), 10);
  EXPECT_EQ(lossless_seconds({}, 2, 50, steps), 0);
  const std::vector<RequestLengths> only_first = {{100, 1}};
  EXPECT_DOUBLE_EQ(lossless_seconds(only_first, 2, 50, steps), 2);
}

// An executor that takes real time: as the scripted one, with a sleep in each step.
struct ScriptedModel {
  testing::Script script;
  std::unique_ptr<Tokenizer> tokenizer = testing::byte_tokenizer(false);
  BenchModel model;

  ScriptedModel() {
    script.say(std::string(500, 'x'));
    script.step_delay_us = 200;
    model.name = "scripted";
    model.num_threads = 2;
    model.vocab_size = 256;
    model.weight_bytes = 1000;
    model.tokenizer = tokenizer.get();
    model.config.groups = {{.tail_bytes = 3200, .sealed_bytes = 3200, .same_format = true, .window_tokens = 0}};
    model.config.kv_budget_bytes = 3200 * 1000;
    model.config.max_model_len_tokens = 512;
    model.config.max_num_seqs = 8;
    model.make_executor = [this] { return testing::script_executor(script); };
  }
};

std::vector<TokenRequest> some_traffic() {
  std::vector<TokenRequest> requests;
  for (int32_t i = 0; i < 16; ++i) {
    requests.push_back({std::vector<TokenId>(static_cast<size_t>(10 + 3 * i), i), 8 + i, "all"});
  }
  return requests;
}

TEST(EngineRun, AnswersEveryRequestWhole) {
  ScriptedModel scripted;
  const std::vector<TokenRequest> requests = some_traffic();
  EngineRunOptions options;
  options.concurrency = 4;
  const auto result = run_in_engine(scripted.model, scripted.model.config, requests, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->records.size(), 16u);
  for (const RequestRecord& record : result->records) {
    EXPECT_EQ(record.output_tokens, 8 + static_cast<int64_t>(record.index));
    EXPECT_EQ(record.error, "");
  }
  EXPECT_LE(result->mean_running, 4);
  EXPECT_GT(result->mean_running, 2);
  EXPECT_GT(result->waste(), 0);
  EXPECT_LT(result->waste(), 1);
}

TEST(EngineRun, NamesARequestThatDoesNotFit) {
  ScriptedModel scripted;
  const std::vector<TokenRequest> requests = {{{1, 2}, 3, "all"}, {std::vector<TokenId>(600, 1), 3, "all"}};
  const auto result = run_in_engine(scripted.model, scripted.model.config, requests, {});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("request 2 of the workload"));
  const std::vector<BenchRequest> texts = {{"abc", 3, "all", {}}, {std::string(510, 'a'), 3, "all", {}}};
  EXPECT_THAT(tokenize_workload(scripted.model, texts).error().message, HasSubstr("request 2 of the workload has 510"));
}

TEST(EngineRun, IsCutOffAtItsLimit) {
  ScriptedModel scripted;
  scripted.script.step_delay_us = 3000;
  EngineRunOptions options;
  options.concurrency = 2;
  options.limit_s = 0.02;
  const std::vector<TokenRequest> requests(4, TokenRequest{{1, 2, 3}, 400, "all"});
  const auto result = run_in_engine(scripted.model, scripted.model.config, requests, options);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->cut_off);
  EXPECT_EQ(result->records.size(), 2u);
  EXPECT_GT(result->records[0].output_tokens, 0);
  EXPECT_LT(result->records[0].output_tokens, 400);
}

TEST(Modes, ShowWhatEachIsWorth) {
  ScriptedModel scripted;
  ModesOptions options;
  options.concurrency = 8;
  options.price_per_hour = 1;
  options.lengths = {16, 64, 100000};
  const auto result = run_modes(scripted.model, some_traffic(), options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->modes.size(), 5u);
  EXPECT_GT(result->measured_ratio, 2);  // a step costs the same whatever is in it
  EXPECT_GT(result->implied_ratio, 2);
  EXPECT_EQ(result->rates.size(), 4u);
  EXPECT_EQ(result->lengths.size(), 2u);  // the third does not fit
  const ModeResult &reserved = result->modes[3], &on_demand = result->modes[4];
  EXPECT_GT(reserved.waste, on_demand.waste);
  const std::string table = modes_table(*result, options, 2);
  for (const char* word : {"KV cache off", "no batching", "static", "continuous", "3.8"})
    EXPECT_THAT(table, HasSubstr(word));
  const nlohmann::ordered_json json = json_of(*result, options, 2);
  EXPECT_EQ(json["modes"].size(), 5u);
  EXPECT_GT(json["modes"][0]["cost_per_million_output_tokens"].get<double>(), 0);
  EXPECT_EQ(json["continuous_over_unbatched"]["source_documents"], 3.8);
  EXPECT_THAT(modes_picture(*result, options, "x"), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace tidemill
