#include "text/vocabulary.h"

#include <array>
#include <bit>
#include <charconv>
#include <functional>

#include "base/check.h"
#include "base/utf8.h"
#include "text/preparation/blanks.h"

namespace tidemill {
namespace {

// The alphabet keeps the printable Latin-1 characters and gives the other 68 bytes, in order, U+0100 and up.
struct ByteAlphabet {
  std::array<char32_t, 256> character;
  std::array<int16_t, 324> byte;
  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

std::string blanks_from_marks(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at, blank_mark.size()) == blank_mark) {
      bytes.push_back(' ');
      at += blank_mark.size();
    } else {
      bytes.push_back(text[at++]);
    }
  }
  return bytes;
}

std::string bytes_of(std::string_view text, TokenKind kind, TokenSpelling spelling) {
  if (kind == TokenKind::byte) {
    if (auto byte = byte_token_value(text)) return std::string(1, static_cast<char>(*byte));
  }
  if (kind == TokenKind::control || kind == TokenKind::user_defined || kind == TokenKind::unknown) {
    return std::string(text);
  }
  if (spelling == TokenSpelling::sentence_piece) return blanks_from_marks(text);
  if (auto bytes = byte_level_bytes(text)) return *std::move(bytes);
  return std::string(text);
}

}  // namespace

char32_t byte_level_character(unsigned char byte) {
  return byte_alphabet().character[byte];
}

std::optional<std::string> byte_level_bytes(std::string_view text) {
  const ByteAlphabet& alphabet = byte_alphabet();
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid || c.code_point >= alphabet.byte.size() || alphabet.byte[c.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet.byte[c.code_point]));
    at += c.length_bytes;
  }
  return bytes;
}

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, byte_level_character(static_cast<unsigned char>(byte)));
  return text;
}

std::optional<unsigned char> byte_token_value(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, failure] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  if (failure != std::errc() || end != text.data() + 5) return std::nullopt;
  return static_cast<unsigned char>(value);
}

void Vocabulary::Strings::add(std::string_view s) {
  arena.append(s);
  ends.push_back(arena.size());
}

void Vocabulary::Index::reserve(size_t num_entries) {
  slots_.assign(std::bit_ceil(num_entries * 2 + 2), -1);
}

void Vocabulary::Index::insert(TokenId id, const Strings& strings) {
  const std::string_view key = strings.at(id);
  size_t slot = std::hash<std::string_view>()(key) & (slots_.size() - 1);
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (strings.at(slots_[slot]) == key) return;
  }
  slots_[slot] = id;
}

std::optional<TokenId> Vocabulary::Index::find(std::string_view key, const Strings& strings) const {
  size_t slot = std::hash<std::string_view>()(key) & (slots_.size() - 1);
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (strings.at(slots_[slot]) == key) return slots_[slot];
  }
  return std::nullopt;
}

Vocabulary::Vocabulary(std::span<const std::string> texts, std::vector<TokenKind> kinds, TokenSpelling spelling)
    : spelling_(spelling), kinds_(std::move(kinds)), byte_tokens_(256, -1) {
  TM_CHECK(texts.size() == kinds_.size(), "vocabulary: a kind for each text");
  text_index_.reserve(texts.size());
  bytes_index_.reserve(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    texts_.add(texts[i]);
    bytes_.add(bytes_of(texts[i], kinds_[i], spelling));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    text_index_.insert(id, texts_);
    if (kinds_[i] == TokenKind::normal || kinds_[i] == TokenKind::user_defined) bytes_index_.insert(id, bytes_);
    const bool is_byte =
        spelling == TokenSpelling::byte_level ? kinds_[i] == TokenKind::normal : kinds_[i] == TokenKind::byte;
    if (is_byte && bytes(id).size() == 1) {
      TokenId& slot = byte_tokens_[static_cast<unsigned char>(bytes(id)[0])];
      if (slot < 0) slot = id;
    }
  }
}

std::optional<TokenId> Vocabulary::byte_token(unsigned char byte) const {
  const TokenId id = byte_tokens_[byte];
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

}  // namespace tidemill
