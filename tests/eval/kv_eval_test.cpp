// An evaluation from texts and tasks to tables, JSON and a page, over a tiny model.
#include "eval/kv_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "eval/kv_eval_report.h"
#include "model/loader.h"
#include "model/model_files.h"
#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;

class KvEvalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = make_cpu_backend({.num_threads = 2});
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    auto files = open_model_files(testing::golden_path("tiny-models/llama"));
    ASSERT_TRUE(files.ok());
    auto config = read_model_config(*files);
    ASSERT_TRUE(config.ok());
    auto model = load_model(*files->weights, *config, *backend_, {});
    ASSERT_TRUE(model.ok());
    model_ = *std::move(model);
    auto tokenizer = make_tokenizer(files->tokenizer_json, files->tokenizer_config_json);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    tokenizer_ = *std::move(tokenizer);
    std::string text;
    for (int i = 0; i < 200; ++i) text += "The tide turns the wheel " + std::to_string(i * i) + " times. ";
    data_.texts = {{"facts.txt", TextKind::factual, text}, {"tale.txt", TextKind::creative, text.substr(100)}};
    EvalTask choice{.name = "choice", .kind = TextKind::factual, .items = {}, .num_items_in_file = 2};
    choice.items.push_back({{{"Water is", " wet."}, {"Water is", " made of stone and iron."}}, 0});
    choice.items.push_back({{{"One and one", " are three."}, {"One and one", " are two."}}, 1});
    EvalTask exact{.name = "exact", .kind = TextKind::creative, .items = {}, .num_items_in_file = 1};
    exact.items.push_back({{{"Once upon a", " time"}}, 0});
    data_.tasks = {choice, exact};
    options_.reference = {"fp32", {KvFormat::fp32}, true};
    options_.formats = {
        {"fp16", {KvFormat::fp16}, true}, {"int4", {KvFormat::int4}, false}, {"fp32", {KvFormat::fp32}, true}};
    options_.context_lengths = {32, 64};
    options_.text_tokens = 128;
    options_.speed_tokens = 48;
    options_.block_size_tokens = 16;
  }

  Result<KvEvalResult> evaluate() {
    return evaluate_kv({model_.get(), backend_.get(), tokenizer_.get()}, data_, options_);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  EvalData data_;
  KvEvalOptions options_;
};

TEST_F(KvEvalTest, EveryFormatIsMeasuredOnEveryTextLengthAndTask) {
  const Result<KvEvalResult> result = evaluate();
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->formats.size(), 3u);
  const FormatFigures &half = result->formats[0], &coarse = result->formats[1], &same = result->formats[2];
  ASSERT_EQ(half.texts.size(), 4u);
  // Two pieces of 64 tokens, of whose second halves the last row has no successor.
  EXPECT_EQ(half.texts[1].num_pieces, 2);
  EXPECT_EQ(half.texts[1].rows.count(), 2 * (32 - 1));
  EXPECT_EQ(half.rows_of(TextKind::factual).count(), 4 * 15 + 2 * 31);
  EXPECT_EQ(half.rows_of_length(32).count(), 2 * 4 * 15);
  EXPECT_EQ(same.all_rows().worst_kl(), 0);
  EXPECT_EQ(same.all_rows().perplexity(), same.all_rows().reference_perplexity());
  EXPECT_GT(coarse.all_rows().mean_kl(), half.all_rows().mean_kl());
  EXPECT_EQ(same.bytes_per_token, 2 * half.bytes_per_token);
  EXPECT_EQ(half.all_items().num_items, 3);
  EXPECT_EQ(half.items_of(TextKind::creative).num_items, 1);
  EXPECT_EQ(same.all_items().num_lost + same.all_items().num_won, 0);
  EXPECT_GT(half.speed.decode_tokens_per_s, 0);
}

TEST_F(KvEvalTest, AnotherRunFindsTheSame) {
  const Result<KvEvalResult> first = evaluate(), second = evaluate();
  ASSERT_TRUE(first.ok() && second.ok());
  for (size_t i = 0; i < first->formats.size(); ++i) {
    EXPECT_EQ(first->formats[i].all_rows().mean_kl(), second->formats[i].all_rows().mean_kl());
    EXPECT_EQ(first->formats[i].all_rows().worst_kl(), second->formats[i].all_rows().worst_kl());
  }
}

TEST_F(KvEvalTest, LevelsAreJudgedAgainstTheFloor) {
  const Result<KvEvalResult> result = evaluate();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(fidelity_of(result->formats[0], result->floor()), KvFidelity::exact);
  EXPECT_EQ(fidelity_of(result->formats[1], nullptr), std::nullopt);
  EXPECT_EQ(measured_fidelity({0.003, 0.02, 10.01}, {0.002, 0.01, 10}), KvFidelity::high);
  EXPECT_EQ(measured_fidelity({0.003, 0.04, 10.01}, {0.002, 0.01, 10}), KvFidelity::balanced);
  EXPECT_EQ(measured_fidelity({0.003, 0.02, 10.5}, {0.002, 0.01, 10}), KvFidelity::compact);
  EXPECT_EQ(measured_fidelity({0.3, 0.02, 10}, {0.002, 0.01, 10}), std::nullopt);
}

TEST_F(KvEvalTest, ReportsHoldEveryFigure) {
  const Result<KvEvalResult> result = evaluate();
  ASSERT_TRUE(result.ok());
  const std::string tables = kv_eval_tables(*result);
  for (const char* word : {"fp16", "int4", "facts.txt", "tale.txt", "creative", "exact"})
    EXPECT_THAT(tables, HasSubstr(word));
  const nlohmann::ordered_json json = json_of(*result);
  EXPECT_EQ(json["formats"].size(), 3u);
  EXPECT_EQ(json["formats"][1]["texts"].size(), 4u);
  EXPECT_EQ(json["formats"][1]["tasks"][0]["items"], 2);
  EXPECT_GT(json["formats"][1]["all"]["kl_mean"].get<double>(), 0);
  const std::string page = kv_eval_page(*result, "a <model> & more", json);
  EXPECT_THAT(page, HasSubstr("a &lt;model&gt; &amp; more"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("tidemill-kv-eval/1"));
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
}

TEST_F(KvEvalTest, AShortTextIsAnError) {
  options_.context_lengths = {100000};
  const Result<KvEvalResult> result = evaluate();
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("facts.txt"));
}

TEST_F(KvEvalTest, ItStopsWhenAsked) {
  int asked = 0;
  options_.should_stop = [&asked] { return ++asked > 2; };
  const Result<KvEvalResult> result = evaluate();
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->stopped);
}

}  // namespace
}  // namespace tidemill
