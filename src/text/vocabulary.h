// The entries of a tokenizer: id -> text, raw bytes and kind; text -> id.
//
// The text is the entry as the model file spells it (byte-level vocabularies spell a blank as U+0120, SentencePiece as
// U+2581); the bytes are what the token stands for in decoded text. Byte-level texts are spelled in an alphabet of 256
// printable characters, one for each byte (GPT-2's); an entry with any other character stands for its own text.
// Immutable after construction; every method is const and safe from any thread. Views live as long as the vocabulary.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace tidemill {

enum class TokenKind : uint8_t { normal, unknown, control, user_defined, unused, byte };
enum class TokenSpelling : uint8_t { byte_level, sentence_piece };

class Vocabulary {
 public:
  // texts and kinds have the same size, below 2^31. Of two equal texts the one with the lower id is found.
  Vocabulary(std::span<const std::string> texts, std::vector<TokenKind> kinds, TokenSpelling spelling);

  size_t size() const { return kinds_.size(); }
  bool contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < kinds_.size(); }
  std::string_view text(TokenId id) const { return texts_.at(id); }
  std::string_view bytes(TokenId id) const { return bytes_.at(id); }
  TokenKind kind(TokenId id) const { return kinds_[id]; }
  TokenSpelling spelling() const { return spelling_; }

  std::optional<TokenId> find(std::string_view text) const { return text_index_.find(text, texts_); }
  // Only normal and user-defined entries: what ordinary text may become.
  std::optional<TokenId> find_ordinary(std::string_view bytes) const { return bytes_index_.find(bytes, bytes_); }
  // The token of one byte: the byte-level entry, or the entry of kind byte (<0x41>).
  std::optional<TokenId> byte_token(unsigned char byte) const;

 private:
  struct Strings {
    std::string arena;
    std::vector<size_t> ends{0};
    void add(std::string_view s);
    std::string_view at(size_t i) const { return std::string_view(arena).substr(ends[i], ends[i + 1] - ends[i]); }
  };
  // Open addressing over ids; the strings stay in their arena.
  class Index {
   public:
    void reserve(size_t num_entries);
    void insert(TokenId id, const Strings& strings);
    std::optional<TokenId> find(std::string_view key, const Strings& strings) const;

   private:
    std::vector<TokenId> slots_;
  };

  TokenSpelling spelling_;
  std::vector<TokenKind> kinds_;
  Strings texts_;
  Strings bytes_;
  Index text_index_;
  Index bytes_index_;
  std::vector<TokenId> byte_tokens_;  // [256], -1 where there is none
};

// The byte-level alphabet: the character that spells a byte, and back.
char32_t byte_level_character(unsigned char byte);
// nullopt when the text holds a character outside the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view text);
std::string byte_level_text(std::string_view bytes);

// The value of an entry spelled <0xNN>.
std::optional<unsigned char> byte_token_value(std::string_view text);

}  // namespace tidemill
