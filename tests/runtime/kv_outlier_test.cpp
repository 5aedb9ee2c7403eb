// Keys and values with outliers (H30): a model of the Qwen2 kind whose first layer has a large bias in a few channels,
// teacher-forced with each format beside an fp32 cache.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "model/loader.h"
#include "model/memory_weights.h"
#include "model/model_files.h"
#include "runtime/text_runner.h"
#include "test_data.h"

namespace tidemill {
namespace {

constexpr int32_t num_tokens = 512, head_dim = 16, num_heads = 4, num_kv_heads = 2;

struct Loss {
  double mean_kl = 0, same_top = 0, perplexity_ratio = 0;
};

class KvOutlierTest : public ::testing::Test {
 protected:
  using Change = std::function<void(testing::MemoryWeights&)>;

  void load(const Change& change) {
    auto backend = make_cpu_backend({.num_threads = 2});
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    auto files = open_model_files(testing::data_path("tiny-models/qwen2"));
    ASSERT_TRUE(files.ok()) << files.error().message;
    auto config = read_model_config(*files);
    ASSERT_TRUE(config.ok());
    const auto weights = testing::MemoryWeights::copy_of(*files->weights);
    change(*weights);
    auto model = load_model(*weights, *config, *backend_, {});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    tokens_.clear();
    for (int32_t i = 0; i < num_tokens; ++i) tokens_.push_back(2 + (i * 37 + i * i % 101 * 7) % 380);
  }

  // A bias on channels of one KV head's keys. What queries have there is so much smaller, so that scores stay as they
  // were; `partner`, since the rotary embedding turns a channel with the one half a head away.
  static Change biased_keys(float bias, std::vector<int32_t> kv_heads) {
    return [bias, kv_heads](testing::MemoryWeights& weights) {
      const std::string layer = "model.layers.0.self_attn.";
      auto keys = weights.floats(layer + "k_proj.bias"), queries = weights.floats(layer + "q_proj.weight"),
           query_bias = weights.floats(layer + "q_proj.bias");
      const size_t width = queries.size() / (num_heads * head_dim);
      for (const int32_t kv_head : kv_heads) {
        for (const int32_t channel : {2, 5}) {
          keys[static_cast<size_t>(kv_head * head_dim + channel)] = bias;
          for (int32_t head = 2 * kv_head; head < 2 * kv_head + 2; ++head) {
            for (const int32_t partner : {channel, channel + head_dim / 2}) {
              const auto row = static_cast<size_t>(head * head_dim + partner);
              query_bias[row] /= bias;
              for (size_t i = 0; i < width; ++i) queries[row * width + i] /= bias;
            }
          }
        }
      }
      weights.set_floats(layer + "k_proj.bias", keys);
      weights.set_floats(layer + "q_proj.bias", query_bias);
      weights.set_floats(layer + "q_proj.weight", queries);
    };
  }

  std::unique_ptr<TextRunner> runner(const KvFormats& formats) {
    auto made = TextRunner::make(*model_, {.formats = formats,
                                           .block_size_tokens = 32,
                                           .max_tokens = num_tokens,
                                           .max_rows = 64,
                                           .max_logit_rows = 64,
                                           .backend = backend_.get(),
                                           .kept_rows = &kept_});
    EXPECT_TRUE(made.ok());
    return *std::move(made);
  }

