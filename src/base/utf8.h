// UTF-8 as the Unicode standard defines it (table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
//
// Ill-formed input is cut into maximal subparts (section 3.9, "U+FFFD substitution of maximal subparts"): the longest
// prefix of a well-formed sequence, or one byte where there is none, counts as one error and swallows no neighbour.
// All functions are pure and linear in the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tidemill {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Char {
  char32_t code_point;   // U+FFFD when ill-formed
  uint8_t length_bytes;  // of the character, or of the maximal subpart
  bool valid;
  bool reaches_end;  // ill-formed only because the text ends here: more bytes could complete it
};

// The character that begins at text[at]; at < text.size().
Utf8Char decode_utf8(std::string_view text, size_t at);

void append_utf8(std::string& text, char32_t code_point);

bool is_valid_utf8(std::string_view text);

// The text with one U+FFFD for each maximal ill-formed subpart; valid text comes back unchanged.
std::string sanitize_utf8(std::string_view text);

}  // namespace tidemill
