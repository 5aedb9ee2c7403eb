// What each weight of a decoder is called in the two kinds of files.
//
// GGUF names follow ggml's naming ("blk.3.attn_q.weight"), hub names those of the safetensors folders on model hubs
// ("model.layers.3.self_attn.q_proj.weight"). Hub files give the feed-forward's norm another name where a block also
// has norms behind its two halves, so that is a naming of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemill {

enum class WeightRole : uint8_t {
  token_embedding,
  output_norm,
  output_head,
  rotary_factors,  // divisors of the frequencies
  rotary_factors_long,
  rotary_factors_short,
  // Of one layer each:
  attention_norm,
  query,
  key,
  value,
  fused_query_key_value,
  query_norm,
  key_norm,
  attention_output,
  attention_post_norm,
  feed_forward_norm,
  gate,
  up,
  fused_gate_up,
  down,
  feed_forward_post_norm,
};
inline constexpr int num_weight_roles = 21;

enum class WeightNaming : uint8_t { gguf, hub, hub_post_norms };

enum class WeightKind : uint8_t { weight, bias };

// The tensor's name; empty where files of this naming have no such tensor. The layer counts for roles of a layer only.
std::string weight_name(WeightNaming naming, WeightRole role, int32_t layer = 0, WeightKind kind = WeightKind::weight);

// Tensors that published files hold and that WeightReader need not read: precomputed rotary tables, the copy of a tied
// head, and the rotary factors, which a family reads before any weight. Any other tensor that nobody reads means that
// the file is not what the family takes it for.
bool is_ignored_weight(std::string_view name);

}  // namespace tidemill
