#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace tidemill {
namespace {

using Ids = std::vector<TokenId>;

// A random model over three letters: every merge joins two entries that came before it.
struct RandomModel {
  std::vector<std::string> texts;
  std::vector<std::pair<TokenId, TokenId>> pairs;
  std::unique_ptr<Vocabulary> vocabulary;
  std::unique_ptr<BpeModel> model;

  RandomModel(unsigned seed, size_t num_merges) {
    std::mt19937 random(seed);
    texts = {"a", "b", "c"};
    while (pairs.size() < num_merges) {
      const auto left = static_cast<TokenId>(random() % texts.size());
      const auto right = static_cast<TokenId>(random() % texts.size());
      const std::string joined = texts[left] + texts[right];
      if (joined.size() > 24 || std::find(texts.begin(), texts.end(), joined) != texts.end()) continue;
      texts.push_back(joined);
      pairs.emplace_back(left, right);
    }
    vocabulary = std::make_unique<Vocabulary>(texts, std::vector<TokenKind>(texts.size(), TokenKind::normal),
                                              TokenSpelling::byte_level);
    std::shuffle(pairs.begin(), pairs.end(), random);  // ranks need not follow the order of creation
    std::vector<MergeRule> rules;
    for (const auto& [left, right] : pairs) rules.push_back({texts[left], texts[right]});
    auto merges = merges_from_rules(*vocabulary, rules, "merges");
    EXPECT_TRUE(merges.ok());
    model = std::make_unique<BpeModel>(*vocabulary, std::move(*merges), BpeOptions{});
  }

  // The definition: find the best pair from scratch for each merge.
  Ids naive(const std::string& word) const {
    Ids ids;
    for (const char c : word) ids.push_back(c - 'a');
    while (true) {
      size_t best_rank = pairs.size(), best_at = 0;
      for (size_t at = 0; at + 1 < ids.size(); ++at) {
        const auto rank =
            static_cast<size_t>(std::find(pairs.begin(), pairs.end(), std::pair(ids[at], ids[at + 1])) - pairs.begin());
        if (rank < best_rank) std::tie(best_rank, best_at) = std::pair(rank, at);
      }
      if (best_rank == pairs.size()) return ids;
      ids[best_at] = *vocabulary->find(texts[ids[best_at]] + texts[ids[best_at + 1]]);
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
  }
};

Ids encode(const BpeModel& model, const std::string& word) {
  const auto scratch = model.make_scratch();
  Ids ids;
  model.encode(word, *scratch, ids);
  return ids;
}

TEST(Bpe, AgreesWithTheDefinitionForShortAndLongWords) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const RandomModel random_model(seed, 40);
    std::mt19937 random(seed);
    for (const size_t length : {1, 2, 3, 7, 20, 31, 32, 33, 34, 60, 200}) {
      std::string word(length, 'a');
      for (char& c : word) c = static_cast<char>('a' + random() % (seed % 3 + 1));
      ASSERT_EQ(encode(*random_model.model, word), random_model.naive(word)) << seed << " " << word;
    }
  }
}

TEST(Bpe, AgreesWithTheDefinitionAtFourKibibytes) {
  const RandomModel random_model(99, 60);
  std::mt19937 random(1);
  std::string letters(4096, 'a');
  for (char& c : letters) c = static_cast<char>('a' + random() % 3);
  std::string pairs;
  while (pairs.size() < 4096) pairs += "ab";
  for (const std::string& word : {letters, pairs, std::string(4096, 'b')}) {
    ASSERT_EQ(encode(*random_model.model, word), random_model.naive(word));
  }
}

}  // namespace
}  // namespace tidemill
