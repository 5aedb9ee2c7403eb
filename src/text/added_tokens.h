// Finds the texts of control and added tokens in an input, the leftmost first and of those the longest.
//
// Immutable, safe from any thread. Linear in the text for a fixed vocabulary: at most the longest added text is looked
// at from each position that an added text may begin with.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/byte_trie.h"

namespace tidemill {

struct AddedToken {
  TokenId id;
  std::string text;          // not empty
  bool control = false;      // found only in trusted text
  bool strip_left = false;   // takes the blanks before it along
  bool strip_right = false;  // and those behind
  bool whole_word = false;   // only where no letter or digit stands next to it
};

// Which bytes of a text are not trusted: [begin, end) ranges in order, not overlapping.
class UntrustedRanges {
 public:
  void add(size_t begin, size_t end);
  bool touches(size_t begin, size_t end) const;

 private:
  std::vector<std::pair<size_t, size_t>> ranges_;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    size_t begin, end;  // with the blanks that the token takes along
    TokenId id;
  };
  bool empty() const { return trie_.empty(); }
  // The next match that begins at or after `from`.
  std::optional<Match> next(std::string_view text, size_t from, const UntrustedRanges& untrusted) const;

 private:
  std::optional<Match> match_at(std::string_view text, size_t at, const UntrustedRanges& untrusted) const;

  ByteTrie trie_;  // value: index into tokens_
  std::vector<AddedToken> tokens_;
};

}  // namespace tidemill
