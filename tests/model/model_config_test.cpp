#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "gguf_writer.h"
#include "model/gguf_file.h"
#include "test_data.h"

namespace tidemill {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::as_span;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::Gguf;
using testing::gguf_array;
using testing::gguf_strings;
using testing::GgufWriter;
using ::testing::HasSubstr;
using ::testing::Matcher;
using testing::raw;
using testing::tiny_gguf;

// Reads, then checks against the tensors.
Result<ModelConfig> read(const GgufWriter& writer) {
  testing::TemporaryFolder folder;
  auto file = open_gguf(folder.write("m.gguf", writer.bytes()));
  if (!file) return file.error();
  auto config = read_gguf_config((*file)->metadata());
  if (!config) return config;
  if (auto checked = check_config_against_weights(*config, **file); !checked) return checked.error();
  return config;
}

void expect_refused(const GgufWriter& writer, const Matcher<std::string>& message) {
  auto config = read(writer);
  ASSERT_FALSE(config.ok()) << "accepted";
  EXPECT_THAT(config.error().message, message);
}

TEST(ModelConfigGguf, TinyModel) {
  auto config = read(tiny_gguf());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->source, ConfigSource::gguf);
  EXPECT_EQ(config->family, "llama");
  EXPECT_EQ(config->name, "tiny-A");
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->vocab_size, 260);
  EXPECT_EQ(config->context_length, 256);
  EXPECT_THAT(config->num_heads, ElementsAre(4, 4));
  EXPECT_THAT(config->num_kv_heads, ElementsAre(2, 2));
  EXPECT_THAT(config->feed_forward_size, ElementsAre(96, 96));
  EXPECT_EQ(config->head_size_k, 16);
  EXPECT_EQ(config->head_size_v, 16);
  EXPECT_EQ(config->rope_dimensions, 16);
  EXPECT_NEAR(config->norm_epsilon, 1e-6, 1e-12);
  EXPECT_EQ(config->rope.base, 10000.0);
  EXPECT_EQ(config->rope.scaling.kind, RopeScalingKind::none);
  EXPECT_FALSE(config->rope_sliding);
  EXPECT_FALSE(config->sliding_window);
  EXPECT_FALSE(config->tie_word_embeddings);
}

TEST(ModelConfigGguf, OtherIntegerWidthsAreAccepted) {
  GgufWriter writer = tiny_gguf();
  writer.set("llama.block_count", Gguf::u8, raw<uint8_t>(2)).set("llama.embedding_length", Gguf::i64, raw<int64_t>(64));
  writer.set("llama.attention.head_count", Gguf::u16, raw<uint16_t>(4));
  writer.set("llama.attention.head_count_kv", Gguf::array, gguf_array<int32_t>(Gguf::i32, {2, 4}));
  auto config = read(writer);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_THAT(config->num_kv_heads, ElementsAre(2, 4));
}

TEST(ModelConfigGguf, FatalValuesAreRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  auto with = [](const std::string& key, uint32_t value) { return tiny_gguf().u32("llama." + key, value); };
  auto with_float = [](const std::string& key, float value) { return tiny_gguf().f32("llama." + key, value); };
  auto names = [](const std::string& key, const std::string& found) {
    return AllOf(HasSubstr("'llama." + key + "'"), HasSubstr(found));
  };
  expect_refused(with("attention.head_count", 0), names("attention.head_count", "is 0, but must be 1"));
  expect_refused(with("attention.head_count_kv", 0), names("attention.head_count_kv", "is 0"));
  expect_refused(with("attention.head_count_kv", 3), AllOf(HasSubstr("4 attention heads"), HasSubstr("3 heads")));
  expect_refused(with("attention.head_count_kv", 8), HasSubstr("8 heads"));
  expect_refused(with("attention.head_count", 7), HasSubstr("64, is not a multiple of its 7"));
  expect_refused(with("block_count", 0), names("block_count", "0"));
  expect_refused(with("block_count", 0x80000000), names("block_count", "2147483648, but must be 1 to 4096"));
  expect_refused(with("context_length", 0), names("context_length", "0"));
  expect_refused(with("embedding_length", 0), names("embedding_length", "0"));
  expect_refused(with("feed_forward_length", 0), names("feed_forward_length", "0"));
  expect_refused(with("attention.key_length", 0), names("attention.key_length", "0"));
  expect_refused(with("rope.dimension_count", 15), HasSubstr("15 dimensions"));
  expect_refused(with("rope.dimension_count", 18), AllOf(HasSubstr("18 dimensions"), HasSubstr("to 16")));
  expect_refused(with_float("rope.freq_base", 0), names("rope.freq_base", "is 0"));
  expect_refused(with_float("rope.freq_base", nan), names("rope.freq_base", "nan"));
  expect_refused(with_float("rope.freq_base", infinity), names("rope.freq_base", "inf"));
  expect_refused(with_float("attention.layer_norm_rms_epsilon", nan), names("attention.layer_norm_rms_epsilon", "nan"));
  expect_refused(with_float("attention.layer_norm_rms_epsilon", 0), names("attention.layer_norm_rms_epsilon", "is 0"));
  expect_refused(with_float("attn_logit_softcapping", nan), names("attn_logit_softcapping", "nan"));
  expect_refused(with_float("logit_scale", nan), names("logit_scale", "nan"));
  expect_refused(with_float("rope.scaling.factor", -1), names("rope.scaling.factor", "-1"));
}

