#include "model/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "compute/backend.h"
#include "compute/dequantize.h"
#include "model/families/family_registry.h"
#include "model/memory_weights.h"
#include "model/model_run.h"
#include "model/tiny_model.h"

namespace tidemill::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Loader : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = std::move(*make_cpu_backend({.num_threads = 1, .kernels = "scalar"}));
    open("llama");
  }

  void open(const std::string& name) {
    const auto folder = tiny_model_folder(name);
    ASSERT_TRUE(folder.has_value()) << name;
    Result<TinyModel> tiny = open_tiny(*folder, TinyFormat::safetensors);
    ASSERT_TRUE(tiny.ok()) << tiny.error().message;
    config_ = tiny->config;
    weights_ = MemoryWeights::copy_of(*tiny->weights);
  }

  Result<std::unique_ptr<Model>> load(const LoadOptions& options = {}) {
    return load_model(*weights_, config_, *backend_, options);
  }
  std::string refusal(const LoadOptions& options = {}) {
    Result<std::unique_ptr<Model>> model = load(options);
    return model ? "loaded" : model.error().message;
  }

  std::unique_ptr<Backend> backend_;
  ModelConfig config_;
  std::unique_ptr<MemoryWeights> weights_;
};

TEST_F(Loader, TellsWhatTheModelIs) {
  Result<std::unique_ptr<Model>> model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.family, "llama");
  EXPECT_EQ(info.vocab_size, 384);
  EXPECT_EQ(info.context_length, 512);
  EXPECT_EQ(info.num_layers, 4);
  EXPECT_EQ(info.width, 64);
  // Table, final norm, and per layer: two norms, queries, keys, values, output, gate, up, down.
  const int64_t layer = 2 * 64 + (64 + 32 + 32 + 64) * 64 + 3 * 96 * 64;
  EXPECT_EQ(info.num_parameters, 384 * 64 + 64 + 4 * layer);
  EXPECT_GT(info.weight_bytes, 0u);
}

TEST_F(Loader, AnUnknownFamilyIsRefusedWithTheKnownOnes) {
  for (const char* family : {"mixtral", "qwen3_moe", "gpt_oss", "deepseek_v2", "mamba"}) {
    config_.family = family;
    const std::string message = refusal();
    EXPECT_THAT(message, HasSubstr(std::string("\"") + family + "\""));
    for (const Family& known : all_families()) EXPECT_THAT(message, HasSubstr(std::string(known.name)));
  }
}

TEST_F(Loader, ExpertsUnderAKnownNameAreRefused) {
  config_.num_experts = 8;
  EXPECT_THAT(refusal(), HasSubstr("llama with 8 experts is not supported"));
}

TEST_F(Loader, HeadsThatNoKernelTakesAreRefused) {
  for (const int32_t size : {12, 1032}) {
    config_.head_size_k = config_.head_size_v = size;
    EXPECT_THAT(refusal(), HasSubstr("heads of " + std::to_string(size) + " numbers are not supported"));
  }
}

TEST_F(Loader, AMissingTensorIsNamed) {
  weights_->remove("model.layers.2.mlp.up_proj.weight");
  EXPECT_THAT(refusal(), HasSubstr("model.layers.2.mlp.up_proj.weight is missing"));
}

TEST_F(Loader, AMissingHeadIsNamedUnlessTied) {
  EXPECT_TRUE(load().ok());
  config_.tie_word_embeddings = false;
  EXPECT_THAT(refusal(), HasSubstr("lm_head.weight is missing"));
}

TEST_F(Loader, AWrongShapeIsNamedWithBothShapes) {
  weights_->tensor("model.layers.1.self_attn.k_proj.weight").shape = {64, 32};
  EXPECT_THAT(refusal(), HasSubstr("model.layers.1.self_attn.k_proj.weight has the shape [64, 32], but the "
                                   "configuration asks for [32, 64]"));
}

TEST_F(Loader, AVectorOfTheWrongSizeIsNamed) {
  weights_->tensor("model.norm.weight").shape = {8, 8};
  EXPECT_THAT(refusal(), HasSubstr("model.norm.weight has the shape [8, 8], but the configuration asks for [64]"));
}

TEST_F(Loader, TheTableMayHaveMoreRowsThanTheVocabularyButNotFewer) {
  config_.vocab_size = 380;
  Result<std::unique_ptr<Model>> model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<float> logits = run_alone(**model, {1, 2, 3}, 8);
  EXPECT_EQ(logits.size(), 3u * 380u);
  config_.vocab_size = 385;
  EXPECT_THAT(refusal(), HasSubstr("asks for [385, 64]"));
}

TEST_F(Loader, ATensorThatNobodyReadsIsRefused) {
  weights_->add_floats("model.layers.0.self_attn.q_norm.weight", {16}, std::vector<float>(16, 1.0f));
  EXPECT_THAT(refusal(), HasSubstr("model.layers.0.self_attn.q_norm.weight"));
}

