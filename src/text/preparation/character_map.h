// SentencePiece's precompiled normalization table: the longest entry that begins at a position is replaced.
//
// The table is a double-array trie (Darts-clone: 32-bit units) and a block of zero-terminated replacements. It comes
// from a model file, so every index is checked while walking. Immutable, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemill {

class CharacterMap {
 public:
  // u32 size of the trie in bytes (little-endian), the trie, the replacements.
  static Result<CharacterMap> parse(std::string_view blob);
  std::string apply(std::string_view text) const;

 private:
  // Bytes of text that the longest entry covers (0: none), and its replacement.
  size_t longest(std::string_view text, std::string_view& replacement) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace tidemill
