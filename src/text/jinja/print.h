// Values as text: Python's str() and repr(), and the JSON of the tojson filter.
//
// The engine's own characters (quotes of repr, braces, digits, True) are trusted; the characters of a string keep their
// mark. Every result is bounded by RenderOptions::max_output_bytes.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace tidemill::jinja {

// What {{ value }} writes.
Text to_text(Runtime& runtime, const Value& value);
Text to_repr(Runtime& runtime, const Value& value);
// Shortest digits that read back as the same double, written as Python writes them: 1.0, 1e+16, inf.
std::string real_to_string(double value);
std::string integer_to_string(Integer value);

struct JsonStyle {
  std::optional<Text> indent;  // one level of it; absent: everything on one line
  Text item_separator{", ", true};
  Text key_separator{": ", true};
  bool ensure_ascii = false;
  bool sort_keys = false;
};
// Fails on values that JSON has no form for, such as undefined and iterators.
Text to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

// Appends and checks the size limit of one string.
void append_checked(Runtime& runtime, Text& out, const Text& more);
void append_checked(Runtime& runtime, Text& out, std::string_view bytes, bool trusted);

// A finished string as a value; its bytes are charged.
Value make_string(Runtime& runtime, Text text, bool markup = false);

}  // namespace tidemill::jinja
