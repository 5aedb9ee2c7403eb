// Hyper-parameters from GGUF metadata; key names from ggml's GGUF description.
#include <utility>

#include "base/printable.h"
#include "model/model_config.h"
#include "model/model_config_ranges.h"

namespace tidemill {
namespace {

// 0 stands for "not used" in the factors of a GGUF.
std::optional<double> factor(ConfigReader& reader, std::string_view key) {
  auto value = reader.number(key, any_range);
  return value == 0.0 ? std::nullopt : value;
}

void read_sizes(ModelConfig& config, ConfigReader& reader) {
  config.num_layers = reader.required("block_count", layers_range);
  config.hidden_size = reader.required("embedding_length", width_range);
  config.context_length = reader.required("context_length", context_length_range);
  config.vocab_size = reader.integer_or("vocab_size", vocabulary_range, config.tokenizer_size);
  config.num_experts = reader.integer("expert_count", experts_range);
  config.num_experts_used = reader.integer("expert_used_count", experts_range);
  if (reader.has_failed()) return;
  const bool has_experts = config.num_experts.value_or(0) > 0;
  const Range<int64_t> feed_forward{has_experts ? 0 : feed_forward_range.least, feed_forward_range.most};
  config.feed_forward_size = reader.per_layer("feed_forward_length", feed_forward, config.num_layers);
  if (config.feed_forward_size.empty()) {
    if (!has_experts) reader.fail(error("{} is missing", reader.shown("feed_forward_length")));
    config.feed_forward_size.assign(static_cast<size_t>(config.num_layers), 0);
  }
}

void read_heads(ModelConfig& config, ConfigReader& reader) {
  if (reader.has_failed()) return;
  config.num_heads = reader.per_layer("attention.head_count", heads_range, config.num_layers);
  if (config.num_heads.empty()) return reader.fail(error("{} is missing", reader.shown("attention.head_count")));
  config.num_kv_heads = reader.per_layer("attention.head_count_kv", heads_range, config.num_layers);
  if (config.num_kv_heads.empty()) config.num_kv_heads = config.num_heads;
  const auto key_size = reader.integer("attention.key_length", head_size_range);
  const auto value_size = reader.integer("attention.value_length", head_size_range);
  config.head_size_k = static_cast<int32_t>(key_size ? *key_size : head_size_from_width(config, reader));
  config.head_size_v = static_cast<int32_t>(value_size ? *value_size : head_size_from_width(config, reader));
  config.rope_dimensions = reader.integer_or("rope.dimension_count", head_size_range, config.head_size_k);
}

void read_norms(ModelConfig& config, ConfigReader& reader) {
  const auto rms = reader.number("attention.layer_norm_rms_epsilon", epsilon_range);
  config.layer_norm_epsilon = reader.number("attention.layer_norm_epsilon", epsilon_range);
  if (!rms && !config.layer_norm_epsilon) {
    reader.fail(error("{} is missing", reader.shown("attention.layer_norm_rms_epsilon")));
  }
  config.norm_epsilon = rms.value_or(config.layer_norm_epsilon.value_or(0));
}

void read_scaling(RopeScaling& scaling, ConfigReader& reader) {
  const auto type = reader.string("rope.scaling.type").value_or("none");
  if (type == "linear") {
    scaling.kind = RopeScalingKind::linear;
  } else if (type == "yarn") {
    scaling.kind = RopeScalingKind::yarn;
  } else if (type == "longrope") {
    scaling.kind = RopeScalingKind::longrope;
  } else if (type != "none") {
    reader.fail(error("{} is '{}', but must be none, linear, yarn or longrope", reader.shown("rope.scaling.type"),
                      printable(type)));
  }
  scaling.factor = factor(reader, "rope.scaling.factor").value_or(1.0);
  if (const auto old = factor(reader, "rope.scale_linear"); old && scaling.kind == RopeScalingKind::none && *old != 1) {
    scaling.kind = RopeScalingKind::linear;
    scaling.factor = *old;
  }
  if (scaling.factor <= 0) {
    reader.fail(error("{} is {:g}, but must be above 0", reader.shown("rope.scaling.factor"), scaling.factor));
  }
  scaling.original_context_length = reader.integer("rope.scaling.original_context_length", context_length_range);
  scaling.attention_factor = factor(reader, "rope.scaling.attn_factor");
  scaling.beta_fast = reader.number("rope.scaling.yarn_beta_fast", positive_range).value_or(32.0);
  scaling.beta_slow = reader.number("rope.scaling.yarn_beta_slow", positive_range).value_or(1.0);
  scaling.mscale_all_dim = factor(reader, "rope.scaling.yarn_log_multiplier");
}

void read_windows(ModelConfig& config, ConfigReader& reader, const ConfigValues& values) {
  config.sliding_window = reader.integer("attention.sliding_window", window_range);
  constexpr std::string_view pattern = "attention.sliding_window_pattern";
  if (values.is_list(pattern)) {
    for (int32_t flag : reader.per_layer(pattern, {0, 1}, config.num_layers)) {
      config.layer_is_sliding.push_back(flag == 1);
    }
  } else {
    config.sliding_window_pattern = reader.integer(pattern, {0, layers_range.most});
  }
}

void read_factors(ModelConfig& config, ConfigReader& reader) {
  config.attention_scale = factor(reader, "attention.scale");
  config.attn_logit_softcap = reader.number("attn_logit_softcapping", cap_range);
  config.final_logit_softcap = reader.number("final_logit_softcapping", cap_range);
  config.embedding_scale = factor(reader, "embedding_scale");
  config.residual_scale = factor(reader, "residual_scale");
  config.logit_scale = factor(reader, "logit_scale");
}

}  // namespace

Result<ModelConfig> read_gguf_config(const Metadata& metadata) {
  ModelConfig config;
  auto family = metadata.string("general.architecture");
  if (!family) return family.error();
  config.family = *family;
  if (auto tokens = metadata.array("tokenizer.ggml.tokens"); tokens && *tokens) {
    config.tokenizer_size = static_cast<int32_t>((*tokens)->size());
  }
  const MetadataValues values(metadata, config.family + ".");
  ConfigReader reader(values);
  if (auto name = metadata.string("general.name", ""); name) config.name = printable(*name);
  read_sizes(config, reader);
  read_heads(config, reader);
  read_norms(config, reader);
  config.rope.base = reader.number("rope.freq_base", positive_range).value_or(10000.0);
  read_scaling(config.rope.scaling, reader);
  if (auto base = reader.number("rope.freq_base_swa", positive_range)) config.rope_sliding = RopeConfig{*base, {}};
  read_windows(config, reader, values);
  read_factors(config, reader);
  finish_config(config, reader);
  if (reader.has_failed()) return reader.failure();
  return config;
}

}  // namespace tidemill
