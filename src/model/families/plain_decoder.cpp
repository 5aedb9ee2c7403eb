#include "model/families/plain_decoder.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/printable.h"
#include "model/weight_names.h"

namespace tidemill {
namespace {

// Far above any model, and small enough for products of two to stay in range.
constexpr int64_t max_row_width = int64_t{1} << 20;
// Kernels take heads by vectors of 8, and hold the scales of one position's values on the stack.
constexpr int32_t max_head_size = 1024;

Result<Activation> activation_of(const ModelConfig& config) {
  const std::string& name = config.activation;
  if (name.empty() || name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "relu") return Activation::relu;
  return error("activation {} is not supported; known are silu, gelu, gelu_pytorch_tanh and relu", printable(name));
}

Result<void> check(const ModelConfig& config) {
  if (config.num_experts.value_or(0) > 0) {
    return error("a model of family {} with {} experts is not supported", printable(config.family),
                 *config.num_experts);
  }
  if (config.head_size_k != config.head_size_v) {
    return error("keys of {} and values of {} numbers per head are not supported together", config.head_size_k,
                 config.head_size_v);
  }
  if (config.head_size_k % 8 != 0 || config.head_size_k > max_head_size) {
    return error("heads of {} numbers are not supported: a multiple of 8 up to {} is", config.head_size_k,
                 max_head_size);
  }
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const int64_t query_width = int64_t{config.num_heads[i]} * config.head_size_k;
    if (query_width > max_row_width || config.feed_forward_size[i] > max_row_width) {
      return error("layer {} has rows of {} and {} numbers, above the limit of {}", i, query_width,
                   config.feed_forward_size[i], max_row_width);
    }
    if (config.feed_forward_size[i] <= 0) return error("layer {} has no feed-forward size", i);
  }
  return {};
}

// The numbers of a GGUF's tensor; empty where it has none.
Result<std::vector<double>> factors_in_file(const FamilyInputs& inputs, WeightRole role) {
  const TensorInfo* tensor = inputs.file.find(weight_name(WeightNaming::gguf, role));
  if (tensor == nullptr) return std::vector<double>();
  Result<std::vector<float>> factors = read_as_f32(inputs.file, *tensor);
  if (!factors) return factors.error();
  return std::vector<double>(factors->begin(), factors->end());
}

// The configuration's rotation, completed by what a GGUF states as tensors: longrope's factors, or the divisors that
// llama3 scaling comes to.
Result<RotarySpec> rotary_of(const FamilyInputs& inputs) {
  RopeConfig rope = inputs.config.rope;
  const int32_t rotary_dim = inputs.config.rope_dimensions;
  if (!inputs.is_gguf()) return make_rotary(rope, rotary_dim, inputs.rotary_lengths());

  Result<std::vector<double>> divisors = factors_in_file(inputs, WeightRole::rotary_factors);
  if (!divisors) return divisors.error();
  Result<std::vector<double>> short_factors = factors_in_file(inputs, WeightRole::rotary_factors_short);
  if (!short_factors) return short_factors.error();
  Result<std::vector<double>> long_factors = factors_in_file(inputs, WeightRole::rotary_factors_long);
  if (!long_factors) return long_factors.error();
  if (!short_factors->empty() || !long_factors->empty()) {
    rope.scaling.kind = RopeScalingKind::longrope;
    rope.scaling.short_factor = std::move(*short_factors);
    rope.scaling.long_factor = std::move(*long_factors);
  }
  Result<RotarySpec> rotary = make_rotary(rope, rotary_dim, inputs.rotary_lengths());
  if (!rotary || divisors->empty()) return rotary;
  if (Result<void> divided = divide_frequencies(*rotary, *divisors); !divided) return divided.error();
  return rotary;
}

// The tokens that have a row in the embedding table, where the configuration does not count them.
Result<int32_t> vocab_size_of(const FamilyInputs& inputs) {
  if (inputs.config.vocab_size > 0) return inputs.config.vocab_size;
  const WeightNaming naming = inputs.is_gguf() ? WeightNaming::gguf : WeightNaming::hub;
  const std::string name = weight_name(naming, WeightRole::token_embedding);
  const TensorInfo* table = inputs.file.find(name);
  if (table == nullptr) return error("tensor {} is missing", name);
  if (table->shape.size() != 2 || table->shape[0] < 1 || table->shape[0] > INT32_MAX) {
    return error("tensor {} has the shape {}, which is no embedding table", name, table->shape_text());
  }
  return static_cast<int32_t>(table->shape[0]);
}

int32_t window_of_layer(const ModelConfig& config, int32_t layer) {
  if (!config.sliding_window || config.use_sliding_window == false) return 0;
  const auto window = static_cast<int32_t>(std::min<int64_t>(*config.sliding_window, INT32_MAX));
  if (!config.layer_is_sliding.empty()) return config.layer_is_sliding[layer] ? window : 0;
  const int64_t period = config.sliding_window_pattern.value_or(0);
  if (period > 0) return (layer + 1) % period == 0 ? 0 : window;
  if (config.max_window_layers) return layer >= *config.max_window_layers ? window : 0;
  return window;
}

HeadWeights head_of(const ModelConfig& config) {
  if (!config.tie_word_embeddings) return HeadWeights::own_or_tied;
  return *config.tie_word_embeddings ? HeadWeights::tied : HeadWeights::own;
}

LayerSpec layer_of(const ModelConfig& config, int32_t layer, Activation activation) {
  LayerSpec spec;
  spec.attention.num_heads = config.num_heads[layer];
  spec.attention.num_kv_heads = config.num_kv_heads[layer];
  spec.attention.head_dim = config.head_size_k;
  const bool rotates = config.layer_has_rope.empty() || config.layer_has_rope[layer];
  spec.attention.rotary = rotates ? 0 : AttentionSpec::no_rotation;
  spec.attention.scale = static_cast<float>(config.attention_scale.value_or(1.0 / std::sqrt(config.head_size_k)));
  spec.attention.softcap = static_cast<float>(config.attn_logit_softcap.value_or(0.0));
  spec.attention.window = window_of_layer(config, layer);
  spec.feed_forward.inner_width = config.feed_forward_size[layer];
  spec.feed_forward.activation = activation;
  return spec;
}

}  // namespace

