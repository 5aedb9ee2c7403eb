// Unigram language model (Kudo 2018): of all ways to cut a word into entries, the one whose scores (log-probabilities)
// add up to the most, found by Viterbi's algorithm; of equals the one found first. n bytes cost O(n x longest entry).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "text/byte_trie.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

namespace tidemill {

struct UnigramOptions {
  std::optional<TokenId> unknown;  // runs of unknown characters become one; without it they are left out
  bool byte_fallback = false;      // unknown characters become their bytes' tokens where all exist
};

class UnigramModel final : public WordModel {
 public:
  // scores: [vocabulary], finite or minus infinity. The vocabulary must outlive the model.
  UnigramModel(const Vocabulary& vocabulary, std::span<const double> scores, UnigramOptions options);

  std::unique_ptr<Scratch> make_scratch() const override;
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& tokens) const override;

 private:
  struct Lattice;
  void fill(std::string_view word, Lattice& lattice) const;
  void add_unknown(std::string_view characters, std::vector<TokenId>& tokens) const;

  const Vocabulary& vocabulary_;
  ByteTrie entries_;
  std::vector<double> scores_;
  double unknown_score_;
  UnigramOptions options_;
};

}  // namespace tidemill