TEST(ModelConfigGguf, WrongTypesAndMissingKeysAreRefused) {
  expect_refused(tiny_gguf().text("llama.block_count", "2"),
                 AllOf(HasSubstr("'llama.block_count' must be an integer"), HasSubstr("a string")));
  expect_refused(tiny_gguf().u32("general.architecture", 1), HasSubstr("'general.architecture' must be a string"));
  expect_refused(tiny_gguf().f32("llama.embedding_length", 64), HasSubstr("must be an integer"));
  expect_refused(tiny_gguf().set("llama.block_count", Gguf::array, gguf_array<uint32_t>(Gguf::u32, {2})),
                 HasSubstr("an array"));
  expect_refused(tiny_gguf().set("llama.attention.head_count", Gguf::array, gguf_array<float>(Gguf::f32, {4, 4})),
                 AllOf(HasSubstr("array of integers"), HasSubstr("f32")));
  expect_refused(tiny_gguf().set("llama.attention.head_count", Gguf::array, gguf_array<uint32_t>(Gguf::u32, {4})),
                 AllOf(HasSubstr("1 elements"), HasSubstr("2 layers")));
  for (const char* key : {"general.architecture", "llama.block_count", "llama.attention.head_count",
                          "llama.feed_forward_length", "llama.attention.layer_norm_rms_epsilon"}) {
    GgufWriter writer = tiny_gguf();
    writer.remove(key);
    expect_refused(writer, AllOf(HasSubstr(key), HasSubstr("missing")));
  }
}

TEST(ModelConfigGguf, TensorsMustFitTheConfiguration) {
  expect_refused(tiny_gguf().u32("llama.block_count", 3), AllOf(HasSubstr("3 layers"), HasSubstr("blk.2.")));
  GgufWriter first_only = tiny_gguf();
  std::erase_if(first_only.tensors, [](const auto& tensor) { return tensor.name.starts_with("blk.1."); });
  expect_refused(first_only, AllOf(HasSubstr("2 layers"), HasSubstr("blk.1.")));
  expect_refused(tiny_gguf().u32("llama.embedding_length", 128),
                 AllOf(HasSubstr("token_embd.weight"), HasSubstr("[260, 64]"), HasSubstr("128")));
  std::vector<std::string> tokens;
  for (int i = 0; i < 261; ++i) tokens.push_back("t" + std::to_string(i));
  expect_refused(tiny_gguf().set("tokenizer.ggml.tokens", Gguf::array, gguf_strings(tokens)),
                 AllOf(HasSubstr("260 rows"), HasSubstr("261 tokens")));
  expect_refused(tiny_gguf().u32("llama.vocab_size", 300), HasSubstr("300 tokens"));
  GgufWriter none;
  none.keys = tiny_gguf().keys;
  expect_refused(none, HasSubstr("embedding table is missing"));
}

TEST(ModelConfigGguf, RotationAndWindows) {
  GgufWriter writer = tiny_gguf();
  writer.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4);
  writer.u32("llama.rope.scaling.original_context_length", 64).f32("llama.rope.scaling.yarn_beta_fast", 16);
  writer.u32("llama.attention.sliding_window", 16).f32("llama.rope.freq_base_swa", 500);
  writer.set("llama.attention.sliding_window_pattern", Gguf::array, gguf_array<uint8_t>(Gguf::boolean, {1, 0}));
  auto config = read(writer);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope.scaling.kind, RopeScalingKind::yarn);
  EXPECT_EQ(config->rope.scaling.factor, 4);
  EXPECT_EQ(config->rope.scaling.original_context_length, 64);
  EXPECT_EQ(config->rope.scaling.beta_fast, 16);
  ASSERT_TRUE(config->rope_sliding);
  EXPECT_EQ(config->rope_sliding->base, 500);
  EXPECT_EQ(config->sliding_window, 16);
  EXPECT_THAT(config->layer_is_sliding, ElementsAre(true, false));
  writer.u32("llama.attention.sliding_window", 0).text("llama.rope.scaling.type", "none");
  EXPECT_FALSE(read(writer)->sliding_window);
  expect_refused(writer.text("llama.rope.scaling.type", "cubic"), HasSubstr("cubic"));
}

