#include "model/config_reader.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace tidemill {
namespace {

template <typename T>
Result<std::optional<T>> optional_of(Result<T> result) {
  if (!result) return result.error();
  return std::optional<T>(*std::move(result));
}

// What stands in the file, short enough for a message.
std::string shown_value(const nlohmann::json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  return printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 40);
}

}  // namespace

Result<std::optional<int64_t>> MetadataValues::integer(std::string_view key) const {
  if (!metadata_.has(full(key))) return std::optional<int64_t>();
  return optional_of(metadata_.integer(full(key)));
}

Result<std::optional<double>> MetadataValues::number(std::string_view key) const {
  if (!metadata_.has(full(key))) return std::optional<double>();
  return optional_of(metadata_.number(full(key)));
}

Result<std::optional<bool>> MetadataValues::boolean(std::string_view key) const {
  if (!metadata_.has(full(key))) return std::optional<bool>();
  return optional_of(metadata_.boolean(full(key)));
}

Result<std::optional<std::string>> MetadataValues::string(std::string_view key) const {
  if (!metadata_.has(full(key))) return std::optional<std::string>();
  return optional_of(metadata_.string(full(key)));
}

Result<std::optional<std::vector<int64_t>>> MetadataValues::integers(std::string_view key) const {
  using List = std::optional<std::vector<int64_t>>;
  if (!metadata_.has(full(key))) return List();
  if (!is_list(key)) {
    auto one = metadata_.integer(full(key));
    if (!one) return one.error();
    return List(std::vector<int64_t>{*one});
  }
  const Metadata::Array& array = **metadata_.array(full(key));
  if (auto* values = std::get_if<std::vector<int64_t>>(&array.values)) return List(*values);
  return error("{} must be an array of integers, but its elements are {}", shown(key), array.element_type);
}

bool MetadataValues::is_list(std::string_view key) const {
  const Metadata::Value* value = metadata_.find(full(key));
  return value && std::holds_alternative<Metadata::Array>(*value);
}

std::string MetadataValues::shown(std::string_view key) const {
  return fmt::format("metadata key '{}'", printable(full(key)));
}

const nlohmann::json* JsonValues::member(std::string_view key) const {
  auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::string JsonValues::shown(std::string_view key) const {
  return fmt::format("'{}' in config.json", key);
}

Result<std::optional<int64_t>> JsonValues::integer(std::string_view key) const {
  const auto* value = member(key);
  if (!value) return std::optional<int64_t>();
  const bool fits = !value->is_number_unsigned() ||
                    value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value->is_number_integer() || !fits) {
    return error("{} must be an integer, but is {}", shown(key), shown_value(*value));
  }
  return std::optional<int64_t>(value->get<int64_t>());
}

Result<std::optional<double>> JsonValues::number(std::string_view key) const {
  const auto* value = member(key);
  if (!value) return std::optional<double>();
  if (!value->is_number()) return error("{} must be a number, but is {}", shown(key), shown_value(*value));
  return std::optional<double>(value->get<double>());
}

Result<std::optional<bool>> JsonValues::boolean(std::string_view key) const {
  const auto* value = member(key);
  if (!value) return std::optional<bool>();
  if (!value->is_boolean()) return error("{} must be true or false, but is {}", shown(key), shown_value(*value));
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<std::string>> JsonValues::string(std::string_view key) const {
  const auto* value = member(key);
  if (!value) return std::optional<std::string>();
  if (!value->is_string()) return error("{} must be a string, but is {}", shown(key), shown_value(*value));
  return std::optional<std::string>(value->get<std::string>());
}

Result<std::optional<std::vector<int64_t>>> JsonValues::integers(std::string_view key) const {
  using List = std::optional<std::vector<int64_t>>;
  const auto* value = member(key);
  if (!value) return List();
  if (!value->is_array()) {
    auto one = integer(key);
    if (!one) return one.error();
    return List(std::vector<int64_t>{**one});
  }
  List list(std::in_place);
  for (const auto& item : *value) {
    if (!item.is_number_integer()) {
      return error("{} must be a list of integers, but holds {}", shown(key), shown_value(item));
    }
    list->push_back(item.get<int64_t>());
  }
  return list;
}

Result<std::optional<std::vector<double>>> JsonValues::numbers(std::string_view key) const {
  using List = std::optional<std::vector<double>>;
  const auto* value = member(key);
  if (!value) return List();
  if (!value->is_array()) return error("{} must be a list of numbers, but is {}", shown(key), shown_value(*value));
  List list(std::in_place);
  for (const auto& item : *value) {
    if (!item.is_number()) {
      return error("{} must be a list of numbers, but holds {}", shown(key), shown_value(item));
    }
    list->push_back(item.get<double>());
  }
  return list;
}

Result<std::optional<std::vector<std::string>>> JsonValues::strings(std::string_view key) const {
  using List = std::optional<std::vector<std::string>>;
  const auto* value = member(key);
  if (!value) return List();
  if (!value->is_array()) return error("{} must be a list of strings, but is {}", shown(key), shown_value(*value));
  List list(std::in_place);
  for (const auto& item : *value) {
    if (!item.is_string()) {
      return error("{} must be a list of strings, but holds {}", shown(key), shown_value(item));
    }
    list->push_back(item.get<std::string>());
  }
  return list;
}

const nlohmann::json* JsonValues::object(std::string_view key) const {
  const auto* value = member(key);
  return value && value->is_object() ? value : nullptr;
}

bool JsonValues::is_list(std::string_view key) const {
  const auto* value = member(key);
  return value && value->is_array();
}

std::optional<int64_t> ConfigReader::integer(std::string_view key, Range<int64_t> range) {
  auto value = take(values_.integer(key));
  if (value && (*value < range.least || *value > range.most)) {
    fail(error("{} is {}, but must be {} to {}", shown(key), *value, range.least, range.most));
    return std::nullopt;
  }
  return value;
}

int32_t ConfigReader::required(std::string_view key, Range<int64_t> range) {
  auto value = integer(key, range);
  if (!value) fail(error("{} is missing", shown(key)));
  return static_cast<int32_t>(value.value_or(range.least));
}

int32_t ConfigReader::integer_or(std::string_view key, Range<int64_t> range, int64_t fallback) {
  return static_cast<int32_t>(integer(key, range).value_or(fallback));
}

std::optional<double> ConfigReader::number(std::string_view key, Range<double> range) {
  auto value = take(values_.number(key));
  if (value && !(*value >= range.least && *value <= range.most)) {
    fail(error("{} is {:g}, but must be {:g} to {:g}", shown(key), *value, range.least, range.most));
    return std::nullopt;
  }
  return value;
}

std::vector<int32_t> ConfigReader::per_layer(std::string_view key, Range<int64_t> range, int32_t num_layers) {
  auto list = take(values_.integers(key));
  if (!list) return {};
  if (!values_.is_list(key)) list->assign(static_cast<size_t>(num_layers), list->front());
  if (list->size() != static_cast<size_t>(num_layers)) {
    fail(error("{} has {} elements, but there are {} layers", shown(key), list->size(), num_layers));
    return {};
  }
  std::vector<int32_t> values;
  for (int64_t value : *list) {
    if (value < range.least || value > range.most) {
      fail(error("{} is {}, but must be {} to {}", shown(key), value, range.least, range.most));
      return {};
    }
    values.push_back(static_cast<int32_t>(value));
  }
  return values;
}

}  // namespace tidemill
