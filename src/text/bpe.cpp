#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "base/printable.h"
#include "base/utf8.h"

namespace tidemill {
namespace {

constexpr uint64_t empty_key = std::numeric_limits<uint64_t>::max();
constexpr uint32_t no_rank = std::numeric_limits<uint32_t>::max();
// Up to here a scan for the best pair beats the heap (measured on English text: the two are equal at about 40 symbols).
constexpr size_t short_word_symbols = 32;

bool may_result(TokenKind kind) {
  return kind == TokenKind::normal || kind == TokenKind::user_defined;
}

}  // namespace

MergeTable::MergeTable(size_t num_merges) {
  const size_t num_slots = std::bit_ceil(num_merges * 2 + 2);
  slots_.assign(num_slots, {empty_key, {}});
  shift_ = 64 - std::countr_zero(num_slots);
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t slot = first_slot(key);
  for (; slots_[slot].key != empty_key; slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].key == key) return;
  }
  slots_[slot] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const {
  const uint64_t key = key_of(left, right);
  for (size_t slot = first_slot(key); slots_[slot].key != empty_key; slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].key == key) return &slots_[slot].merge;
  }
  return nullptr;
}

Result<MergeRule> parse_merge_rule(std::string_view rule, size_t index, std::string_view key) {
  const size_t blank = rule.find(' ');
  if (blank == std::string_view::npos || blank == 0 || blank + 1 == rule.size() ||
      rule.find(' ', blank + 1) != std::string_view::npos) {
    return error("{}[{}] is '{}', not two parts with one blank between them", key, index, printable(rule, 200));
  }
  return MergeRule{rule.substr(0, blank), rule.substr(blank + 1)};
}

Result<MergeTable> merges_from_rules(const Vocabulary& vocabulary, std::span<const MergeRule> rules,
                                     std::string_view key) {
  MergeTable merges(rules.size());
  std::string joined;
  for (size_t i = 0; i < rules.size(); ++i) {
    joined.assign(rules[i].left).append(rules[i].right);
    const auto left = vocabulary.find(rules[i].left);
    const auto right = vocabulary.find(rules[i].right);
    const auto merged = vocabulary.find(joined);
    if (!left || !right || !merged) {
      const std::string_view absent = !left ? rules[i].left : !right ? rules[i].right : std::string_view(joined);
      return error("{}[{}] names '{}', which is no token of the vocabulary", key, i, printable(absent, 200));
    }
    // Ordinary text must never become a control token, whatever the merges say.
    if (!may_result(vocabulary.kind(*merged))) continue;
    merges.insert(*left, *right, {static_cast<uint32_t>(i), *merged});
  }
  return merges;
}

MergeTable merges_from_scores(const Vocabulary& vocabulary, std::span<const double> scores) {
  struct Pair {
    TokenId left, right, merged;
  };
  std::vector<Pair> pairs;
  std::vector<double> distinct;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto merged = static_cast<TokenId>(i);
    if (!may_result(vocabulary.kind(merged))) continue;
    const std::string_view text = vocabulary.text(merged);
    const size_t num_before = pairs.size();
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((text[cut] & 0xC0) == 0x80) continue;
      const auto left = vocabulary.find(text.substr(0, cut));
      if (!left || !may_result(vocabulary.kind(*left))) continue;
      const auto right = vocabulary.find(text.substr(cut));
      if (right && may_result(vocabulary.kind(*right))) pairs.push_back({*left, *right, merged});
    }
    if (pairs.size() > num_before) distinct.push_back(scores[i]);
  }
  // Equal scores get equal ranks, so that the leftmost of them merges first.
  std::sort(distinct.begin(), distinct.end(), std::greater<>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  MergeTable merges(pairs.size());
  for (const Pair& pair : pairs) {
    const auto place = std::lower_bound(distinct.begin(), distinct.end(), scores[pair.merged], std::greater<>());
    merges.insert(pair.left, pair.right, {static_cast<uint32_t>(place - distinct.begin()), pair.merged});
  }
  return merges;
}

struct BpeModel::Symbols final : WordModel::Scratch {
  std::vector<TokenId> ids;
  // Short words: the pair that begins at each symbol.
  std::vector<uint32_t> ranks;
  std::vector<TokenId> merged;
  // Long words: a symbol with its pair and its neighbours, side by side in memory because they are used together.
  struct Link {
    TokenId id;
    uint32_t rank;  // of the pair that begins here
    TokenId merged;
    uint32_t next;
    uint32_t previous;
  };
  std::vector<Link> links;
  std::vector<uint64_t> heap;  // rank << 32 | position
};

BpeModel::BpeModel(const Vocabulary& vocabulary, MergeTable merges, BpeOptions options)
    : vocabulary_(vocabulary), merges_(std::move(merges)), options_(options), byte_symbols_(256, -1) {
  for (int byte = 0; byte < 256; ++byte) {
    if (auto token = vocabulary.byte_token(static_cast<unsigned char>(byte))) byte_symbols_[byte] = *token;
  }
}