json tiny_json() {
  return {{"model_type", "llama"},    {"num_hidden_layers", 2},  {"hidden_size", 64},
          {"num_attention_heads", 4}, {"intermediate_size", 96}, {"vocab_size", 260},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 500000.0},  {"max_position_embeddings", 256},
          {"num_key_value_heads", 2}, {"hidden_act", "silu"},    {"tie_word_embeddings", true},
          {"eos_token_id", {3, 4}},   {"bos_token_id", 1},       {"rope_scaling", nullptr}};
}

ModelConfig read_ok(const json& config_json) {
  auto config = read_json_config(config_json.dump());
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig();
}

void expect_json_refused(const std::string& text, const Matcher<std::string>& message) {
  auto config = read_json_config(text);
  ASSERT_FALSE(config.ok()) << text.substr(0, 200);
  EXPECT_THAT(config.error().message, message);
}

void expect_refused_with(const std::string& key, const json& value, const Matcher<std::string>& message) {
  json object = tiny_json();
  object[key] = value;
  expect_json_refused(object.dump(), message);
}

TEST(ModelConfigJson, OldForm) {
  const ModelConfig config = read_ok(tiny_json());
  EXPECT_EQ(config.source, ConfigSource::hugging_face);
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.vocab_size, 260);
  EXPECT_THAT(config.num_kv_heads, ElementsAre(2, 2));
  EXPECT_EQ(config.head_size_k, 16);
  EXPECT_EQ(config.rope.base, 500000.0);
  EXPECT_EQ(config.activation, "silu");
  EXPECT_EQ(config.tie_word_embeddings, true);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(3, 4));

  json object = tiny_json();
  object["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  const RopeScaling llama3 = read_ok(object).rope.scaling;
  EXPECT_EQ(llama3.kind, RopeScalingKind::llama3);
  EXPECT_EQ(llama3.factor, 8);
  EXPECT_EQ(llama3.original_context_length, 64);

  object["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_EQ(read_ok(object).rope.scaling.kind, RopeScalingKind::linear);
  object.erase("num_key_value_heads");
  EXPECT_THAT(read_ok(object).num_kv_heads, ElementsAre(4, 4));
}

TEST(ModelConfigJson, LongropeFactors) {
  json object = tiny_json();
  object["rope_scaling"] = {{"type", "su"}, {"short_factor", json::array()}, {"long_factor", json::array()}};
  object["original_max_position_embeddings"] = 128;
  for (int i = 0; i < 8; ++i) {
    object["rope_scaling"]["short_factor"].push_back(1.0 + i);
    object["rope_scaling"]["long_factor"].push_back(2);
  }
  const ModelConfig config = read_ok(object);
  EXPECT_EQ(config.rope.scaling.kind, RopeScalingKind::longrope);
  EXPECT_EQ(config.rope.scaling.original_context_length, 128);
  EXPECT_EQ(config.rope.scaling.short_factor.back(), 8.0);
  object["rope_scaling"]["long_factor"].push_back(1);
  expect_json_refused(object.dump(), HasSubstr("9 longrope factors"));
  object["rope_scaling"]["long_factor"] = {1, 1, 1, 1, 1, 1, 1, 0};
  expect_json_refused(object.dump(), HasSubstr("long_factor"));
}

TEST(ModelConfigJson, GemmaPartsAndDefaults) {
  // As published for a model with images: what equals the class's default is left out.
  const json object = {{"model_type", "gemma3"},
                       {"eos_token_id", {1, 106}},
                       {"text_config",
                        {{"model_type", "gemma3_text"},
                         {"hidden_size", 2560},
                         {"intermediate_size", 10240},
                         {"num_hidden_layers", 34},
                         {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                         {"sliding_window", 1024}}}};
  const ModelConfig config = read_ok(object);
  EXPECT_EQ(config.family, "gemma3_text");
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_THAT(config.num_heads, Each(8));
  EXPECT_THAT(config.num_kv_heads, Each(4));
  EXPECT_EQ(config.head_size_k, 256);
  EXPECT_EQ(config.rope.base, 1e6);
  EXPECT_EQ(config.rope.scaling.factor, 8);
  ASSERT_TRUE(config.rope_sliding);
  EXPECT_EQ(config.rope_sliding->base, 1e4);
  EXPECT_EQ(config.rope_sliding->scaling.kind, RopeScalingKind::none);
  EXPECT_EQ(config.sliding_window_pattern, 6);
  EXPECT_EQ(config.query_pre_attn_scalar, 256);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1, 106));
}

