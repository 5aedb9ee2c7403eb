#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace tidemill {

size_t utf8_length_at(std::string_view text, size_t pos) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[pos + i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() - pos < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  if (first == 0xE0 && second < 0xA0) return 0;  // overlong
  if (first == 0xED && second > 0x9F) return 0;  // surrogate
  if (first == 0xF0 && second < 0x90) return 0;  // overlong
  if (first == 0xF4 && second > 0x8F) return 0;  // above U+10FFFF
  return length;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = utf8_length_at(text, pos);
    if (length == 0) return false;
    pos += length;
  }
  return true;
}

std::string printable(std::string_view text, size_t limit_bytes) {
  std::string out;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t length = utf8_length_at(text, pos);
    const size_t advance = length == 0 ? 1 : length;
    if (pos + advance > limit_bytes) return out + "...";
    const auto first = static_cast<uint8_t>(text[pos]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\x{:02X}", first);
    } else {
      out.append(text.substr(pos, length));
    }
    pos += advance;
  }
  return out;
}

}  // namespace tidemill
