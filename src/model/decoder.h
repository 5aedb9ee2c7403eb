// The decoder-only transformer: embedding, layers of attention and feed-forward, final norm, output head.
//
// One class runs every family; what differs between them is in the DecoderSpec. Weights are immutable and owned here,
// in the backend's memory; the scratch is sized by reserve. Called from the engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "model/layers/attention_layer.h"
#include "model/layers/decoder_spec.h"
#include "model/layers/feed_forward_layer.h"
#include "model/layers/weight_reader.h"
#include "model/model.h"

namespace tidemill {

// The layers' groups by equal windows and KV shapes, in the order in which they first appear.
KvLayout kv_layout_of(const DecoderSpec& spec);

class Decoder : public Model {
 public:
  // Loads every weight through `reader`, which must have been made for the same backend. The backend must outlive the
  // decoder. A tensor of the file that no part of the decoder reads is an Error.
  static Result<std::unique_ptr<Decoder>> load(DecoderSpec spec, WeightReader& reader, Backend& backend);

  const ModelInfo& info() const override { return info_; }
  const KvLayout& kv_layout() const override { return kv_layout_; }

  size_t reserve(int32_t max_rows, int32_t max_logit_rows) override;
  void forward(const StepInputs& inputs) override;
  Rows logits(std::span<const int32_t> row_ids) override;

 private:
  struct Layer {
    AttentionLayer attention;
    FeedForwardLayer feed_forward;
  };

  Decoder(DecoderSpec spec, Backend& backend);
  Result<void> load_ends(WeightReader& reader);
  Result<void> load_layers(WeightReader& reader);
  void place_layers();
  const Matrix& head() const { return own_head_ ? *own_head_ : *embedding_; }

  DecoderSpec spec_;
  Backend& backend_;
  ModelInfo info_;
  KvLayout kv_layout_;

  std::unique_ptr<Matrix> embedding_;
  std::unique_ptr<Matrix> own_head_;  // nullptr where the head is the embedding table
  std::unique_ptr<Buffer> output_norm_;
  std::vector<std::unique_ptr<Buffer>> frequencies_;  // of spec_.rotaries
  std::vector<Layer> layers_;

  int32_t max_rows_ = 0;
  int32_t max_logit_rows_ = 0;
  int32_t num_rows_ = 0;  // of the last forward
  std::unique_ptr<Buffer> residual_;
  std::unique_ptr<Buffer> scratch_memory_;
  Scratch scratch_;
  std::unique_ptr<Buffer> wanted_;  // [max_logit_rows, width]
  std::unique_ptr<Buffer> logits_;  // [max_logit_rows, vocab_size]
};

}  // namespace tidemill
