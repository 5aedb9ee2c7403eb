#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace tidemill {

size_t json_depth(std::string_view text) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

Result<nlohmann::json> parse_json(std::string_view text, size_t max_depth) {
  if (const size_t depth = json_depth(text); depth > max_depth) {
    return error("JSON is nested {} deep, above the limit of {}", depth, max_depth);
  }
  // The library throws; the exception ends here.
  try {
    auto value = nlohmann::json::parse(text.begin(), text.end());
    return value;
  } catch (const nlohmann::json::parse_error& failure) {
    const size_t at = std::min(failure.byte, text.size());
    const size_t from = at > 20 ? at - 20 : 0;
    return error("is not valid JSON at byte {}, near '{}'", failure.byte, printable(text.substr(from, 40)));
  } catch (const nlohmann::json::exception& failure) {
    return error("is not valid JSON: {}", printable(failure.what(), 120));
  }
}

}  // namespace tidemill
