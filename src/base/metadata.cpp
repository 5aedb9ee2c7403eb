#include "base/metadata.h"

namespace tidemill {
namespace {

Error missing(std::string_view key) {
  return error("metadata key '{}' is missing", key);
}

Error wrong_type(std::string_view key, const char* expected, const Metadata::Value& found) {
  return error("metadata key '{}' must be {}, but is {}", key, expected, Metadata::type_name(found));
}

}  // namespace

size_t Metadata::Array::size() const {
  return std::visit([](const auto& items) { return items.size(); }, values);
}

const Metadata::Value* Metadata::find(std::string_view key) const {
  auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const char* Metadata::type_name(const Value& value) {
  static constexpr const char* names[] = {"a boolean", "an integer", "an integer", "a number", "a string", "an array"};
  return names[value.index()];
}

Result<int64_t> Metadata::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const Value* value = find(key);
  if (!value) return fallback ? Result<int64_t>(*fallback) : Result<int64_t>(missing(key));
  if (auto* i = std::get_if<int64_t>(value)) return *i;
  if (auto* u = std::get_if<uint64_t>(value)) return error("metadata key '{}' is {}, above the limit 2^63-1", key, *u);
  return wrong_type(key, "an integer", *value);
}

Result<double> Metadata::number(std::string_view key, std::optional<double> fallback) const {
  const Value* value = find(key);
  if (!value) return fallback ? Result<double>(*fallback) : Result<double>(missing(key));
  if (auto* d = std::get_if<double>(value)) return *d;
  if (auto* i = std::get_if<int64_t>(value)) return static_cast<double>(*i);
  return wrong_type(key, "a number", *value);
}

Result<bool> Metadata::boolean(std::string_view key, std::optional<bool> fallback) const {
  const Value* value = find(key);
  if (!value) return fallback ? Result<bool>(*fallback) : Result<bool>(missing(key));
  if (auto* b = std::get_if<bool>(value)) return *b;
  return wrong_type(key, "a boolean", *value);
}

Result<std::string> Metadata::string(std::string_view key, std::optional<std::string> fallback) const {
  const Value* value = find(key);
  if (!value) return fallback ? Result<std::string>(*fallback) : Result<std::string>(missing(key));
  if (auto* s = std::get_if<std::string>(value)) return *s;
  return wrong_type(key, "a string", *value);
}

Result<const Metadata::Array*> Metadata::array(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return static_cast<const Array*>(nullptr);
  if (auto* a = std::get_if<Array>(value)) return a;
  return wrong_type(key, "an array", *value);
}

}  // namespace tidemill
