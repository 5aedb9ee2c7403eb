// The gated feed-forward half of one layer (arXiv:2002.05202), with the residual around it.
//
// residual += scale * post_norm(down(activation(gate(x)) * up(x))), x = norm(residual). Immutable after loading; called
// from the engine thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "model/layers/decoder_spec.h"
#include "model/layers/residual_branch.h"
#include "model/layers/weight_reader.h"

namespace tidemill {

class FeedForwardLayer {
 public:
  static Result<FeedForwardLayer> load(const DecoderSpec& spec, int32_t layer, WeightReader& reader);

  // residual: [rows of the step, width].
  void run(Backend& backend, const Scratch& scratch, Rows residual) const;

 private:
  Result<void> load_weights(const DecoderSpec& spec, int32_t layer, WeightReader& reader);

  FeedForwardSpec spec_;
  int32_t layer_ = 0;
  float norm_epsilon_ = 0.0f;
  ResidualJoin join_;
  std::unique_ptr<Matrix> gate_up_;
  std::unique_ptr<Matrix> down_;
  // nullptr where the layer has none.
  std::unique_ptr<Buffer> gate_up_bias_;
  std::unique_ptr<Buffer> down_bias_;
  std::unique_ptr<Buffer> pre_norm_;
  std::unique_ptr<Buffer> post_norm_;
};

}  // namespace tidemill