TEST_F(Loader, HalfOfABiasIsRefused) {
  weights_->add_floats("model.layers.0.self_attn.q_proj.bias", {64}, std::vector<float>(64, 1.0f));
  EXPECT_THAT(refusal(), HasSubstr("model.layers.0.self_attn.k_proj.bias is missing"));
}

TEST_F(Loader, SizesOutOfAllProportionAreRefused) {
  config_.num_heads[1] = 1 << 20;
  EXPECT_THAT(refusal(), HasSubstr("layer 1"));
}

TEST_F(Loader, AnUnknownActivationIsNamed) {
  config_.activation = "mish";
  EXPECT_THAT(refusal(), HasSubstr("activation mish"));
}

TEST_F(Loader, ReportsProgressToTheEndAndReleasesWhatItRepacked) {
  std::vector<size_t> done;
  size_t total = 0;
  LoadOptions options;
  options.progress = [&](size_t bytes_done, size_t bytes_total) {
    done.push_back(bytes_done);
    total = bytes_total;
  };
  ASSERT_TRUE(load(options).ok());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), total);
  EXPECT_THAT(weights_->released(), ::testing::Contains("model.layers.3.mlp.down_proj.weight"));
}

// Root mean square of the difference, over that of b.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0.0, norm = 0.0;
  for (size_t i = 0; i < b.size(); ++i) {
    squares += std::pow(a[i] - b[i], 2.0);
    norm += std::pow(b[i], 2.0);
  }
  return std::sqrt(squares / norm);
}

TEST_F(Loader, QuantizesWhileLoading) {
  const Reference reference = read_reference(*tiny_model_folder("llama"));
  LoadOptions q8, q4;
  q8.quantization = DType::q8_0;
  q4.quantization = DType::q4_0;
  const auto plain = load(), eight = load(q8), four = load(q4);
  ASSERT_TRUE(plain.ok() && eight.ok() && four.ok());
  EXPECT_LT((*eight)->info().weight_bytes, (*plain)->info().weight_bytes / 2);
  EXPECT_LT((*four)->info().weight_bytes, (*eight)->info().weight_bytes);

  // The same weights rounded to 8 bits, but multiplied in float32: what is left is the rounding of activations.
  for (const TensorInfo& tensor : weights_->tensors()) {
    if (tensor.shape.size() != 2) continue;
    std::vector<float> values = weights_->floats(tensor.name);
    std::vector<std::byte> blocks(*bytes_of_values(DType::q8_0, tensor.num_values()));
    quantize_row_q8_0(values.data(), blocks.data(), tensor.num_values());
    dequantize_row(DType::q8_0, blocks.data(), values.data(), tensor.num_values());
    weights_->set_floats(tensor.name, values);
  }
  const auto rounded = load();
  ASSERT_TRUE(rounded.ok());
  const std::vector<float> logits8 = run_alone(**eight, reference.prompt, 64);
  const std::vector<float> logits_rounded = run_alone(**rounded, reference.prompt, 64);
  const std::vector<float> logits4 = run_alone(**four, reference.prompt, 64);
  const double far8 = distance(logits8, reference.logits), far4 = distance(logits4, reference.logits);
  EXPECT_LT(distance(logits8, logits_rounded), 0.06);
  EXPECT_GT(far8, 1e-4);
  EXPECT_LT(far8, 0.09);
  EXPECT_GT(far4, 2 * far8);
  EXPECT_LT(far4, 0.8);
}

TEST_F(Loader, OnlyTwoTypesCanBeQuantizedTo) {
  LoadOptions options;
  options.quantization = DType::q6_k;
  EXPECT_THAT(refusal(options), HasSubstr("Q8_0 or Q4_0, not to Q6_K"));
}

TEST_F(Loader, LayersOfEqualNeedsShareAGroup) {
  open("gemma3");
  Result<std::unique_ptr<Model>> model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<KvLayerGroup>& groups = (*model)->kv_layout().groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].window, 16);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(groups[1].window, 0);
  EXPECT_THAT(groups[1].layers, ElementsAre(3));
  EXPECT_EQ(groups[0].shape.num_kv_heads, 2);
  EXPECT_EQ(groups[0].shape.head_dim, 32);
  EXPECT_EQ(groups[0].shape.value_dim, 32);
}

TEST_F(Loader, AWindowThatNoSequenceOutgrowsIsNone) {
  open("gemma3");
  config_.sliding_window = 512;
  Result<std::unique_ptr<Model>> model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->kv_layout().groups.size(), 1u);
  LoadOptions options;
  options.longest_sequence = 1024;
  EXPECT_EQ((*load(options))->kv_layout().groups.size(), 2u);
}

}  // namespace
}  // namespace tidemill::testing