TEST(ModelConfigJson, PartialRotation) {
  json object = tiny_json();
  object["partial_rotary_factor"] = 0.75;
  EXPECT_EQ(read_ok(object).rope_dimensions, 12);
  object["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7.0}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(read_ok(object).rope_dimensions, 8);
  EXPECT_EQ(read_ok(object).rope.base, 7.0);
  object["rope_parameters"]["partial_rotary_factor"] = 0.05;
  expect_json_refused(object.dump(), HasSubstr("0 dimensions"));
}

TEST(ModelConfigJson, LayersWithoutRotation) {
  json object = tiny_json();
  object["no_rope_layers"] = {1, 0};
  EXPECT_THAT(read_ok(object).layer_has_rope, ElementsAre(true, false));
  object["no_rope_layers"] = json::array();
  object["no_rope_layer_interval"] = 2;
  EXPECT_THAT(read_ok(object).layer_has_rope, ElementsAre(true, false));
  object["no_rope_layers"] = {1};
  expect_json_refused(object.dump(), AllOf(HasSubstr("no_rope_layers"), HasSubstr("2 layers")));
}

TEST(ModelConfigJson, FatalValuesAreRefused) {
  expect_refused_with("num_hidden_layers", 0, HasSubstr("'num_hidden_layers' in config.json is 0"));
  expect_refused_with("num_hidden_layers", "2", AllOf(HasSubstr("must be an integer"), HasSubstr("\"2\"")));
  expect_refused_with("num_hidden_layers", 2.5, HasSubstr("2.5"));
  expect_refused_with("num_hidden_layers", 18446744073709551615u, HasSubstr("18446744073709551615"));
  expect_refused_with("num_attention_heads", 0, HasSubstr("num_attention_heads"));
  expect_refused_with("num_key_value_heads", 3, HasSubstr("3 heads"));
  expect_refused_with("hidden_size", -64, HasSubstr("-64"));
  expect_refused_with("head_dim", 0, HasSubstr("head_dim"));
  expect_refused_with("rope_theta", 0, HasSubstr("rope_theta"));
  expect_refused_with("rope_theta", "10", HasSubstr("must be a number"));
  expect_refused_with("rms_norm_eps", 0, HasSubstr("rms_norm_eps"));
  expect_refused_with("rope_scaling", {{"type", "spiral"}, {"factor", 2}}, HasSubstr("'spiral'"));
  expect_refused_with("rope_scaling", {{"type", "linear"}, {"factor", 0}}, HasSubstr("factor"));
  expect_refused_with("layer_types", {"full_attention"}, AllOf(HasSubstr("layer_types"), HasSubstr("1 elements")));
  expect_refused_with("layer_types", {"full_attention", "linear_attention"}, HasSubstr("linear_attention"));
  expect_refused_with("residual_multiplier", 0, HasSubstr("residual_multiplier"));
  expect_refused_with("eos_token_id", 260, AllOf(HasSubstr("eos_token_id"), HasSubstr("260 tokens")));
  expect_refused_with("intermediate_size", nullptr, HasSubstr("intermediate_size"));
  for (const char* key : {"model_type", "vocab_size", "hidden_size", "max_position_embeddings"}) {
    json object = tiny_json();
    object.erase(key);
    expect_json_refused(object.dump(), AllOf(HasSubstr(key), HasSubstr("missing")));
  }
}

TEST(ModelConfigJson, WhatIsNotAConfigIsRefused) {
  expect_json_refused("", HasSubstr("not valid JSON"));
  expect_json_refused("[]", HasSubstr("object"));
  expect_json_refused("{\"rms_norm_eps\": NaN}", HasSubstr("not valid JSON"));
  expect_json_refused("{\"rms_norm_eps\": 1e999}", HasSubstr("not valid JSON"));
  expect_json_refused("{\"a\xFF\": 1}", HasSubstr("not valid JSON"));
  expect_json_refused(std::string(100000, '['), HasSubstr("100000 deep"));
}

// What every kind of the tiny models has in common; the GGUF beside it must say the same.
void check_tiny(const std::string& kind, const ModelConfig& config) {
  EXPECT_EQ(config.num_layers, 4) << kind;
  EXPECT_EQ(config.hidden_size, 64) << kind;
  EXPECT_EQ(config.vocab_size, 384) << kind;
  EXPECT_EQ(config.context_length, 512) << kind;
  EXPECT_THAT(config.num_heads, Each(4)) << kind;
}

TEST(ModelConfigData, TinyModelsReadAlikeFromBothKindsOfFile) {
  TM_NEEDS_DATA("tiny-models");
  int pairs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("tiny-models"))) {
    if (!entry.is_directory()) continue;
    const std::string kind = entry.path().filename();
    auto hub = read_json_config(testing::read_file(entry.path() / "config.json"));
    ASSERT_TRUE(hub.ok()) << kind << ": " << hub.error().message;
    check_tiny(kind, *hub);
    if (!std::filesystem::exists(entry.path() / "model.gguf")) continue;
    auto file = open_gguf(entry.path() / "model.gguf");
    ASSERT_TRUE(file.ok()) << kind;
    auto gguf = read_gguf_config((*file)->metadata());
    ASSERT_TRUE(gguf.ok()) << kind << ": " << gguf.error().message;
    check_tiny(kind, *gguf);
    EXPECT_TRUE(check_config_against_weights(*gguf, **file).ok());
    EXPECT_FLOAT_EQ(gguf->norm_epsilon, hub->norm_epsilon) << kind;
    EXPECT_EQ(gguf->rope.base, hub->rope.base) << kind;
    EXPECT_EQ(gguf->rope_dimensions, hub->rope_dimensions) << kind;
    EXPECT_EQ(gguf->rope.scaling.factor == 1,
              hub->rope.scaling.factor == 1 || hub->rope.scaling.kind == RopeScalingKind::llama3)
        << kind;
    EXPECT_EQ(gguf->attention_scale.has_value(), hub->attention_scale.has_value()) << kind;
    if (!kind.ends_with("-mla")) {
      EXPECT_EQ(gguf->num_kv_heads, hub->num_kv_heads) << kind;
      EXPECT_EQ(gguf->head_size_k, hub->head_size_k) << kind;
    }
    ++pairs;
  }
  EXPECT_EQ(pairs, 18);
}