RotaryLengths FamilyInputs::rotary_lengths() const {
  const int32_t longest = options.longest_sequence > 0 ? options.longest_sequence : config.context_length;
  return {config.context_length, longest};
}

Result<DecoderSpec> plain_decoder(const FamilyInputs& inputs) {
  const ModelConfig& config = inputs.config;
  if (Result<void> checked = check(config); !checked) return checked.error();
  Result<Activation> activation = activation_of(config);
  if (!activation) return activation.error();
  Result<int32_t> vocab_size = vocab_size_of(inputs);
  if (!vocab_size) return vocab_size.error();
  Result<RotarySpec> rotary = rotary_of(inputs);
  if (!rotary) return rotary.error();

  DecoderSpec spec;
  spec.family = config.family;
  spec.vocab_size = *vocab_size;
  spec.width = config.hidden_size;
  spec.context_length = config.context_length;
  spec.norm_epsilon = static_cast<float>(config.norm_epsilon);
  spec.embedding_scale = static_cast<float>(config.embedding_scale.value_or(1.0));
  spec.residual_scale = static_cast<float>(config.residual_scale.value_or(1.0));
  spec.logit_softcap = static_cast<float>(config.final_logit_softcap.value_or(0.0));
  spec.head = head_of(config);
  spec.rotaries.push_back(std::move(*rotary));
  for (int32_t i = 0; i < config.num_layers; ++i) spec.layers.push_back(layer_of(config, i, *activation));
  return spec;
}

void set_window_pattern(DecoderSpec& spec, int32_t window, int32_t every_nth_is_full) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool is_full = (i + 1) % static_cast<size_t>(every_nth_is_full) == 0;
    spec.layers[i].attention.window = is_full ? 0 : window;
  }
}

void drop_idle_windows(DecoderSpec& spec, int32_t longest_sequence) {
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.window >= longest_sequence) layer.attention.window = 0;
  }
}

}  // namespace tidemill
