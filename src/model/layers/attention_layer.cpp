#include "model/layers/attention_layer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

namespace tidemill {
namespace {

// Row r of a matrix whose rotation halves are apart is row order[r] of one that has them side by side, head by head.
std::vector<int32_t> halves_apart(int32_t num_heads, int32_t head_dim, int32_t rotary_dim) {
  std::vector<int32_t> order(static_cast<size_t>(num_heads) * head_dim);
  std::iota(order.begin(), order.end(), 0);
  const int32_t half = rotary_dim / 2;
  for (int32_t head = 0; head < num_heads; ++head) {
    int32_t* rows = order.data() + static_cast<size_t>(head) * head_dim;
    const int32_t first = head * head_dim;
    for (int32_t i = 0; i < half; ++i) {
      rows[i] = first + 2 * i;
      rows[half + i] = first + 2 * i + 1;
    }
  }
  return order;
}

}  // namespace

Result<AttentionLayer> AttentionLayer::load(const DecoderSpec& spec, int32_t layer, WeightReader& reader) {
  AttentionLayer result;
  result.spec_ = spec.layers[layer].attention;
  result.layer_ = layer;
  result.query_width_ = result.spec_.num_heads * result.spec_.head_dim;
  result.key_width_ = result.spec_.num_kv_heads * result.spec_.head_dim;
  result.norm_epsilon_ = spec.norm_epsilon;
  if (Result<void> loaded = result.load_projections(spec, layer, reader); !loaded) return loaded.error();
  if (Result<void> loaded = result.load_norms(spec, layer, reader); !loaded) return loaded.error();
  result.join_ = {result.spec_.post_norm, {data_or_null(result.post_norm_), spec.norm_epsilon}, spec.residual_scale};
  return result;
}

Result<void> AttentionLayer::load_projections(const DecoderSpec& spec, int32_t layer, WeightReader& reader) {
  std::vector<int32_t> query_order, key_order;
  if (spec.interleaved_rows && spec_.rotary != AttentionSpec::no_rotation) {
    const int32_t rotary_dim = spec.rotaries[spec_.rotary].rotary_dim;
    query_order = halves_apart(spec_.num_heads, spec_.head_dim, rotary_dim);
    key_order = halves_apart(spec_.num_kv_heads, spec_.head_dim, rotary_dim);
  }
  std::vector<MatrixRows> rows{{.role = WeightRole::query, .num_rows = query_width_, .row_order = query_order},
                               {.role = WeightRole::key, .num_rows = key_width_, .row_order = key_order},
                               {.role = WeightRole::value, .num_rows = key_width_}};
  std::vector<VectorPart> biases{{WeightRole::query, query_width_, query_order},
                                 {WeightRole::key, key_width_, key_order},
                                 {WeightRole::value, key_width_, {}}};
  if (spec_.fused_query_key_value) {
    rows = {{.role = WeightRole::fused_query_key_value, .num_rows = query_key_value_width()}};
    biases = {{WeightRole::fused_query_key_value, query_key_value_width(), {}}};
  }
  const MatrixRows output{.role = WeightRole::attention_output, .num_rows = spec.width};
  const VectorPart output_bias{WeightRole::attention_output, spec.width, {}};

  Result<void> loaded = reader.load_matrix(rows, spec.width, layer, MatrixLayout::stacked, query_key_value_);
  if (loaded) loaded = reader.load_bias(biases, layer, spec_.query_key_value_bias, query_key_value_bias_);
  if (loaded) loaded = reader.load_matrix({&output, 1}, query_width_, layer, MatrixLayout::stacked, output_);
  if (loaded) loaded = reader.load_bias({&output_bias, 1}, layer, spec_.output_bias, output_bias_);
  return loaded;
}

Result<void> AttentionLayer::load_norms(const DecoderSpec& spec, int32_t layer, WeightReader& reader) {
  const bool whole_row = spec_.query_key_norm == QueryKeyNorm::whole_row;
  const VectorPart query{WeightRole::query_norm, whole_row ? query_width_ : spec_.head_dim, {}};
  const VectorPart key{WeightRole::key_norm, whole_row ? key_width_ : spec_.head_dim, {}};
  const VectorPart before{WeightRole::attention_norm, spec.width, {}};
  const VectorPart behind{WeightRole::attention_post_norm, spec.width, {}};

  Result<void> loaded;
  if (spec_.pre_norm) loaded = reader.load_norm(before, layer, spec.norm_offset, pre_norm_);
  if (loaded && spec_.post_norm) loaded = reader.load_norm(behind, layer, spec.norm_offset, post_norm_);
  if (loaded && spec_.query_key_norm != QueryKeyNorm::none) {
    loaded = reader.load_norm(query, layer, spec.norm_offset, query_norm_);
    if (loaded) loaded = reader.load_norm(key, layer, spec.norm_offset, key_norm_);
  }
  return loaded;
}

void AttentionLayer::place(KvPlace kv, const RotarySpec* rotary, const float* frequencies) {
  kv_ = kv;
  if (rotary == nullptr) return;
  rotary_ = {.rotary_dim = rotary->rotary_dim,
             .inverse_frequencies = frequencies,
             .attention_factor = rotary->attention_factor};
}

float AttentionLayer::largest_key_bias() const {
  if (query_key_value_bias_ == nullptr) return 0;
  const std::span<const float> keys(query_key_value_bias_->data() + query_width_, static_cast<size_t>(key_width_));
  float largest = 0;
  for (const float bias : keys) largest = std::max(largest, std::abs(bias));
  return largest;
}

void AttentionLayer::run(Backend& backend, const StepInputs& inputs, const Scratch& scratch, Rows residual) const {
  const Rows projected{scratch.query_key_value, residual.num_rows, query_key_value_width()};
  const Rows attended{scratch.attended, residual.num_rows, query_width_};
  const KvGroupView* kv = &inputs.groups[kv_.group];

  backend.product({.input = residual,
                   .norm = {data_or_null(pre_norm_), norm_epsilon_},
                   .matrix = query_key_value_.get(),
                   .bias = data_or_null(query_key_value_bias_),
                   .output = projected,
                   .label = {.name = "qkv product", .layer = layer_}});
  backend.rotate_and_store({.qkv = projected,
                            .num_heads = spec_.num_heads,
                            .query_norm = {data_or_null(query_norm_), norm_epsilon_},
                            .key_norm = {data_or_null(key_norm_), norm_epsilon_},
                            .norm_whole_row = spec_.query_key_norm == QueryKeyNorm::whole_row,
                            .rotary = rotary_,
                            .positions = inputs.positions,
                            .layer_in_group = kv_.layer_in_group,
                            .kv = kv,
                            .label = {.name = "rotate and store", .layer = layer_}});
  backend.attention({.qkv = projected,
                     .num_heads = spec_.num_heads,
                     .scale = spec_.scale,
                     .softcap = spec_.softcap,
                     .window = spec_.window,
                     .layer_in_group = kv_.layer_in_group,
                     .kv = kv,
                     .output = attended,
                     .label = {.name = "attention", .layer = layer_}});
  join_.run(backend,
            {.input = attended,
             .matrix = output_.get(),
             .bias = data_or_null(output_bias_),
             .label = {.name = "output product", .layer = layer_}},
            residual, scratch);
}

}  // namespace tidemill
