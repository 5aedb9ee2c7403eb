// A model's hyper-parameters, read and checked from either kind of file: GGUF metadata or a hub's config.json.
//
// Fields are what the file says, under one name for both kinds. What only one kind says, or what a family assumes when
// the file is silent, stays std::nullopt or empty for the family to decide; nothing here is a guess, but for the
// defaults that transformers' own classes give to keys that published configs leave out (kv heads = heads, head size =
// width / heads, rotation base 10000, epsilon 1e-6, and those of "gemma3_text").
// A value that would be fatal as a divisor, an index or a loop bound is refused: an Error is one sentence with the key,
// the value found and the limit. Immutable plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/metadata.h"
#include "base/result.h"

namespace tidemill {

class WeightFile;

enum class ConfigSource : uint8_t { gguf, hugging_face };

enum class RopeScalingKind : uint8_t { none, linear, dynamic, yarn, llama3, longrope };
const char* rope_scaling_name(RopeScalingKind kind);

// Fields keep their defaults where the file is silent.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1.0;  // > 0
  // Positions the model was first trained on. longrope: from the top level of the config too.
  std::optional<int64_t> original_context_length;
  // The factor on the rotated vectors (yarn, longrope), where the file states it instead of leaving it to the formula.
  std::optional<double> attention_factor;
  double beta_fast = 32.0, beta_slow = 1.0;      // yarn
  std::optional<double> mscale, mscale_all_dim;  // yarn in DeepSeek; GGUF's yarn_log_multiplier is mscale_all_dim
  bool truncate = true;                          // yarn: correction range rounded to whole dimensions
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3 (a GGUF holds the result as tensor rope_freqs.weight)
  std::vector<double> short_factor, long_factor;  // longrope (a GGUF holds them as tensors rope_factors_*.weight)
};

struct RopeConfig {
  double base = 10000.0;  // finite, > 0
  RopeScaling scaling;
};

struct ModelConfig {
  ConfigSource source = ConfigSource::gguf;
  // As the file writes it: GGUF's general.architecture ("llama", "qwen2", "gemma3") or model_type of the text part
  // ("llama", "mistral", "gemma3_text").
  std::string family;
  std::string name;  // general.name, or empty

  int32_t num_layers = 0;  // 1 to 4096
  int32_t hidden_size = 0;
  int32_t context_length = 0;  // trained positions
  // Rows of the embedding table that are tokens. A GGUF that does not say it means its tokenizer's number; 0 without
  // one.
  int32_t vocab_size = 0;
  int32_t tokenizer_size = 0;  // tokens that a GGUF brings along; 0 for config.json

  // [num_layers] each; kv heads divide heads.
  std::vector<int32_t> num_heads;
  std::vector<int32_t> num_kv_heads;
  std::vector<int32_t> feed_forward_size;  // 0 where a model of experts does not say it
  int32_t head_size_k = 0;                 // of queries and keys
  int32_t head_size_v = 0;
  int32_t rope_dimensions = 0;  // rotated part of a head: even, <= head_size_k (of the MLA rope part for MLA)

  double norm_epsilon = 0.0;                 // of the RMS norm
  std::optional<double> layer_norm_epsilon;  // models with plain layer norms
  std::string activation;                    // hidden_act; empty in a GGUF

  RopeConfig rope;                         // of full layers, or of all
  std::optional<RopeConfig> rope_sliding;  // of windowed layers, where the file gives them their own
  std::vector<bool> layer_has_rope;        // [num_layers], or empty: the file is silent

  std::optional<int64_t> sliding_window;  // tokens; nullopt also where the file says null or 0
  std::optional<bool> use_sliding_window;
  std::optional<int64_t> max_window_layers;       // Qwen: layers from this one on are windowed
  std::optional<int64_t> sliding_window_pattern;  // every n-th layer is full
  std::vector<bool> layer_is_sliding;             // [num_layers], or empty: the file is silent

  std::optional<double> attention_scale;        // of the scores (Granite's attention_multiplier)
  std::optional<double> query_pre_attn_scalar;  // Gemma: scale is its -1/2 power
  std::optional<double> attn_logit_softcap;
  std::optional<double> final_logit_softcap;
  std::optional<double> embedding_scale;
  std::optional<double> residual_scale;
  std::optional<double> logit_scale;  // as in the file: Granite divides by it, Cohere multiplies

  std::optional<bool> tie_word_embeddings;  // nullopt in a GGUF: tied where output.weight is absent

  std::optional<int64_t> num_experts;
  std::optional<int64_t> num_experts_used;

  // What ends a text by config.json; the tokenizer and generation_config.json may name more.
  std::vector<int64_t> eos_token_ids;
};

Result<ModelConfig> read_gguf_config(const Metadata& metadata);
Result<ModelConfig> read_json_config(std::string_view config_json);

// Whether the tensors are there that the configuration promises: the embedding table has hidden_size columns and at
// least vocab_size (and, in a GGUF, the tokenizer's) rows, and every layer from 0 to num_layers - 1 has tensors.
Result<void> check_config_against_weights(const ModelConfig& config, const WeightFile& file);

}  // namespace tidemill
