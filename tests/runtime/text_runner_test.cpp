// Rows kept by one cache and compared by another, over a real tiny model.
#include "runtime/text_runner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/loader.h"
#include "model/model_files.h"
#include "test_data.h"

namespace tidemill {
namespace {

class TextRunnerTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto backend = make_cpu_backend({.num_threads = 2});
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    auto files = open_model_files(testing::golden_path("tiny-models/" + GetParam()));
    ASSERT_TRUE(files.ok());
    auto config = read_model_config(*files);
    ASSERT_TRUE(config.ok());
    auto model = load_model(*files->weights, *config, *backend_, {});
    ASSERT_TRUE(model.ok());
    model_ = *std::move(model);
    for (int32_t i = 0; i < 150; ++i) tokens_.push_back((i * 37 + i * i) % 380);
  }

  std::unique_ptr<TextRunner> runner(KvFormat format, int32_t max_rows = 64) {
    auto made = TextRunner::make(*model_, {.formats = {format},
                                           .block_size_tokens = 16,
                                           .max_tokens = 200,
                                           .max_rows = max_rows,
                                           .max_logit_rows = 8,
                                           .backend = backend_.get(),
                                           .kept_rows = &kept_});
    EXPECT_TRUE(made.ok());
    return *std::move(made);
  }

  // Both through the text in lockstep; rows from `first` on are compared.
  std::vector<RowDivergence> compare(TextRunner& reference, TextRunner& candidate, int32_t step, int32_t first) {
    std::vector<RowDivergence> all;
    reference.start(tokens_);
    candidate.start(tokens_);
    while (!reference.done()) {
      const int32_t rows = std::min({step, reference.next_rows(), candidate.next_rows()});
      reference.advance(rows, RowUse::keep, first);
      const auto divergences = candidate.advance(rows, RowUse::compare, first);
      all.insert(all.end(), divergences.begin(), divergences.end());
    }
    EXPECT_TRUE(candidate.done());
    return all;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  KeptRows kept_;
  std::vector<TokenId> tokens_;
};

TEST_P(TextRunnerTest, EqualFormatsDivergeNowhere) {
  auto a = runner(KvFormat::fp32), b = runner(KvFormat::fp32);
  const std::vector<RowDivergence> rows = compare(*a, *b, 64, 0);
  ASSERT_EQ(rows.size(), tokens_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].kl, 0);
    EXPECT_TRUE(rows[i].same_top());
    EXPECT_EQ(rows[i].logprob, rows[i].reference_logprob);
    // The last row's following token is not known.
    EXPECT_EQ(rows[i].logprob < 0, i + 1 < rows.size());
  }
}

TEST_P(TextRunnerTest, AnotherFormatDivergesALittle) {
  auto reference = runner(KvFormat::fp32), candidate = runner(KvFormat::bf16);
  const std::vector<RowDivergence> rows = compare(*reference, *candidate, 64, 0);
  double total = 0;
  for (const RowDivergence& row : rows) total += row.kl;
  EXPECT_GT(total, 0);
  EXPECT_LT(total / static_cast<double>(rows.size()), 0.01);
}

TEST_P(TextRunnerTest, NeitherChunksNorEarlierTextsChangeADivergence) {
  auto reference = runner(KvFormat::fp32), candidate = runner(KvFormat::bf16);
  const std::vector<RowDivergence> whole = compare(*reference, *candidate, 64, 0);
  EXPECT_EQ(compare(*reference, *candidate, 1, 0), whole);
  EXPECT_EQ(compare(*reference, *candidate, 7, 0), whole);
  const std::vector<RowDivergence> rest = compare(*reference, *candidate, 64, 70);
  EXPECT_EQ(rest, std::vector<RowDivergence>(whole.begin() + 70, whole.end()));
}

INSTANTIATE_TEST_SUITE_P(Models, TextRunnerTest, ::testing::Values("llama", "gemma3", "qwen3"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace tidemill
