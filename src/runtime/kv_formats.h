// Which formats a KV cache has: what users call them, and what they ask for becomes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/kv_format.h"
#include "model/model.h"

namespace tidemill {

// The formats of a cache: what full blocks are stored in, layer by layer. The partly filled tail is kept in fp16, or in
// the storage format where that is plain.
struct KvFormats {
  KvBlockFormat sealed;
  std::vector<int32_t> skipped_layers{};  // model layers that stay in tail precision
  bool skip_windowed = false;             // so do all layers with a window
  bool rotate = false;                    // keys (and queries) are multiplied by Hadamard matrices

  KvBlockFormat tail() const { return sealed.tail(); }
  KvBlockFormat of_layer(const KvLayerGroup& group, int32_t layer) const;
};

inline constexpr KvFormat all_kv_formats[] = {KvFormat::fp32,     KvFormat::fp16, KvFormat::bf16, KvFormat::fp8_e4m3,
                                              KvFormat::fp8_e5m2, KvFormat::int8, KvFormat::int4, KvFormat::nvfp4,
                                              KvFormat::q8_0,     KvFormat::q4_0};
// As --kv-cache-dtype names it.
const char* kv_format_name(KvFormat format);
// By this name, or one that other servers have for the same.
std::optional<KvFormat> kv_format_named(std::string_view name);
// All names that --kv-cache-dtype takes; the first one of a format is its own.
struct NamedKvFormat {
  std::string_view name;
  KvFormat format;
};
std::span<const NamedKvFormat> named_kv_formats();
// For messages: "fp16, fp32, ...".
std::string kv_format_names();

// KEYS[:token|:channel][/VALUES][+rotation], as "int4", "int8/int4" or "int4:channel+rotation".
Result<KvFormats> parse_kv_formats(std::string_view text);

// What a user said of the cache's formats. What is not given follows from what is.
struct KvFormatChoice {
  std::optional<KvFormat> both, keys, values;
  bool measured = false;  // the smallest that is true enough, by measurement; the others say nothing then
  std::optional<KvScales> key_scales;
  std::optional<bool> rotate;
  std::vector<int32_t> skipped_layers{};
  bool skip_windowed = false;

  KvFormats formats() const;
};

// How true a format is: a higher number is truer, by the losses that were measured (docs/kv-fidelity.md). Of a cache,
// the lesser of its keys' and its values'.
int32_t kv_format_rank(KvFormat format);
int32_t kv_format_rank(const KvFormats& formats);
// `usual`, but keys and values that are kept in less than `least` are kept in that, as it is by default: not rotated,
// with its usual scales; and no layer is in less than it was.
KvFormats raised_to(const KvFormats& usual, KvFormat least);
// What a cache of `usual` may keep for requests that ask for more: raised to each of the formats that is more, in
// ascending order, each once.
std::vector<KvFormats> better_formats(const KvFormats& usual, std::span<const KvFormat> wanted);

// The same for a model whose layers have biases of keys of up to so much [num_layers]. A channel with a large bias (as
// Qwen2 has them) takes all codes of a scale that it shares, so int8 keys get scales by channel, unless a user chose
// their scales. warning: what cannot be mended so, in one sentence; else "".
struct BiasedFormats {
  KvFormats formats;
  std::string warning;
};
BiasedFormats formats_for_biases(const KvFormats& formats, bool scales_chosen,
                                 std::span<const float> largest_key_biases);

// For people: "int8", "int8 keys, int4 values, rotated".
std::string kv_formats_text(const KvFormats& formats);
// All that stored keys and values depend on besides tokens and model, as one word.
std::string kv_format_key(const KvFormats& formats, int32_t block_size);

}  // namespace tidemill
