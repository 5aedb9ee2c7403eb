#include "base/utf8.h"

#include <cstring>

namespace tidemill {
namespace {

// Number of leading bytes that are ASCII, looked at eight at a time.
size_t ascii_prefix(std::string_view text, size_t at) {
  size_t end = at;
  while (end + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + end, 8);
    if (word & 0x8080808080808080ull) break;
    end += 8;
  }
  while (end < text.size() && static_cast<unsigned char>(text[end]) < 0x80) ++end;
  return end - at;
}

struct Lead {
  uint8_t length;          // 0: cannot begin a character
  uint8_t second_min = 0;  // range of the second byte; later ones are 80..BF
  uint8_t second_max = 0;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte_at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte_at(at);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {0xFFFD, 1, false, false};
  char32_t code_point = first & (0xFF >> (lead.length + 1));
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, false, true};
    const unsigned char next = byte_at(at + i);
    const bool fits = i == 1 ? next >= lead.second_min && next <= lead.second_max : (next & 0xC0) == 0x80;
    if (!fits) return {0xFFFD, i, false, false};
    code_point = code_point << 6 | (next & 0x3F);
  }
  return {code_point, lead.length, true, false};
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xC0 | code_point >> 6);
    add(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    add(0xE0 | code_point >> 12);
    add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  } else {
    add(0xF0 | code_point >> 18);
    add(0x80 | (code_point >> 12 & 0x3F));
    add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = ascii_prefix(text, 0); at < text.size(); at += ascii_prefix(text, at)) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) return false;
    at += c.length_bytes;
  }
  return true;
}

std::string sanitize_utf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t num_ascii = ascii_prefix(text, at);
    clean.append(text, at, num_ascii);
    at += num_ascii;
    if (at == text.size()) break;
    const Utf8Char c = decode_utf8(text, at);
    clean.append(c.valid ? text.substr(at, c.length_bytes) : replacement_character);
    at += c.length_bytes;
  }
  return clean;
}

}  // namespace tidemill
