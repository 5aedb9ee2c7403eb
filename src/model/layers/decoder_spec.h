// What a decoder-only transformer of one file looks like: a plain value that a family makes from the model's
// configuration, and that model/decoder loads and runs.
//
// It says nothing of files: which tensor plays which part is written in model/weight_names. A family that differs from
// the others only by numbers, norms, rotation or windows needs nothing but its own DecoderSpec
// (docs/adding-a-family.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute/backend.h"

namespace tidemill {

// Whether a product has a bias. optional: it has one where the file holds it (GGUF metadata does not tell).
enum class Bias : uint8_t { none, optional, required };

// Normalization of queries and keys before the rotation.
enum class QueryKeyNorm : uint8_t {
  none,
  per_head,   // one weight [head_dim], each head on its own
  whole_row,  // a weight [num_heads * head_dim], all heads together
};

// Rotation of one kind of layer, scaling applied. Pairs are always (i, i + rotary_dim / 2): rows of files that store
// them side by side are put in order while loading.
struct RotarySpec {
  int32_t rotary_dim = 0;
  std::vector<float> inverse_frequencies;  // [rotary_dim / 2]
  float attention_factor = 1.0f;
};

struct AttentionSpec {
  static constexpr int32_t no_rotation = -1;

  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;  // of queries, keys and values
  bool pre_norm = true;
  bool post_norm = false;  // of the output, before it joins the residual
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool fused_query_key_value = false;  // one tensor in the file, rows of queries, keys, values
  Bias query_key_value_bias = Bias::none;
  Bias output_bias = Bias::none;
  int32_t rotary = 0;  // index into DecoderSpec::rotaries, or no_rotation
  float scale = 1.0f;  // of the scores
  float softcap = 0.0f;
  int32_t window = 0;  // 0 = full
};

struct FeedForwardSpec {
  int32_t inner_width = 0;
  Activation activation = Activation::silu;
  bool pre_norm = true;
  bool post_norm = false;
  bool fused_gate_up = false;  // one tensor in the file, rows of gate, then of up
  Bias bias = Bias::none;
};

struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
};

enum class HeadWeights : uint8_t {
  tied,         // the embedding table
  own,          // a tensor of its own, which must be there
  own_or_tied,  // a tensor of its own where the file holds one
};

struct DecoderSpec {
  std::string family;
  int32_t vocab_size = 0;
  int32_t width = 0;
  int32_t context_length = 0;  // trained positions
  float norm_epsilon = 0.0f;
  float norm_offset = 0.0f;  // added to every norm weight of the file (Gemma stores weight - 1)
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;  // of what attention and feed-forward add
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;  // 0 = none: logits become cap * tanh(logit / cap)
  HeadWeights head = HeadWeights::own;
  // The file's query and key rows hold a rotation's two halves side by side: (2i, 2i + 1) instead of (i, i + d / 2).
  bool interleaved_rows = false;
  std::vector<RotarySpec> rotaries;
  std::vector<LayerSpec> layers;
};

}  // namespace tidemill
