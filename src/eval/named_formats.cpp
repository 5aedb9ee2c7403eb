#include "eval/named_formats.h"

#include <algorithm>

namespace tidemill {
namespace {

constexpr int32_t num_end_layers = 2;

std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(mark, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<int32_t> end_layers(int32_t num_layers) {
  std::vector<int32_t> layers;
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    if (layer < num_end_layers || layer >= num_layers - num_end_layers) layers.push_back(layer);
  }
  return layers;
}

bool is_half_or_wider(KvFormat format) {
  return format == KvFormat::fp32 || format == KvFormat::fp16;
}

}  // namespace

bool is_exact(const KvFormats& formats) {
  return is_half_or_wider(formats.sealed.keys.format) && is_half_or_wider(formats.sealed.values.format);
}

Result<NamedKvFormats> kv_formats_named(std::string_view name, int32_t num_layers) {
  std::string rest;
  bool windows = false, ends = false;
  for (const std::string_view word : split(name, '+')) {
    if (word == "windows") {
      windows = true;
    } else if (word == "ends") {
      ends = true;
    } else {
      rest += (rest.empty() ? "" : "+") + std::string(word);
    }
  }
  Result<KvFormats> formats = parse_kv_formats(rest);
  if (!formats) return formats.error();
  formats->skip_windowed = windows;
  if (ends) formats->skipped_layers = end_layers(num_layers);
  const bool exact = is_exact(*formats);
  return NamedKvFormats{std::string(name), *std::move(formats), exact};
}

Result<std::vector<NamedKvFormats>> kv_format_list(std::string_view names, int32_t num_layers) {
  std::vector<NamedKvFormats> formats;
  for (const std::string_view name : split(names, ',')) {
    Result<NamedKvFormats> format = kv_formats_named(name, num_layers);
    if (!format) return format.error();
    formats.push_back(*std::move(format));
  }
  return formats;
}

}  // namespace tidemill
