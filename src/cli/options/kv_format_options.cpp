#include "cli/options/kv_format_options.h"

#include "base/printable.h"
#include "cli/options/values.h"

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
              "positions; auto = channel for int4.");
  list.choice("--kv-rotation", &target.rotate, {{"auto", std::nullopt}, {"on", true}, {"off", false}},
              "Multiply keys and queries by a Hadamard matrix, which spreads outliers over channels; auto = off.");
}

}  // namespace tidemill
