// Checked access to the fields of a JSON object of a model file: a wrong type is an Error that names the place.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace tidemill {

// An object inside a document, and where it is ("tokenizer.json: model").
struct JsonPlace {
  const nlohmann::json& value;
  std::string path;

  // nullptr when absent or null.
  const nlohmann::json* find(const char* name) const {
    if (!value.is_object()) return nullptr;
    const auto field = value.find(name);
    return field == value.end() || field->is_null() ? nullptr : &*field;
  }
  JsonPlace at(const nlohmann::json& child, std::string_view name) const {
    return {child, path + "." + std::string(name)};
  }
  JsonPlace at(const nlohmann::json& child, size_t index) const {
    return {child, path + "[" + std::to_string(index) + "]"};
  }

  Result<std::string> string(const char* name, std::optional<std::string> fallback = {}) const {
    const auto* field = find(name);
    if (!field && fallback) return *fallback;
    if (!field || !field->is_string()) return error("{}.{} must be a string", path, name);
    return field->get<std::string>();
  }
  Result<bool> boolean(const char* name, bool fallback) const {
    const auto* field = find(name);
    if (!field) return fallback;
    if (!field->is_boolean()) return error("{}.{} must be true or false", path, name);
    return field->get<bool>();
  }
  // An integer of 0 or more that fits into 31 bits.
  Result<int32_t> index(const char* name) const {
    const auto* field = find(name);
    if (!field || !field->is_number_integer()) return error("{}.{} must be an integer", path, name);
    const auto number = field->get<int64_t>();
    if (number < 0 || number > 0x7FFFFFFF) return error("{}.{} is {}, outside 0 to 2^31-1", path, name, number);
    return static_cast<int32_t>(number);
  }
  // An array; nullptr when absent and not required.
  Result<const nlohmann::json*> array(const char* name, bool required = true) const {
    const auto* field = find(name);
    if (!field && !required) return static_cast<const nlohmann::json*>(nullptr);
    if (!field || !field->is_array()) return error("{}.{} must be an array", path, name);
    return field;
  }
};

}  // namespace tidemill
