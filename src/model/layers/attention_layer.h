// Multi-head attention of one layer over the paged KV cache ("Attention Is All You Need", 3.2; grouped queries:
// arXiv:2305.13245; rotary positions: arXiv:2104.09864), with the residual around it.
//
// residual += scale * post_norm(output(attend(rotate(norm(query)), rotate(norm(key)), value))), all of
// norm(residual). Immutable after loading; called from the engine thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "model/layers/decoder_spec.h"
#include "model/layers/residual_branch.h"
#include "model/layers/weight_reader.h"

namespace tidemill {

// Where the layer's KV lies: which group of the KvLayout, and which of the group's layers it is.
struct KvPlace {
  int32_t group = 0;
  int32_t layer_in_group = 0;
};

class AttentionLayer {
 public:
  static Result<AttentionLayer> load(const DecoderSpec& spec, int32_t layer, WeightReader& reader);

  // frequencies: [rotary_dim / 2] of the layer's rotary, ignored where it does not rotate.
  void place(KvPlace kv, const RotarySpec* rotary, const float* frequencies);

  // The largest magnitude of a bias of its keys; 0 = none.
  float largest_key_bias() const;

  // residual: [rows of the step, width].
  void run(Backend& backend, const StepInputs& inputs, const Scratch& scratch, Rows residual) const;

 private:
  int32_t query_key_value_width() const { return query_width_ + 2 * key_width_; }
  Result<void> load_projections(const DecoderSpec& spec, int32_t layer, WeightReader& reader);
  Result<void> load_norms(const DecoderSpec& spec, int32_t layer, WeightReader& reader);

  AttentionSpec spec_;
  int32_t layer_ = 0;
  int32_t query_width_ = 0;
  int32_t key_width_ = 0;
  KvPlace kv_;
  Rotary rotary_;
  float norm_epsilon_ = 0.0f;
  ResidualJoin join_;
  std::unique_ptr<Matrix> query_key_value_;
  std::unique_ptr<Matrix> output_;
  // nullptr where the layer has none.
  std::unique_ptr<Buffer> query_key_value_bias_;
  std::unique_ptr<Buffer> output_bias_;
  std::unique_ptr<Buffer> pre_norm_;
  std::unique_ptr<Buffer> post_norm_;
  std::unique_ptr<Buffer> query_norm_;
  std::unique_ptr<Buffer> key_norm_;
};

}  // namespace tidemill
