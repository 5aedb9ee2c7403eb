// The two real models, quantized as published, against float32 references of the same weights: the reference's tokens
// are fed, and wherever it was sure (a margin of 0.5 or more) the same token must come out best.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compute/backend.h"
#include "model/loader.h"
#include "model/model_files.h"
#include "model/model_run.h"
#include "test_data.h"

namespace tidemill::testing {
namespace {

constexpr double sure_margin = 0.5;

struct Agreement {
  int num_sure = 0;
  int num_sure_equal = 0;
  int num_steps = 0;
  int num_equal = 0;
  double worst_logprob_error = 0.0;  // of the reference's token
};

double logprob_of(const float* row, size_t vocab, size_t token) {
  const float largest = *std::max_element(row, row + vocab);
  double sum = 0.0;
  for (size_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i]) - largest);
  return row[token] - largest - std::log(sum);
}

void compare(Model& model, const nlohmann::json& row, Agreement& agreement) {
  auto tokens = row["prompt_ids"].get<std::vector<TokenId>>();
  const size_t prompt_size = tokens.size();
  for (const auto& step : row["steps"]) tokens.push_back(step["token"].get<TokenId>());
  const std::vector<float> logits = run_alone(model, tokens, 32, KvFormat::fp16);
  const auto vocab = static_cast<size_t>(model.info().vocab_size);
  for (size_t step = 0; step < row["steps"].size(); ++step) {
    const float* values = logits.data() + (prompt_size - 1 + step) * vocab;
    const auto best = static_cast<TokenId>(std::max_element(values, values + vocab) - values);
    const TokenId expected = tokens[prompt_size + step];
    const bool equal = best == expected;
    ++agreement.num_steps;
    agreement.num_equal += equal;
    const double reference = row["steps"][step]["top"][0][1].get<double>();
    const double found = logprob_of(values, vocab, static_cast<size_t>(expected));
    agreement.worst_logprob_error = std::max(agreement.worst_logprob_error, std::abs(found - reference));
    if (row["steps"][step]["margin"].get<double>() < sure_margin) continue;
    ++agreement.num_sure;
    agreement.num_sure_equal += equal;
    EXPECT_EQ(best, expected) << "step " << step << " of \"" << row["prompt"].get<std::string>() << "\"";
  }
}

void expect_agreement(const std::string& model_file, const std::string& reference_file, const std::string& kernels) {
  const std::filesystem::path path = cached_model(model_file);
  TM_NEEDS_FILE(path);
  TM_NEEDS_DATA("reference/" + reference_file);
  if (!machine_has(kernels)) GTEST_SKIP() << "this machine has no " << kernels;
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend({.num_threads = 2, .kernels = kernels});
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  Result<ModelFiles> files = open_model_files(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  Result<ModelConfig> config = read_model_config(*files);
  ASSERT_TRUE(config.ok()) << config.error().message;
  Result<std::unique_ptr<Model>> model = load_model(*files->weights, *config, **backend, {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  files->weights.reset();

  const auto reference = nlohmann::json::parse(read_file(data_path("reference/" + reference_file)));
  Agreement agreement;
  for (const auto& row : reference["rows"]) compare(**model, row, agreement);
  ::testing::Test::RecordProperty("sure_steps_equal",
                                  fmt::format("{}/{}", agreement.num_sure_equal, agreement.num_sure));
  ::testing::Test::RecordProperty("steps_equal", fmt::format("{}/{}", agreement.num_equal, agreement.num_steps));
  ::testing::Test::RecordProperty("worst_logprob_error", fmt::format("{:.3f}", agreement.worst_logprob_error));
  EXPECT_GT(agreement.num_sure, 100);
  EXPECT_GT(agreement.num_equal, agreement.num_steps * 9 / 10);
}

class RealModels : public ::testing::TestWithParam<std::string> {};

TEST_P(RealModels, SmolLm2GivesTheReferencesTokens) {
  expect_agreement("smollm2-135m-instruct-q4_1.gguf", "smollm2-handed.json", GetParam());
}

TEST_P(RealModels, Gemma3GivesTheReferencesTokens) {
  expect_agreement("gemma-3-270m-q4_k_m.gguf", "gemma3-handed.json", GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kernels, RealModels, ::testing::Values("avx2", "avx512", "amx"),
                         [](const ::testing::TestParamInfo<std::string>& info) { return info.param; });

}  // namespace
}  // namespace tidemill::testing
