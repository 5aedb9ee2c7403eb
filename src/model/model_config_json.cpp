// Hyper-parameters from config.json, as transformers 4 and 5 write it.
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/printable.h"
#include "model/model_config.h"
#include "model/model_config_ranges.h"

namespace tidemill {
namespace {

constexpr std::string_view full_layers = "full_attention";
constexpr std::string_view sliding_layers = "sliding_attention";

// A config of several parts (text, vision) leaves out whatever equals the class's default, so those are needed here.
void add_defaults(nlohmann::json& text) {
  if (text.value("model_type", "") != "gemma3_text") return;
  nlohmann::json defaults = {{"vocab_size", 262208},
                             {"hidden_size", 2304},
                             {"intermediate_size", 9216},
                             {"num_hidden_layers", 26},
                             {"num_attention_heads", 8},
                             {"num_key_value_heads", 4},
                             {"head_dim", 256},
                             {"max_position_embeddings", 131072},
                             {"rms_norm_eps", 1e-6},
                             {"sliding_window", 4096},
                             {"query_pre_attn_scalar", 256},
                             {"hidden_activation", "gelu_pytorch_tanh"},
                             {"tie_word_embeddings", true}};
  if (!text.contains("layer_types") && !text.contains("_sliding_window_pattern")) {
    defaults["sliding_window_pattern"] = 6;
  }
  if (!text.contains("rope_parameters")) {
    defaults["rope_theta"] = 1e6;
    defaults["rope_local_base_freq"] = 1e4;
  }
  for (auto& [key, value] : defaults.items()) {
    if (!text.contains(key)) text[key] = value;
  }
}

// The text part of the config, with what only the whole says.
nlohmann::json text_part(const nlohmann::json& root) {
  auto nested = root.find("text_config");
  nlohmann::json text = nested != root.end() && nested->is_object() ? *nested : root;
  for (const char* key : {"model_type", "tie_word_embeddings", "vocab_size", "eos_token_id"}) {
    if (!text.contains(key) && root.contains(key)) text[key] = root[key];
  }
  const auto type = text.find("model_type");
  if (type != text.end() && type->is_string()) add_defaults(text);
  return text;
}

void read_sizes(ModelConfig& config, ConfigReader& reader) {
  config.num_layers = reader.required("num_hidden_layers", layers_range);
  config.hidden_size = reader.required("hidden_size", width_range);
  config.context_length = reader.required("max_position_embeddings", context_length_range);
  config.vocab_size = reader.required("vocab_size", vocabulary_range);
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (auto experts = reader.integer(key, experts_range)) config.num_experts = experts;
  }
  config.num_experts_used = reader.integer("num_experts_per_tok", experts_range);
  if (reader.has_failed()) return;
  config.feed_forward_size = reader.per_layer("intermediate_size", feed_forward_range, config.num_layers);
  if (config.feed_forward_size.empty()) reader.fail(error("{} is missing", reader.shown("intermediate_size")));
}

void read_heads(ModelConfig& config, ConfigReader& reader) {
  if (reader.has_failed()) return;
  const int32_t heads = reader.required("num_attention_heads", heads_range);
  const int32_t kv_heads = reader.integer_or("num_key_value_heads", heads_range, heads);
  config.num_heads.assign(static_cast<size_t>(config.num_layers), heads);
  config.num_kv_heads.assign(static_cast<size_t>(config.num_layers), kv_heads);
  const auto latent = reader.integer("qk_nope_head_dim", head_size_range);
  const auto latent_rope = reader.integer("qk_rope_head_dim", head_size_range);
  if (latent && latent_rope) {
    config.rope_dimensions = static_cast<int32_t>(*latent_rope);
    config.head_size_k = static_cast<int32_t>(*latent + *latent_rope);
    config.head_size_v = reader.required("v_head_dim", head_size_range);
    return;
  }
  const auto head_size = reader.integer("head_dim", head_size_range);
  config.head_size_k = static_cast<int32_t>(head_size ? *head_size : head_size_from_width(config, reader));
  config.head_size_v = config.head_size_k;
  config.rope_dimensions = config.head_size_k;
}

void read_norms(ModelConfig& config, ConfigReader& reader) {
  config.norm_epsilon = reader.number("rms_norm_eps", epsilon_range).value_or(1e-6);
  config.layer_norm_epsilon = reader.number("layer_norm_eps", epsilon_range);
  config.activation = reader.string("hidden_activation").value_or("");
  if (config.activation.empty()) config.activation = reader.string("hidden_act").value_or("");
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings");
}

RopeScalingKind scaling_kind(const std::string& type, ConfigReader& reader) {
  constexpr std::array<std::pair<std::string_view, RopeScalingKind>, 8> known = {{
      {"default", RopeScalingKind::none},
      {"none", RopeScalingKind::none},
      {"linear", RopeScalingKind::linear},
      {"dynamic", RopeScalingKind::dynamic},
      {"yarn", RopeScalingKind::yarn},
      {"llama3", RopeScalingKind::llama3},
      {"longrope", RopeScalingKind::longrope},
      {"su", RopeScalingKind::longrope},  // its name in the first Phi 3 files
  }};
  for (const auto& [name, kind] : known) {
    if (type == name) return kind;
  }
  reader.fail(
      error("rotation scaling '{}' in config.json is not supported; default, linear, dynamic, yarn, llama3 and "
            "longrope are",
            printable(type)));
  return RopeScalingKind::none;
}

std::vector<double> factor_list(const JsonValues& values, std::string_view key, ConfigReader& reader) {
  auto list = reader.take(values.numbers(key)).value_or(std::vector<double>());
  for (double value : list) {
    if (!(value >= positive_range.least && value <= positive_range.most)) {
      reader.fail(error("{} holds {:g}, but all must be above 0", values.shown(key), value));
    }
  }
  return list;
}

// One object of rope_parameters, or an old rope_scaling.
RopeScaling read_scaling(const nlohmann::json& object, ConfigReader& failures) {
  const JsonValues values(object);
  ConfigReader reader(values);
  RopeScaling scaling;
  auto type = reader.string("rope_type");
  if (!type) type = reader.string("type");
  scaling.kind = scaling_kind(type.value_or("default"), reader);
  scaling.factor = reader.number("factor", positive_range).value_or(1.0);
  scaling.original_context_length = reader.integer("original_max_position_embeddings", context_length_range);
  scaling.attention_factor = reader.number("attention_factor", positive_range);
  scaling.beta_fast = reader.number("beta_fast", positive_range).value_or(32.0);
  scaling.beta_slow = reader.number("beta_slow", positive_range).value_or(1.0);
  scaling.mscale = reader.number("mscale", any_range);
  scaling.mscale_all_dim = reader.number("mscale_all_dim", any_range);
  scaling.truncate = reader.boolean("truncate").value_or(true);
  scaling.low_freq_factor = reader.number("low_freq_factor", positive_range).value_or(1.0);
  scaling.high_freq_factor = reader.number("high_freq_factor", positive_range).value_or(4.0);
  scaling.short_factor = factor_list(values, "short_factor", reader);
  scaling.long_factor = factor_list(values, "long_factor", reader);
  if (scaling.kind == RopeScalingKind::llama3 && scaling.low_freq_factor == scaling.high_freq_factor) {
    reader.fail(error("low_freq_factor and high_freq_factor in config.json are both {:g}, but must differ",
                      scaling.low_freq_factor));
  }
  if (reader.has_failed()) failures.fail(reader.failure());
  return scaling;
}

RopeConfig read_rope_object(const nlohmann::json& object, double base, ConfigReader& reader) {
  const JsonValues values(object);
  ConfigReader own(values);
  RopeConfig rope{own.number("rope_theta", positive_range).value_or(base), read_scaling(object, reader)};
  if (own.has_failed()) reader.fail(own.failure());
  return rope;
}

void read_partial_rotation(ModelConfig& config, const nlohmann::json* object, ConfigReader& reader) {
  auto part = reader.number("partial_rotary_factor", {1e-6, 1.0});
  if (object) {
    const JsonValues values(*object);
    ConfigReader own(values);
    if (auto inner = own.number("partial_rotary_factor", {1e-6, 1.0})) part = inner;
    if (own.has_failed()) reader.fail(own.failure());
  }
  if (part) config.rope_dimensions = static_cast<int32_t>(config.rope_dimensions * *part);
}

void read_rope(ModelConfig& config, const JsonValues& values, ConfigReader& reader) {
  const double base = reader.number("rope_theta", positive_range).value_or(10000.0);
  config.rope.base = base;
  const nlohmann::json* object = values.object("rope_parameters");
  if (!object) object = values.object("rope_scaling");
  if (object) {
    const JsonValues inner(*object);
    const nlohmann::json* full = inner.object(full_layers);
    const nlohmann::json* sliding = inner.object(sliding_layers);
    config.rope = read_rope_object(full ? *full : *object, base, reader);
    if (sliding) config.rope_sliding = read_rope_object(*sliding, base, reader);
    read_partial_rotation(config, full ? full : object, reader);
  } else {
    read_partial_rotation(config, nullptr, reader);
  }
  // The old form of Gemma 3: scaling belongs to the full layers only.
  if (auto local = reader.number("rope_local_base_freq", positive_range); local && !config.rope_sliding) {
    config.rope_sliding = RopeConfig{*local, {}};
  }
  if (!config.rope.scaling.original_context_length) {
    config.rope.scaling.original_context_length =
        reader.integer("original_max_position_embeddings", context_length_range);
  }
}

void read_windows(ModelConfig& config, const JsonValues& values, ConfigReader& reader) {
  config.sliding_window = reader.integer("sliding_window", window_range);
  config.use_sliding_window = reader.boolean("use_sliding_window");
  config.max_window_layers = reader.integer("max_window_layers", {0, context_length_range.most});
  for (const char* key : {"_sliding_window_pattern", "sliding_window_pattern"}) {
    if (auto pattern = reader.integer(key, {1, layers_range.most})) config.sliding_window_pattern = pattern;
  }
  const auto types = reader.take(values.strings("layer_types"));
  if (!types || reader.has_failed()) return;
  if (types->size() != static_cast<size_t>(config.num_layers)) {
    return reader.fail(error("{} has {} elements, but there are {} layers", values.shown("layer_types"), types->size(),
                             config.num_layers));
  }
  for (const std::string& type : *types) {
    if (type != full_layers && type != sliding_layers) {
      return reader.fail(error("{} holds '{}', but only {} and {} are supported", values.shown("layer_types"),
                               printable(type), full_layers, sliding_layers));
    }
    config.layer_is_sliding.push_back(type == sliding_layers);
  }
}

void read_layers_without_rope(ModelConfig& config, const JsonValues& values, ConfigReader& reader) {
  const auto listed = reader.take(values.integers("no_rope_layers"));
  const auto interval = reader.integer("no_rope_layer_interval", {1, layers_range.most});
  if (reader.has_failed()) return;
  if (listed && !listed->empty()) {
    for (int32_t has_rope : reader.per_layer("no_rope_layers", {0, 1}, config.num_layers)) {
      config.layer_has_rope.push_back(has_rope == 1);
    }
  } else if (interval) {
    for (int32_t i = 0; i < config.num_layers; ++i) config.layer_has_rope.push_back((i + 1) % *interval != 0);
  }
}

// A factor that a family multiplies or divides by: 0 would make every answer the same.
std::optional<double> factor(ConfigReader& reader, std::string_view key) {
  auto value = reader.number(key, any_range);
  if (value == 0.0) reader.fail(error("{} is 0, but must not be", reader.shown(key)));
  return value;
}

void read_factors(ModelConfig& config, ConfigReader& reader) {
  config.attention_scale = factor(reader, "attention_multiplier");
  config.query_pre_attn_scalar = reader.number("query_pre_attn_scalar", positive_range);
  config.attn_logit_softcap = reader.number("attn_logit_softcapping", cap_range);
  config.final_logit_softcap = reader.number("final_logit_softcapping", cap_range);
  config.embedding_scale = factor(reader, "embedding_multiplier");
  config.residual_scale = factor(reader, "residual_multiplier");
  config.logit_scale = factor(reader, "logits_scaling");
  if (!config.logit_scale) config.logit_scale = factor(reader, "logit_scale");
}

void read_token_ids(ModelConfig& config, const JsonValues& values, ConfigReader& reader) {
  for (int64_t id : reader.take(values.integers("eos_token_id")).value_or(std::vector<int64_t>())) {
    if (id < -1 || id >= config.vocab_size) {
      reader.fail(
          error("{} is {}, but the vocabulary has {} tokens", values.shown("eos_token_id"), id, config.vocab_size));
    } else if (id >= 0) {
      config.eos_token_ids.push_back(id);
    }
  }
}

}  // namespace

Result<ModelConfig> read_json_config(std::string_view config_json) {
  auto root = parse_json(config_json);
  if (!root) return error("config.json {}", root.error().message);
  if (!root->is_object()) return error("config.json must hold an object");
  ModelConfig config;
  config.source = ConfigSource::hugging_face;
  const nlohmann::json text = text_part(*root);
  const JsonValues values(text);
  ConfigReader reader(values);
  auto family = reader.string("model_type");
  if (!family && !reader.has_failed()) reader.fail(error("{} is missing", reader.shown("model_type")));
  config.family = family.value_or("");
  read_sizes(config, reader);
  read_heads(config, reader);
  read_norms(config, reader);
  read_rope(config, values, reader);
  read_windows(config, values, reader);
  read_layers_without_rope(config, values, reader);
  read_factors(config, reader);
  read_token_ids(config, values, reader);
  finish_config(config, reader);
  if (reader.has_failed()) return reader.failure();
  return config;
}

}  // namespace tidemill
