// Unicode as Python's str sees it: code points, white space, character classes, case mapping.
//
// Stateless functions over UTF-8 bytes; a byte that is not valid UTF-8 counts as one code point of its own value, so
// that nothing here fails. Case mapping is the full one (one character may become several), without language rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/text.h"

namespace tidemill::jinja {

struct CodePoint {
  int32_t value;
  size_t size_bytes;
};

// The code point that starts at `offset`, which must be inside the string.
CodePoint code_point_at(std::string_view bytes, size_t offset);
size_t count_code_points(std::string_view bytes);
// Byte offset of the index-th code point; the size of the string if it has fewer.
size_t offset_of_code_point(std::string_view bytes, size_t index);

bool is_space(int32_t value);
bool is_alphabetic(int32_t value);
bool is_decimal(int32_t value);
bool is_digit(int32_t value);
bool is_numeric(int32_t value);
bool is_upper(int32_t value);
bool is_lower(int32_t value);
bool is_cased(int32_t value);
bool is_printable(int32_t value);
bool is_identifier(std::string_view bytes);

// Appends the mapped characters of one code point.
void append_upper(std::string& out, int32_t value);
void append_lower(std::string& out, int32_t value);
void append_title(std::string& out, int32_t value);

// Whole strings; marks of origin are kept per character.
Text to_upper(const Text& text);
Text to_lower(const Text& text);
// Python's str.title (a letter after a non-letter is capital) and str.capitalize (the first character only).
Text to_title(const Text& text);
Text to_capitalized(const Text& text);
Text swap_case(const Text& text);

}  // namespace tidemill::jinja
