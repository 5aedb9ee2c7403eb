#include "server/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace tidemill {
namespace {

// Brackets and keys outside of strings, without recursion and without believing that the text is JSON.
std::optional<std::string> check_shape(std::string_view text) {
  std::vector<int64_t> keys;  // of every open bracket
  int64_t all_keys = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0') return fmt::format("the body has a NUL byte at position {}", i);
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') {
      keys.push_back(0);
      if (keys.size() > max_json_depth) return fmt::format("the body is nested more than {} deep", max_json_depth);
    }
    if ((c == '}' || c == ']') && !keys.empty()) keys.pop_back();
    if (c == ':' && !keys.empty()) {
      if (++keys.back() > max_keys_per_object)
        return fmt::format("an object has more than {} keys", max_keys_per_object);
      if (++all_keys > max_keys) return fmt::format("the body has more than {} keys", max_keys);
    }
  }
  return std::nullopt;
}

}  // namespace

std::variant<Json, ApiError> parse_client_json(std::string_view text) {
  if (text.empty()) return bad_request("the body is empty, a JSON object is needed");
  if (std::optional<std::string> problem = check_shape(text)) return bad_request(*problem);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& problem) {
    // The library's own sentence quotes the bytes it stumbled over, which may be anything.
    return bad_request(fmt::format("the body is not valid JSON in UTF-8, near byte {}", problem.byte));
  } catch (const std::exception&) {
    return bad_request("the body has a number that is out of range");
  }
}

std::string to_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return number <= INT64_MAX ? std::optional<int64_t>(static_cast<int64_t>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (number != std::floor(number) || number < -0x1p63 || number >= 0x1p63) return std::nullopt;
  return static_cast<int64_t>(number);
}

const char* kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return "a number";
  }
}

const Json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::boolean(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) {
    fail(name, fmt::format("must be true or false, not {}", kind_of(*value)));
    return std::nullopt;
  }
  return value->get<bool>();
}

bool Fields::boolean(const char* name, bool fallback) {
  return boolean(name).value_or(fallback);
}

std::optional<int64_t> Fields::integer(const char* name, int64_t least, int64_t most) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) {
    fail(name, fmt::format("must be an integer, not {}", kind_of(*value)));
    return std::nullopt;
  }
  const std::optional<int64_t> number = as_integer(*value);
  if (!number || *number < least || *number > most) {
    fail(name, fmt::format("must be an integer from {} to {}, not {}", least, most, to_line(*value)));
    return std::nullopt;
  }
  return number;
}

std::optional<double> Fields::number(const char* name, double least, double most) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) {
    fail(name, fmt::format("must be a number, not {}", kind_of(*value)));
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (!(number >= least && number <= most)) {
    fail(name, fmt::format("must be from {} to {}, not {}", least, most, to_line(*value)));
    return std::nullopt;
  }
  return number;
}

std::optional<std::string> Fields::string(const char* name, size_t most_bytes) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) {
    fail(name, fmt::format("must be a string, not {}", kind_of(*value)));
    return std::nullopt;
  }
  const std::string& text = value->get_ref<const std::string&>();
  if (text.size() > most_bytes) {
    fail(name, fmt::format("has {} bytes, at most {} are allowed", text.size(), most_bytes));
    return std::nullopt;
  }
  return text;
}

void Fields::fail(const std::string& name, const std::string& message) {
  fail(bad_request(prefix_ + name + " " + message, prefix_ + name));
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

}  // namespace tidemill
