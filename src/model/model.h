// A language model ready to run: weights on a backend, and what the rest of the server must know of it.
//
// Immutable after loading but for its scratch memory; called from the engine thread only. The interface says nothing of
// heads or layers, so that families with experts, latent attention or other memory fit behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/token.h"
#include "compute/backend.h"
#include "compute/paged_kv.h"

namespace tidemill {

// Layers with equal needs, which share one block table per sequence.
struct KvLayerGroup {
  std::vector<int32_t> layers;  // model layer indices, ascending
  KvShape shape;                // block_size is filled in by the runtime
  int32_t window = 0;           // 0 = full; otherwise only the last `window` positions are ever read
};

// The division of a model's layers into groups: a plain value, from the model file.
struct KvLayout {
  std::vector<KvLayerGroup> groups;
};

struct ModelInfo {
  std::string family;
  int32_t vocab_size = 0;
  int32_t context_length = 0;  // trained positions
  int32_t num_layers = 0;
  int32_t width = 0;
  int64_t num_parameters = 0;
  size_t weight_bytes = 0;  // as held by the backend
  // [num_layers] the largest magnitude of a bias that keys get; 0 = none. Channels with a large one are far from the
  // others of their token.
  std::vector<float> largest_key_biases;
};

// One step's rows, flattened. Rows of one sequence are adjacent and ascending in position.
struct StepInputs {
  std::span<const TokenId> tokens;      // [num_rows]
  std::span<const int32_t> positions;   // [num_rows]
  std::span<const KvGroupView> groups;  // one per layer group, in KvLayout's order
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;
  virtual const KvLayout& kv_layout() const = 0;

  // Sizes the scratch for steps of up to max_rows rows; returns its bytes. Called once before the first forward, and
  // again to grow. Rows of logits are computed for at most max_logit_rows at a time.
  virtual size_t reserve(int32_t max_rows, int32_t max_logit_rows) = 0;
  // Runs all layers over the step's rows, writing keys and values into the blocks. The final hidden rows stay inside
  // until the next forward.
  virtual void forward(const StepInputs& inputs) = 0;
  // Logits [row_ids.size(), vocab_size] of rows of the last forward; valid until the next call.
  virtual Rows logits(std::span<const int32_t> row_ids) = 0;
};

}  // namespace tidemill
