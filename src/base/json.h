// JSON from outside, parsed with its nesting bounded before anything is built.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace tidemill {

// An Error says where the text stops being JSON, or that it is nested deeper than max_depth. Keys that appear twice
// keep the last value, as everywhere; text behind the value is an Error; a byte order mark in front is skipped.
Result<nlohmann::json> parse_json(std::string_view text, size_t max_depth = 64);

// The deepest nesting of brackets outside strings. Runs over any bytes, JSON or not, without recursion.
size_t json_depth(std::string_view text);

}  // namespace tidemill