TEST(ModelConfigData, TinyModelsOwnFields) {
  TM_NEEDS_DATA("tiny-models");
  auto hub = [](const std::string& kind) {
    return *read_json_config(testing::read_file(testing::data_path("tiny-models/" + kind + "/config.json")));
  };
  const ModelConfig gemma3 = hub("gemma3");
  EXPECT_EQ(gemma3.family, "gemma3_text");
  EXPECT_EQ(gemma3.rope.base, 1e6);
  ASSERT_TRUE(gemma3.rope_sliding);
  EXPECT_EQ(gemma3.rope_sliding->base, 1e4);
  EXPECT_THAT(gemma3.layer_is_sliding, ElementsAre(true, true, true, false));
  const ModelConfig gemma2 = hub("gemma2");
  EXPECT_EQ(gemma2.attn_logit_softcap, 50.0);
  EXPECT_EQ(gemma2.final_logit_softcap, 30.0);
  EXPECT_EQ(gemma2.query_pre_attn_scalar, 24.0);
  EXPECT_EQ(gemma2.activation, "gelu_pytorch_tanh");
  const ModelConfig granite = hub("granite");
  EXPECT_EQ(granite.attention_scale, 0.2);
  EXPECT_EQ(granite.logit_scale, 2.0);
  EXPECT_EQ(granite.residual_scale, 0.6);
  EXPECT_EQ(granite.embedding_scale, 3.0);
  EXPECT_THAT(hub("smollm3").layer_has_rope, ElementsAre(true, true, true, false));
  EXPECT_EQ(hub("mistral-window").sliding_window, 16);
  EXPECT_EQ(hub("llama-rope-yarn").rope.scaling.kind, RopeScalingKind::yarn);
  EXPECT_FALSE(hub("gpt-oss").rope.scaling.truncate);
  EXPECT_EQ(hub("mixtral").num_experts, 4);
  EXPECT_EQ(hub("qwen2").use_sliding_window, false);
  const ModelConfig latent = hub("deepseek2-mla");
  EXPECT_EQ(latent.head_size_k, 32);
  EXPECT_EQ(latent.head_size_v, 16);
}

}  // namespace
}  // namespace tidemill
