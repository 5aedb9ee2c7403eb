#include "model/weight_names.h"

#include <fmt/format.h>

#include <array>

namespace tidemill {
namespace {

struct RoleNames {
  WeightRole role;
  bool in_layer;
  std::string_view gguf;
  std::string_view hub;
  std::string_view hub_post_norms;
};

constexpr std::array<RoleNames, num_weight_roles> role_names{{
    {WeightRole::token_embedding, false, "token_embd", "model.embed_tokens", "model.embed_tokens"},
    {WeightRole::output_norm, false, "output_norm", "model.norm", "model.norm"},
    {WeightRole::output_head, false, "output", "lm_head", "lm_head"},
    {WeightRole::rotary_factors, false, "rope_freqs", "", ""},
    {WeightRole::rotary_factors_long, false, "rope_factors_long", "", ""},
    {WeightRole::rotary_factors_short, false, "rope_factors_short", "", ""},
    {WeightRole::attention_norm, true, "attn_norm", "input_layernorm", "input_layernorm"},
    {WeightRole::query, true, "attn_q", "self_attn.q_proj", "self_attn.q_proj"},
    {WeightRole::key, true, "attn_k", "self_attn.k_proj", "self_attn.k_proj"},
    {WeightRole::value, true, "attn_v", "self_attn.v_proj", "self_attn.v_proj"},
    {WeightRole::fused_query_key_value, true, "attn_qkv", "self_attn.qkv_proj", "self_attn.qkv_proj"},
    {WeightRole::query_norm, true, "attn_q_norm", "self_attn.q_norm", "self_attn.q_norm"},
    {WeightRole::key_norm, true, "attn_k_norm", "self_attn.k_norm", "self_attn.k_norm"},
    {WeightRole::attention_output, true, "attn_output", "self_attn.o_proj", "self_attn.o_proj"},
    {WeightRole::attention_post_norm, true, "post_attention_norm", "", "post_attention_layernorm"},
    {WeightRole::feed_forward_norm, true, "ffn_norm", "post_attention_layernorm", "pre_feedforward_layernorm"},
    {WeightRole::gate, true, "ffn_gate", "mlp.gate_proj", "mlp.gate_proj"},
    {WeightRole::up, true, "ffn_up", "mlp.up_proj", "mlp.up_proj"},
    {WeightRole::fused_gate_up, true, "ffn_up", "mlp.gate_up_proj", "mlp.gate_up_proj"},
    {WeightRole::down, true, "ffn_down", "mlp.down_proj", "mlp.down_proj"},
    {WeightRole::feed_forward_post_norm, true, "post_ffw_norm", "", "post_feedforward_layernorm"},
}};

constexpr bool is_in_order() {
  for (size_t i = 0; i < role_names.size(); ++i) {
    if (role_names[i].role != static_cast<WeightRole>(i)) return false;
  }
  return true;
}
static_assert(is_in_order(), "role_names is indexed by role");

}  // namespace

std::string weight_name(WeightNaming naming, WeightRole role, int32_t layer, WeightKind kind) {
  const RoleNames& names = role_names[static_cast<size_t>(role)];
  const std::string_view stem = naming == WeightNaming::gguf  ? names.gguf
                                : naming == WeightNaming::hub ? names.hub
                                                              : names.hub_post_norms;
  if (stem.empty()) return {};
  const std::string_view suffix = kind == WeightKind::weight ? "weight" : "bias";
  if (!names.in_layer) return fmt::format("{}.{}", stem, suffix);
  const std::string_view prefix = naming == WeightNaming::gguf ? "blk" : "model.layers";
  return fmt::format("{}.{}.{}.{}", prefix, layer, stem, suffix);
}

bool is_ignored_weight(std::string_view name) {
  return name == "lm_head.weight" || name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight" ||
         name == "rope_factors_long.weight" || name == "rope_factors_short.weight";
}

}  // namespace tidemill