  Loss loss_of(KvFormat format);
  Loss loss(const KvFormats& formats) {
    auto reference = runner({KvFormat::fp32}), candidate = runner(formats);
    reference->start(tokens_);
    candidate->start(tokens_);
    Loss loss;
    double num = 0, logprob = 0;
    while (!reference->done()) {
      const int32_t rows = std::min(reference->next_rows(), candidate->next_rows());
      reference->advance(rows, RowUse::keep);
      for (const RowDivergence& row : candidate->advance(rows, RowUse::compare)) {
        EXPECT_TRUE(std::isfinite(row.kl)) << kv_formats_text(formats);
        loss.mean_kl += row.kl;
        loss.same_top += row.same_top();
        logprob += row.reference_logprob - row.logprob;
        ++num;
      }
    }
    loss.mean_kl /= num;
    loss.same_top /= num;
    loss.perplexity_ratio = std::exp(logprob / num);
    return loss;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  KeptRows kept_;
  std::vector<TokenId> tokens_;
};

// With what the server makes of a user's choice for the model as it is.
Loss KvOutlierTest::loss_of(KvFormat format) {
  KvFormatChoice choice;
  choice.both = format;
  const BiasedFormats biased = formats_for_biases(choice.formats(), false, model_->info().largest_key_biases);
  EXPECT_EQ(biased.warning, "") << kv_format_name(format);
  return loss(biased.formats);
}

TEST_F(KvOutlierTest, ChannelsWithALargeBiasLeaveTheOthersAlone) {
  TM_NEEDS_DATA("tiny-models/qwen2");
  const std::vector<std::pair<float, std::vector<int32_t>>> cases = {{600, {0, 1}}, {600, {1}}, {20000, {0, 1}}};
  for (const auto& [bias, kv_heads] : cases) {
    load(biased_keys(bias, kv_heads));
    const Loss int8 = loss_of(KvFormat::int8), int4 = loss_of(KvFormat::int4), fp8 = loss_of(KvFormat::fp8_e4m3);
    EXPECT_LE(int8.mean_kl, 0.02);
    EXPECT_GE(int8.same_top, 0.97);
    EXPECT_LE(fp8.mean_kl, 0.02);
    EXPECT_LE(int4.mean_kl, 0.2);
    for (const Loss& each : {int8, int4, fp8}) EXPECT_LE(each.perplexity_ratio, 1.5);
    // What it is about: without scales by channel nothing is left of the answer.
    EXPECT_GT(loss({{KvFormat::int8, KvScales::per_token, KvFormat::int8}}).mean_kl, 1);
  }
}

TEST_F(KvOutlierTest, AnOutlierAmongValuesCostsLittle) {
  TM_NEEDS_DATA("tiny-models/qwen2");
  load([](testing::MemoryWeights& weights) {
    const std::string name = "model.layers.0.self_attn.v_proj.bias";
    auto values = weights.floats(name);
    values[3] = 60;
    weights.set_floats(name, values);
  });
  for (const KvFormat format : {KvFormat::int8, KvFormat::q8_0, KvFormat::fp8_e4m3}) {
    const Loss found = loss_of(format);
    EXPECT_LE(found.mean_kl, 0.02);
    EXPECT_GE(found.same_top, 0.97);
  }
  for (const KvFormat format : {KvFormat::int4, KvFormat::q4_0, KvFormat::nvfp4})
    EXPECT_LE(loss_of(format).mean_kl, 0.2);
}

TEST(FormatsForBiases, SaysWhatCannotBeHelped) {
  const std::vector<float> biases = {3, 605, 0, 921};
  const auto made = [&](const KvFormatChoice& choice) {
    return formats_for_biases(choice.formats(), choice.key_scales.has_value(), biases);
  };
  KvFormatChoice choice;
  EXPECT_EQ(made(choice).warning, "") << "fp16 bears everything";
  choice.both = KvFormat::int8;
  EXPECT_EQ(made(choice).formats.sealed.keys.scales, KvScales::per_channel);
  EXPECT_EQ(made(choice).warning, "");
  choice.key_scales = KvScales::per_token;
  EXPECT_EQ(made(choice).formats.sealed.keys.scales, KvScales::per_token);
  EXPECT_EQ(
      made(choice).warning,
      "keys of layers 1, 3 have a bias of up to 921 in some channels, beside which codes of int8 by token lose the "
      "other channels: keep these layers (--kv-cache-dtype-skip-layers), or take int8 or int4 keys by channel, not "
      "rotated");
  choice.skipped_layers = {1, 3};
  EXPECT_EQ(made(choice).warning, "");
  choice = {};
  choice.both = KvFormat::int4;
  EXPECT_EQ(made(choice).warning, "");
  choice.rotate = true;
  EXPECT_NE(made(choice).warning.find("rotated codes"), std::string::npos);
  choice = {};
  choice.both = KvFormat::nvfp4;
  EXPECT_NE(made(choice).warning, "");
  EXPECT_EQ(formats_for_biases(choice.formats(), false, std::vector<float>{1, 2, 0}).warning, "");
}

}  // namespace
}  // namespace tidemill
