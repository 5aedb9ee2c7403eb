// Gemma 2 (arXiv:2408.00118) and Gemma 3 (arXiv:2503.19786), text part.
//
// Norms behind attention and feed-forward too, gated GELU, embeddings times sqrt(width), windowed layers between full
// ones. Hub files store norm weights minus 1; GGUF files store the weights themselves. Gemma 2 caps scores and logits;
// Gemma 3 normalizes queries and keys per head instead and rotates windowed layers by a base of their own.
#include <cmath>

#include "model/families/family.h"
#include "model/families/plain_decoder.h"

namespace tidemill {
namespace {

// What a GGUF is silent about: the period of full layers, and the layer count of the 27B models, whose scores are
// scaled by sqrt(width / num_heads) in place of sqrt(head_dim).
struct Generation {
  int32_t full_layer_period;
  int32_t default_window;
  int32_t num_layers_of_27b;
};
constexpr Generation gemma2{2, 4096, 46};
constexpr Generation gemma3{6, 1024, 62};

float score_scale(const ModelConfig& config, const Generation& generation) {
  double scalar = config.head_size_k;
  if (config.num_layers == generation.num_layers_of_27b) {
    scalar = static_cast<double>(config.hidden_size) / config.num_heads[0];
  }
  return static_cast<float>(1.0 / std::sqrt(config.query_pre_attn_scalar.value_or(scalar)));
}

Result<DecoderSpec> gemma_spec(const FamilyInputs& inputs, const Generation& generation) {
  const ModelConfig& config = inputs.config;
  Result<DecoderSpec> spec = plain_decoder(inputs);
  if (!spec) return spec;
  spec->norm_offset = config.source == ConfigSource::gguf ? 0.0f : 1.0f;
  spec->embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  if (config.layer_is_sliding.empty() && !config.sliding_window_pattern) {
    const auto window = static_cast<int32_t>(config.sliding_window.value_or(generation.default_window));
    set_window_pattern(*spec, window, generation.full_layer_period);
  }
  for (LayerSpec& layer : spec->layers) {
    layer.attention.post_norm = true;
    layer.attention.scale = score_scale(config, generation);
    layer.feed_forward.post_norm = true;
    layer.feed_forward.activation = Activation::gelu_tanh;
  }
  return spec;
}

}  // namespace

Result<DecoderSpec> gemma2_spec(const FamilyInputs& inputs) {
  return gemma_spec(inputs, gemma2);
}

Result<DecoderSpec> gemma3_spec(const FamilyInputs& inputs) {
  Result<DecoderSpec> spec = gemma_spec(inputs, gemma3);
  if (!spec) return spec;
  const RopeConfig windowed = inputs.config.rope_sliding.value_or(RopeConfig{});
  Result<RotarySpec> rotary = make_rotary(windowed, inputs.config.rope_dimensions, inputs.rotary_lengths());
  if (!rotary) return rotary.error();
  spec->rotaries.push_back(std::move(*rotary));
  for (LayerSpec& layer : spec->layers) {
    layer.attention.query_key_norm = QueryKeyNorm::per_head;
    layer.attention.rotary = layer.attention.window > 0 ? 1 : 0;
  }
  return spec;
}

}  // namespace tidemill
