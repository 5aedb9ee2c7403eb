#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "base/utf8.h"

namespace tidemill {

std::string printable(std::string_view text, size_t limit_bytes) {
  std::string out;
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Char c = decode_utf8(text, pos);
    const size_t length = c.valid ? c.length_bytes : 1;
    if (pos + length > limit_bytes) return out + "...";
    const auto first = static_cast<uint8_t>(text[pos]);
    if (!c.valid || first < 0x20 || first == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\x{:02X}", first);
    } else {
      out.append(text.substr(pos, length));
    }
    pos += length;
  }
  return out;
}

}  // namespace tidemill
