#include "model/layers/feed_forward_layer.h"

#include <vector>

namespace tidemill {

Result<FeedForwardLayer> FeedForwardLayer::load(const DecoderSpec& spec, int32_t layer, WeightReader& reader) {
  FeedForwardLayer result;
  result.spec_ = spec.layers[layer].feed_forward;
  result.layer_ = layer;
  result.norm_epsilon_ = spec.norm_epsilon;
  if (Result<void> loaded = result.load_weights(spec, layer, reader); !loaded) return loaded.error();
  result.join_ = {result.spec_.post_norm, {data_or_null(result.post_norm_), spec.norm_epsilon}, spec.residual_scale};
  return result;
}

Result<void> FeedForwardLayer::load_weights(const DecoderSpec& spec, int32_t layer, WeightReader& reader) {
  const int32_t inner = spec_.inner_width;
  std::vector<MatrixRows> gate_up{{.role = WeightRole::gate, .num_rows = inner},
                                  {.role = WeightRole::up, .num_rows = inner}};
  std::vector<VectorPart> gate_up_bias{{WeightRole::gate, inner, {}}, {WeightRole::up, inner, {}}};
  if (spec_.fused_gate_up) {
    const MatrixRows both{.role = WeightRole::fused_gate_up, .num_rows = inner, .file_rows = 2 * int64_t{inner}};
    gate_up = {both, both};
    gate_up[1].first_row = inner;
    gate_up_bias = {{WeightRole::fused_gate_up, 2 * int64_t{inner}, {}}};
  }
  const MatrixRows down{.role = WeightRole::down, .num_rows = spec.width};
  const VectorPart down_bias{WeightRole::down, spec.width, {}};
  const VectorPart before{WeightRole::feed_forward_norm, spec.width, {}};
  const VectorPart behind{WeightRole::feed_forward_post_norm, spec.width, {}};

  Result<void> loaded = reader.load_matrix(gate_up, spec.width, layer, MatrixLayout::gated, gate_up_);
  if (loaded) loaded = reader.load_bias(gate_up_bias, layer, spec_.bias, gate_up_bias_);
  if (loaded) loaded = reader.load_matrix({&down, 1}, inner, layer, MatrixLayout::stacked, down_);
  if (loaded) loaded = reader.load_bias({&down_bias, 1}, layer, spec_.bias, down_bias_);
  if (loaded && spec_.pre_norm) loaded = reader.load_norm(before, layer, spec.norm_offset, pre_norm_);
  if (loaded && spec_.post_norm) loaded = reader.load_norm(behind, layer, spec.norm_offset, post_norm_);
  return loaded;
}

void FeedForwardLayer::run(Backend& backend, const Scratch& scratch, Rows residual) const {
  const Rows inner{scratch.inner, residual.num_rows, spec_.inner_width};
  backend.product({.input = residual,
                   .norm = {data_or_null(pre_norm_), norm_epsilon_},
                   .matrix = gate_up_.get(),
                   .bias = data_or_null(gate_up_bias_),
                   .activation = spec_.activation,
                   .output = inner,
                   .reader = down_.get(),
                   .label = {.name = "gated product", .layer = layer_}});
  join_.run(backend,
            {.input = inner,
             .matrix = down_.get(),
             .bias = data_or_null(down_bias_),
             .label = {.name = "down product", .layer = layer_}},
            residual, scratch);
}

}  // namespace tidemill