std::unique_ptr<WordModel::Scratch> BpeModel::make_scratch() const {
  return std::make_unique<Symbols>();
}

void BpeModel::split_bytes(std::string_view word, std::vector<TokenId>& symbols) const {
  for (const char byte : word) {
    const TokenId symbol = byte_symbols_[static_cast<unsigned char>(byte)];
    if (symbol >= 0) {
      symbols.push_back(symbol);
    } else if (options_.unknown) {
      symbols.push_back(*options_.unknown);
    }
  }
}

void BpeModel::split_characters(std::string_view word, std::vector<TokenId>& symbols) const {
  bool last_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, decode_utf8(word, at).length_bytes);
    at += character.size();
    const auto token = vocabulary_.find(character);
    if (token && may_result(vocabulary_.kind(*token))) {
      symbols.push_back(*token);
      last_unknown = false;
      continue;
    }
    const bool spelled = options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char byte) {
                           return byte_symbols_[static_cast<unsigned char>(byte)] >= 0;
                         });
    if (spelled) {
      for (const char byte : character) symbols.push_back(byte_symbols_[static_cast<unsigned char>(byte)]);
    } else if (options_.unknown && !(last_unknown && options_.fuse_unknown)) {
      symbols.push_back(*options_.unknown);
    }
    last_unknown = !spelled;
  }
}

void BpeModel::merge_short(Symbols& symbols) const {
  std::vector<TokenId>& ids = symbols.ids;
  std::vector<uint32_t>& ranks = symbols.ranks;
  std::vector<TokenId>& merged = symbols.merged;
  ranks.resize(ids.size());
  merged.resize(ids.size());
  const auto look_up = [&](size_t i) {
    const auto* merge = i + 1 < ids.size() ? merges_.find(ids[i], ids[i + 1]) : nullptr;
    ranks[i] = merge ? merge->rank : no_rank;
    if (merge) merged[i] = merge->merged;
  };
  for (size_t i = 0; i < ids.size(); ++i) look_up(i);
  while (true) {
    const auto best = static_cast<size_t>(std::min_element(ranks.begin(), ranks.end()) - ranks.begin());
    if (best == ranks.size() || ranks[best] == no_rank) return;
    ids[best] = merged[best];
    const auto after = static_cast<std::ptrdiff_t>(best + 1);
    ids.erase(ids.begin() + after);
    ranks.erase(ranks.begin() + after);
    merged.erase(merged.begin() + after);
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
}

// A linked list of symbols and a heap of pairs. An entry of the heap is out of date when the pair that begins at its
// position has another rank by now.
void BpeModel::merge_long(Symbols& symbols) const {
  auto& links = symbols.links;
  auto& heap = symbols.heap;
  const auto count = static_cast<uint32_t>(symbols.ids.size());
  links.resize(count);
  heap.clear();
  const auto look_up = [&](uint32_t i) {
    Symbols::Link& link = links[i];
    const auto* merge = link.next < count ? merges_.find(link.id, links[link.next].id) : nullptr;
    link.rank = merge ? merge->rank : no_rank;
    if (merge) link.merged = merge->merged;
    return merge != nullptr;
  };
  const auto entry_of = [&](uint32_t i) { return static_cast<uint64_t>(links[i].rank) << 32 | i; };
  for (uint32_t i = 0; i < count; ++i) links[i] = {symbols.ids[i], no_rank, -1, i + 1, i - 1};
  for (uint32_t i = 0; i < count; ++i) {
    if (look_up(i)) heap.push_back(entry_of(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](uint32_t i) {
    const uint32_t old_rank = links[i].rank;
    if (look_up(i) && links[i].rank != old_rank) {
      heap.push_back(entry_of(i));
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t entry = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(entry);
    if (links[at].rank != static_cast<uint32_t>(entry >> 32)) continue;
    Symbols::Link& gone = links[links[at].next];
    links[at].id = links[at].merged;
    links[at].next = gone.next;
    links[at].rank = no_rank;
    if (gone.next < count) links[gone.next].previous = at;
    gone.rank = no_rank;
    refresh(at);
    if (at > 0) refresh(links[at].previous);
  }
  symbols.ids.clear();
  for (uint32_t i = 0; i < count; i = links[i].next) symbols.ids.push_back(links[i].id);
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& tokens) const {
  const bool byte_level = vocabulary_.spelling() == TokenSpelling::byte_level;
  if (options_.ignore_merges) {
    const auto whole = byte_level ? vocabulary_.find_ordinary(word) : vocabulary_.find(word);
    if (whole && may_result(vocabulary_.kind(*whole))) {
      tokens.push_back(*whole);
      return;
    }
  }
  auto& symbols = static_cast<Symbols&>(scratch);
  symbols.ids.clear();
  if (byte_level) {
    split_bytes(word, symbols.ids);
  } else {
    split_characters(word, symbols.ids);
  }
  if (symbols.ids.size() <= short_word_symbols) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  tokens.insert(tokens.end(), symbols.ids.begin(), symbols.ids.end());
}

}  // namespace tidemill
