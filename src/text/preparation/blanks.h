// What counts as a blank, and how SentencePiece spells the one between words.
#pragma once

#include <string_view>

namespace tidemill {

inline constexpr std::string_view blank_mark = "\xE2\x96\x81";  // U+2581

// Unicode's White_Space property.
constexpr bool is_blank(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace tidemill
