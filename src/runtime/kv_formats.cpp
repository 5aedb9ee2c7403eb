#include "runtime/kv_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/printable.h"

namespace tidemill {
namespace {

constexpr NamedKvFormat named_formats[] = {
    {"fp16", KvFormat::fp16},         {"fp32", KvFormat::fp32},         {"bf16", KvFormat::bf16},
    {"fp8_e4m3", KvFormat::fp8_e4m3}, {"fp8_e5m2", KvFormat::fp8_e5m2}, {"int8", KvFormat::int8},
    {"int4", KvFormat::int4},         {"nvfp4", KvFormat::nvfp4},       {"q8_0", KvFormat::q8_0},
    {"q4_0", KvFormat::q4_0},         {"float32", KvFormat::fp32},      {"f32", KvFormat::fp32},
    {"float16", KvFormat::fp16},      {"f16", KvFormat::fp16},          {"bfloat16", KvFormat::bf16},
    {"fp8", KvFormat::fp8_e4m3},
};

}  // namespace

KvBlockFormat KvFormats::of_layer(const KvLayerGroup& group, int32_t layer) const {
  const bool skipped =
      (skip_windowed && group.window > 0) || std::ranges::find(skipped_layers, layer) != skipped_layers.end();
  return skipped ? tail() : sealed;
}

const char* kv_format_name(KvFormat format) {
  const auto* found = std::ranges::find(named_formats, format, &NamedKvFormat::format);
  return found == std::ranges::end(named_formats) ? "" : found->name.data();
}

std::span<const NamedKvFormat> named_kv_formats() {
  return named_formats;
}

std::optional<KvFormat> kv_format_named(std::string_view name) {
  const auto* found = std::ranges::find(named_formats, name, &NamedKvFormat::name);
  if (found == std::ranges::end(named_formats)) return std::nullopt;
  return found->format;
}

std::string kv_format_names() {
  std::string names;
  for (const NamedKvFormat& each : named_formats) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  return names;
}

KvFormats KvFormatChoice::formats() const {
  const KvFormat key_format = keys.value_or(both.value_or(KvFormat::fp16));
  const KvScales scales =
      takes_channel_scales(key_format) ? key_scales.value_or(usual_key_scales(key_format)) : KvScales::per_token;
  KvFormats formats;
  formats.sealed = {key_format, scales, values.value_or(both.value_or(KvFormat::fp16))};
  formats.skipped_layers = skipped_layers;
  formats.skip_windowed = skip_windowed;
  formats.rotate = rotate.value_or(false);
  return formats;
}

int32_t kv_format_rank(KvFormat format) {
  constexpr KvFormat ascending[] = {KvFormat::nvfp4,    KvFormat::q4_0, KvFormat::int4, KvFormat::fp8_e5m2,
                                    KvFormat::fp8_e4m3, KvFormat::int8, KvFormat::q8_0, KvFormat::bf16,
                                    KvFormat::fp16,     KvFormat::fp32};
  static_assert(std::size(ascending) == std::size(all_kv_formats));
  return static_cast<int32_t>(std::ranges::find(ascending, format) - std::begin(ascending));
}

int32_t kv_format_rank(const KvFormats& formats) {
  return std::min(kv_format_rank(formats.sealed.keys.format), kv_format_rank(formats.sealed.values.format));
}

KvFormats raised_to(const KvFormats& usual, KvFormat least) {
  KvFormats raised = usual;
  if (kv_format_rank(usual.sealed.keys.format) < kv_format_rank(least)) {
    raised.sealed.keys = {least, usual_key_scales(least)};
    raised.rotate = false;
  }
  if (kv_format_rank(usual.sealed.values.format) < kv_format_rank(least)) raised.sealed.values.format = least;
  // Layers that were left in tail precision are so anyway where nothing is encoded.
  if (!raised.sealed.encoded()) {
    raised.skipped_layers.clear();
    raised.skip_windowed = false;
  }
  return raised;
}

std::vector<KvFormats> better_formats(const KvFormats& usual, std::span<const KvFormat> wanted) {
  std::vector<KvFormat> ascending(wanted.begin(), wanted.end());
  std::ranges::sort(ascending, {}, [](KvFormat format) { return kv_format_rank(format); });
  std::vector<KvFormats> better;
  for (const KvFormat format : ascending) {
    const int32_t best = kv_format_rank(better.empty() ? usual : better.back());
    if (kv_format_rank(format) > best) better.push_back(raised_to(usual, format));
  }
  return better;
}

BiasedFormats formats_for_biases(const KvFormats& formats, bool scales_chosen,
                                 std::span<const float> largest_key_biases) {
  // Beside 32, what keys are otherwise has a few codes of int8 left.
  constexpr float large_bias = 32;
  BiasedFormats found{formats, ""};
  std::string layers;
  float largest = 0;
  for (size_t layer = 0; layer < largest_key_biases.size(); ++layer) {
    if (largest_key_biases[layer] < large_bias ||
        std::ranges::count(formats.skipped_layers, static_cast<int32_t>(layer)) > 0)
      continue;
    largest = std::max(largest, largest_key_biases[layer]);
    layers += fmt::format("{}{}", layers.empty() ? "" : ", ", layer);
  }
  KvCode& keys = found.formats.sealed.keys;
  // Codes of fp8 are floats: large values take nothing from small ones.
  const bool bears_it = is_plain(keys.format) || keys.format == KvFormat::fp8_e4m3 || keys.format == KvFormat::fp8_e5m2;
  if (layers.empty() || (bears_it && !found.formats.rotate)) return found;
  if (keys.format == KvFormat::int8 && !scales_chosen) keys.scales = KvScales::per_channel;
  if (keys.scales == KvScales::per_channel && !found.formats.rotate) return found;
  found.warning = fmt::format(
      "keys of layers {} have a bias of up to {:.0f} in some channels, beside which {} lose the other channels: keep "
      "these layers (--kv-cache-dtype-skip-layers), or take int8 or int4 keys by channel, not rotated",
      layers, largest,
      found.formats.rotate ? "rotated codes" : fmt::format("codes of {} by token", kv_format_name(keys.format)));
  return found;
}

std::string kv_formats_text(const KvFormats& formats) {
  const auto& [keys, values] = formats.sealed;
  std::string text = kv_format_name(keys.format);
  if (keys.scales != usual_key_scales(keys.format)) {
    text += keys.scales == KvScales::per_channel ? " by channel" : " by token";
  }
  if (text != kv_format_name(values.format)) text += fmt::format(" keys, {} values", kv_format_name(values.format));
  if (formats.rotate) text += ", rotated";
  const size_t num_skipped = formats.skipped_layers.size();
  if (formats.skip_windowed) text += ", without windowed layers";
  if (num_skipped > 0) text += fmt::format(", without {} layer{}", num_skipped, num_skipped == 1 ? "" : "s");
  return text;
}

std::string kv_format_key(const KvFormats& formats, int32_t block_size) {
  const auto& [keys, values] = formats.sealed;
  std::string key = fmt::format("{}-{}-{}/{}", kv_format_name(keys.format),
                                keys.scales == KvScales::per_channel ? "channel" : "token",
                                kv_format_name(values.format), block_size);
  if (formats.rotate) key += "/hadamard";
  if (formats.skip_windowed) key += "/skip windows";
  for (int32_t layer : formats.skipped_layers) key += fmt::format("/skip {}", layer);
  return key;
}

Result<KvFormats> parse_kv_formats(std::string_view text) {
  KvFormatChoice choice;
  std::string_view rest = text;
  constexpr std::string_view rotation = "+rotation";
  if (rest.ends_with(rotation)) {
    choice.rotate = true;
    rest.remove_suffix(rotation.size());
  }
  const size_t slash = rest.find('/');
  const std::string_view values = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  std::string_view keys = rest.substr(0, slash);
  if (const size_t colon = keys.find(':'); colon != std::string_view::npos) {
    const std::string_view scales = keys.substr(colon + 1);
    keys = keys.substr(0, colon);
    if (scales == "token") choice.key_scales = KvScales::per_token;
    if (scales == "channel") choice.key_scales = KvScales::per_channel;
    if (!choice.key_scales) return error("keys have scales by token or by channel, not {}", printable(scales));
  }
  choice.both = kv_format_named(keys);
  if (!choice.both) return error("{} is no format of the KV cache; there are {}", printable(keys), kv_format_names());
  if (choice.key_scales == KvScales::per_channel && !takes_channel_scales(*choice.both)) {
    return error("{} has no scales by channel", keys);
  }
  if (slash != std::string_view::npos) {
    choice.values = kv_format_named(values);
    if (!choice.values) {
      return error("{} is no format of the KV cache; there are {}", printable(values), kv_format_names());
    }
  }
  return choice.formats();
}

}  // namespace tidemill
