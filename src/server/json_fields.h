// A request body as JSON, and typed access to its fields.
//
// Bodies are hostile until proven otherwise: before a value is built, one pass bounds depth, keys per object and keys
// in all. UTF-8 is checked, a byte order mark is skipped, of two equal keys the last one counts, and a NUL byte or
// anything behind the value is an error. Error sentences hold positions, never the bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "server/errors.h"

namespace tidemill {

using Json = nlohmann::ordered_json;  // templates show objects in the order in which they were sent

inline constexpr int max_json_depth = 100;
inline constexpr int64_t max_keys_per_object = 2048;
inline constexpr int64_t max_keys = 200'000;

std::variant<Json, ApiError> parse_client_json(std::string_view text);

// One line, valid UTF-8 whatever the strings hold.
std::string to_line(const Json& value);

// Reads fields of one object and keeps the first error, so that a list of reads needs one check at its end. A field
// that is null counts as absent. Integers may be written as floats without a fraction (16.0, 1e3). `prefix` names the
// object in messages ("stream_options.").
class Fields {
 public:
  explicit Fields(const Json& object, std::string prefix = {}) : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(const char* name) const;  // nullptr when absent or null
  bool has(const char* name) const { return find(name) != nullptr; }
  bool boolean(const char* name, bool fallback);
  std::optional<bool> boolean(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most);
  std::optional<double> number(const char* name, double least, double most);
  std::optional<std::string> string(const char* name, size_t most_bytes);

  void fail(const std::string& name, const std::string& message);  // "NAME message"
  void fail(ApiError error);
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

// The integer that a JSON number stands for, if it is one and fits.
std::optional<int64_t> as_integer(const Json& value);
// "a string", "a number", ... for messages.
const char* kind_of(const Json& value);

}  // namespace tidemill
