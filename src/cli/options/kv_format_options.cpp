#include "cli/options/kv_format_options.h"

#include "base/printable.h"
#include "cli/options/values.h"
#include "engine/engine_config.h"

namespace tidemill {
namespace {

constexpr int64_t max_layers = 1 << 20;

Result<void> set_format(const std::string& text, std::optional<KvFormat>& target) {
  if (text == "auto") {
    target.reset();
    return {};
  }
  const std::optional<KvFormat> format = kv_format_named(text);
  if (!format) return error("{} is not one of auto, {}", printable(text), kv_format_names());
  target = *format;
  return {};
}

// "0,1,sliding_window"
Result<void> set_skipped_layers(const std::string& text, KvFormatChoice& target) {
  target.skipped_layers.clear();
  target.skip_windowed = false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    if (item == "sliding_window") {
      target.skip_windowed = true;
      continue;
    }
    const Result<int64_t> layer = parse_scaled(item);
    if (!layer || *layer < 0 || *layer >= max_layers) {
      return error("{} is neither the number of a layer, from 0 on, nor 'sliding_window'", printable(item));
    }
    target.skipped_layers.push_back(static_cast<int32_t>(*layer));
  }
  return {};
}

// "fp16,fp32"
Result<void> set_request_formats(const std::string& text, std::vector<KvFormat>& target) {
  target.clear();
  if (text == "none") return {};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::optional<KvFormat> format = kv_format_named(item);
    if (!format) return error("{} is neither 'none' nor one of {}", printable(item), kv_format_names());
    if (target.size() == most_kv_formats - 1) {
      return error("requests may ask for at most {} formats besides the server's own", most_kv_formats - 1);
    }
    target.push_back(*format);
  }
  return {};
}

}  // namespace

void add_kv_format_options(OptionList& list, KvFormatChoice& target) {
  list.custom("--kv-cache-dtype", "FORMAT",
              "Number format of the KV cache: fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int4, nvfp4, q8_0 or q4_0; "
              "auto = the smallest that is as true as --kv-fidelity, measured once for a model file.",
              "fp16", [&target](const std::string& text) {
                target.measured = text == "auto";
                return set_format(text, target.both);
              });
  list.custom("--kv-cache-dtype-k,--cache-type-k", "FORMAT", "The same of keys alone.", "--kv-cache-dtype",
              [&target](const std::string& text) { return set_format(text, target.keys); });
  list.custom("--kv-cache-dtype-v,--cache-type-v", "FORMAT", "The same of values alone.", "--kv-cache-dtype",
              [&target](const std::string& text) { return set_format(text, target.values); });
  list.custom("--kv-cache-dtype-skip-layers", "LAYERS",
              "Layers that stay in fp16: numbers from 0 on, and 'sliding_window' for all that have a window, as "
              "0,1,sliding_window.",
              "none", [&target](const std::string& text) { return set_skipped_layers(text, target); });
  list.choice("--kv-key-scales", &target.key_scales,
              {{"auto", std::nullopt}, {"token", KvScales::per_token}, {"channel", KvScales::per_channel}},
              "What a scale of int8, int4 and fp8 keys covers: values of one position, or one channel of a block's "
              "positions; auto = channel for int4, and for int8 where keys have a large bias.");
  list.choice("--kv-rotation", &target.rotate, {{"auto", std::nullopt}, {"on", true}, {"off", false}},
              "Multiply keys and queries by a Hadamard matrix, which spreads outliers over channels; auto = off.");
}

void add_request_format_option(OptionList& list, std::vector<KvFormat>& target) {
  target = {KvFormat::int8, KvFormat::fp16, KvFormat::fp32};
  list.custom("--kv-request-formats", "FORMATS",
              "Formats that requests may ask for where they are more than --kv-cache-dtype, by kv_cache_dtype or "
              "kv_fidelity; their blocks are paid from the same bytes. none = no others.",
              "int8,fp16,fp32", [&target](const std::string& text) { return set_request_formats(text, target); });
}

void add_reencode_option(OptionList& list, std::optional<KvFormat>& target) {
  list.custom(
      "--kv-reencode", "FORMAT",
      "Before cold cached blocks in fp16 are dropped, encode them anew in this smaller format, for requests that "
      "ask for no more than that; off = never.",
      "off", [&target](const std::string& text) -> Result<void> {
        target = kv_format_named(text);
        if (!target && text != "off")
          return error("{} is neither 'off' nor one of {}", printable(text), kv_format_names());
        return {};
      });
}

}  // namespace tidemill
