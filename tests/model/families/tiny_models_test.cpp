// Every family against transformers' float32 logits, in every way of cutting the prompt, from both kinds of file, on
// every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "compute/backend.h"
#include "model/loader.h"
#include "model/model_run.h"
#include "model/tiny_model.h"

namespace tidemill::testing {
namespace {

constexpr double tolerance = 1e-3;

using Parameters = std::tuple<std::string, TinyFormat, std::string>;

class TinyModels : public ::testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    const auto& [name, format, kernels] = GetParam();
    const auto folder = tiny_model_folder(name);
    if (!folder) GTEST_SKIP() << "needs tiny-models/" << name << ", which is absent";
    if (!machine_has(kernels)) GTEST_SKIP() << "this machine has no " << kernels;
    Result<std::unique_ptr<Backend>> backend = make_cpu_backend({.num_threads = 2, .kernels = kernels});
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    backend_ = std::move(*backend);
    Result<TinyModel> tiny = open_tiny(*folder, format);
    ASSERT_TRUE(tiny.ok()) << tiny.error().message;
    Result<std::unique_ptr<Model>> model = load_model(*tiny->weights, tiny->config, *backend_, {});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(*model);  // the file is closed from here on
    reference_ = read_reference(*folder);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  Reference reference_;
};

TEST_P(TinyModels, LogitsAgreeWithTheReference) {
  const std::vector<float> whole = run_alone(*model_, reference_.prompt, 1 << 20);
  ASSERT_EQ(whole.size(), reference_.logits.size());
  double worst = 0.0;
  for (size_t i = 0; i < whole.size(); ++i) {
    ASSERT_TRUE(std::isfinite(whole[i]));
    worst = std::max(worst, std::abs(static_cast<double>(whole[i]) - reference_.logits[i]));
  }
  RecordProperty("worst_logit_error", fmt::format("{:.2e}", worst));
  EXPECT_LT(worst, tolerance);

  EXPECT_TRUE(bit_equal(whole, run_alone(*model_, reference_.prompt, 7))) << "chunks of 7";
  EXPECT_TRUE(bit_equal(whole, run_alone(*model_, reference_.prompt, 1))) << "token by token";
  EXPECT_TRUE(bit_equal(whole, run_alone(*model_, reference_.prompt, 7, KvFormat::fp32, 16))) << "blocks of 16";
}

TEST_P(TinyModels, CompanyDoesNotChangeARow) {
  // Three sequences of different lengths and ages in each step, the middle one compared with itself alone.
  std::vector<std::vector<TokenId>> tokens(3, reference_.prompt);
  std::reverse(tokens[0].begin(), tokens[0].end());
  std::rotate(tokens[2].begin(), tokens[2].begin() + 11, tokens[2].end());
  const auto count = static_cast<int32_t>(reference_.prompt.size());
  const auto vocab = static_cast<size_t>(model_->info().vocab_size);
  const std::vector<float> alone = run_alone(*model_, tokens[1], 1 << 20);

  TestKv kv(model_->kv_layout(), KvFormat::fp32, 3, count, 32);
  model_->reserve(3 * count, 3 * count);
  const std::vector<std::vector<RowRange>> steps = {
      {{0, 0, 20}, {1, 0, 9}, {2, 0, 1}}, {{0, 20, 1}, {1, 9, 30}, {2, 1, 40}}, {{1, 39, 1}}, {{2, 41, 1}, {1, 40, 8}}};
  std::vector<float> in_company;
  for (const std::vector<RowRange>& step : steps) {
    const std::vector<float> logits = run_step(*model_, kv, tokens, step);
    size_t row = 0;
    for (const RowRange& range : step) {
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(row * vocab);
      if (range.sequence == 1) {
        in_company.insert(in_company.end(), first, first + static_cast<std::ptrdiff_t>(range.num_rows * vocab));
      }
      row += static_cast<size_t>(range.num_rows);
    }
  }
  EXPECT_TRUE(bit_equal(alone, in_company));
}

TEST_P(TinyModels, GreedyTokensAgree) {
  std::vector<TokenId> tokens = reference_.prompt;
  const auto prompt_size = static_cast<int32_t>(tokens.size());
  tokens.insert(tokens.end(), reference_.greedy.begin(), reference_.greedy.end());
  const std::vector<float> logits = run_alone(*model_, tokens, prompt_size);
  const auto vocab = static_cast<size_t>(model_->info().vocab_size);
  size_t compared = 0;
  for (size_t step = 0; step < reference_.greedy.size(); ++step) {
    if (reference_.margins[step] < tolerance) continue;
    const float* row = logits.data() + (prompt_size - 1 + step) * vocab;
    EXPECT_EQ(std::max_element(row, row + vocab) - row, reference_.greedy[step]) << "step " << step;
    ++compared;
  }
  EXPECT_GT(compared, 16u);
}

std::string name_of(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [name, format, kernels] = info.param;
  std::string text = name +
                     (format == TinyFormat::safetensors ? "_safetensors_"
                      : format == TinyFormat::gguf      ? "_gguf_"
                                                        : "_gguf_names_") +
                     kernels;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

const auto all_kernels = ::testing::Values("scalar", "avx2", "avx512", "amx");

INSTANTIATE_TEST_SUITE_P(Files, TinyModels,
                         ::testing::Combine(::testing::Values("llama", "llama-bias", "llama-head-dim",
                                                              "llama-rope-linear", "llama-rope-llama3",
                                                              "llama-rope-yarn", "llama-untied-mha", "mistral-window",
                                                              "qwen3", "gemma3", "granite", "olmo2", "smollm3"),
                                            ::testing::Values(TinyFormat::safetensors, TinyFormat::gguf), all_kernels),
                         name_of);

// These were not converted: the names, the fused tensors and Gemma's norms of a GGUF come from the hub's weights.
INSTANTIATE_TEST_SUITE_P(HubFiles, TinyModels,
                         ::testing::Combine(::testing::Values("qwen2", "gemma2", "phi3"),
                                            ::testing::Values(TinyFormat::safetensors, TinyFormat::gguf_names),
                                            all_kernels),
                         name_of);

}  // namespace
}  // namespace tidemill::testing
