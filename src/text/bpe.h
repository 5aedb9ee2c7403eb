// Byte pair encoding (Sennrich et al. 2016): of all adjacent pairs that may merge, the one of the lowest rank merges
// first, the leftmost of equals, until none may. n symbols cost O(n log n).
//
// Byte-level models begin with one symbol per byte; SentencePiece models with one per character, and spell a character
// that is no token in byte tokens (<0xNN>), or as the unknown token.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace tidemill {

// (left, right) -> rank and merged token. Open addressing; at most 2^31 pairs.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    TokenId merged;
  };

  explicit MergeTable(size_t num_merges);
  // The first rank given to a pair counts.
  void insert(TokenId left, TokenId right, Merge merge);
  const Merge* find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t first_slot(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull) >> shift_; }

  std::vector<Slot> slots_;
  int shift_;
};

struct MergeRule {
  std::string_view left;
  std::string_view right;
};

// The merges of a model file, best first. `key` names their place in the file for the error: a part or a result that is
// no entry of the vocabulary, or one that is a control token.
Result<MergeTable> merges_from_rules(const Vocabulary& vocabulary, std::span<const MergeRule> rules,
                                     std::string_view key);
// "left right", one blank between two non-empty parts.
Result<MergeRule> parse_merge_rule(std::string_view rule, size_t index, std::string_view key);

// SentencePiece's rule: a pair may merge when its joined text is an entry, the higher score first.
MergeTable merges_from_scores(const Vocabulary& vocabulary, std::span<const double> scores);

struct BpeOptions {
  bool ignore_merges = false;      // a word that is an entry becomes that token at once
  bool byte_fallback = false;      // characters that are no entry become their bytes' tokens
  bool fuse_unknown = false;       // neighbouring unknown characters become one unknown token
  std::optional<TokenId> unknown;  // without it, what cannot be spelled is left out
};

class BpeModel final : public WordModel {
 public:
  // The vocabulary must outlive the model.
  BpeModel(const Vocabulary& vocabulary, MergeTable merges, BpeOptions options);

  std::unique_ptr<Scratch> make_scratch() const override;
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& tokens) const override;

 private:
  struct Symbols;
  void split_bytes(std::string_view word, std::vector<TokenId>& symbols) const;
  void split_characters(std::string_view word, std::vector<TokenId>& symbols) const;
  void merge_short(Symbols& symbols) const;
  void merge_long(Symbols& symbols) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::vector<TokenId> byte_symbols_;  // [256], -1 where a byte has no token
};

}  // namespace tidemill
