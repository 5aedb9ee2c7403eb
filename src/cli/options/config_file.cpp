#include "cli/options/config_file.h"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/printable.h"

namespace tidemill {
namespace {

constexpr uintmax_t max_file_bytes = 1 << 20;

Result<std::vector<std::string>> values_of(const YAML::Node& node, const std::string& key) {
  std::vector<std::string> values;
  if (node.IsScalar()) {
    values.push_back(node.Scalar());
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) return error("'{}' holds a list of something else than plain values", printable(key));
      values.push_back(item.Scalar());
    }
  } else if (!node.IsNull()) {
    return error("'{}' is a mapping; a plain value or a list was expected", printable(key));
  }
  return values;
}

Result<ConfigEntries> entries_of(const YAML::Node& root) {
  ConfigEntries entries;
  if (root.IsNull()) return entries;
  if (!root.IsMap()) return error("it is not a mapping of option names to values");
  for (const auto& item : root) {
    const std::string key = item.first.Scalar();
    Result<std::vector<std::string>> values = values_of(item.second, key);
    if (!values) return values.error();
    entries.emplace_back(key, *std::move(values));
  }
  return entries;
}

}  // namespace

Result<ConfigEntries> read_config_file(const std::filesystem::path& path) {
  std::error_code code;
  const uintmax_t size = std::filesystem::file_size(path, code);
  if (code) return error("configuration file {}: {}", path.string(), code.message());
  if (size > max_file_bytes) {
    return error("configuration file {}: {} bytes, the limit is {}", path.string(), size, max_file_bytes);
  }
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.good() && !in.eof()) return error("configuration file {}: it cannot be read", path.string());
  try {
    Result<ConfigEntries> entries = entries_of(YAML::Load(text));
    if (!entries) return error("configuration file {}: {}", path.string(), entries.error().message);
    return entries;
  } catch (const YAML::Exception& fault) {
    return error("configuration file {}, line {}: {}", path.string(), fault.mark.line + 1, fault.msg);
  }
}

}  // namespace tidemill
