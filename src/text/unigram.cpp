#include "text/unigram.h"

#include <algorithm>
#include <limits>

#include "base/utf8.h"

namespace tidemill {
namespace {

// How much worse than the worst entry an unknown character is; SentencePiece's constant.
constexpr double unknown_penalty = 10.0;
constexpr TokenId unknown_piece = -1;

}  // namespace

struct UnigramModel::Lattice final : WordModel::Scratch {
  // The best way to reach a byte position: the last piece and where it begins.
  struct Node {
    double score;
    size_t begin;
    TokenId piece;
  };
  std::vector<Node> nodes;  // [word bytes + 1]
  std::vector<std::pair<size_t, size_t>> pieces;
};

UnigramModel::UnigramModel(const Vocabulary& vocabulary, std::span<const double> scores, UnigramOptions options)
    : vocabulary_(vocabulary), scores_(scores.begin(), scores.end()), options_(options) {
  double worst = std::numeric_limits<double>::max();
  std::vector<std::pair<std::string, TokenId>> entries;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = vocabulary.kind(id);
    if (kind != TokenKind::normal && kind != TokenKind::user_defined) continue;
    if (kind == TokenKind::user_defined) scores_[i] = 0;
    worst = std::min(worst, scores_[i]);
    entries.emplace_back(vocabulary.text(id), id);
  }
  unknown_score_ = worst - unknown_penalty;
  entries_ = ByteTrie(std::move(entries));
}

std::unique_ptr<WordModel::Scratch> UnigramModel::make_scratch() const {
  return std::make_unique<Lattice>();
}

void UnigramModel::fill(std::string_view word, Lattice& lattice) const {
  auto& nodes = lattice.nodes;
  nodes.assign(word.size() + 1, {-std::numeric_limits<double>::infinity(), 0, unknown_piece});
  nodes[0].score = 0;
  for (size_t at = 0; at < word.size();) {
    const size_t character = decode_utf8(word, at).length_bytes;
    const double base = nodes[at].score;
    const auto offer = [&](size_t length, TokenId piece, double score) {
      auto& node = nodes[at + length];
      if (base + score > node.score) node = {base + score, at, piece};
    };
    bool single = false;
    entries_.prefixes_of(word.substr(at), [&](size_t length, TokenId id) {
      single |= length == character;
      offer(length, id, scores_[id]);
    });
    if (!single) offer(character, unknown_piece, unknown_score_);
    at += character;
  }
}

void UnigramModel::add_unknown(std::string_view characters, std::vector<TokenId>& tokens) const {
  const bool spelled = options_.byte_fallback && std::all_of(characters.begin(), characters.end(), [&](char byte) {
                         return vocabulary_.byte_token(static_cast<unsigned char>(byte)).has_value();
                       });
  if (spelled) {
    for (const char byte : characters) tokens.push_back(*vocabulary_.byte_token(static_cast<unsigned char>(byte)));
  } else if (options_.unknown) {
    tokens.push_back(*options_.unknown);
  }
}

void UnigramModel::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& tokens) const {
  auto& lattice = static_cast<Lattice&>(scratch);
  fill(word, lattice);
  lattice.pieces.clear();
  for (size_t end = word.size(); end > 0; end = lattice.nodes[end].begin) {
    lattice.pieces.emplace_back(lattice.nodes[end].begin, end);
  }
  for (auto piece = lattice.pieces.rbegin(); piece != lattice.pieces.rend();) {
    const auto is_unknown = [&](const auto& p) { return lattice.nodes[p.second].piece == unknown_piece; };
    if (!is_unknown(*piece)) {
      tokens.push_back(lattice.nodes[piece->second].piece);
      ++piece;
      continue;
    }
    const size_t begin = piece->first;
    size_t end = begin;
    for (; piece != lattice.pieces.rend() && is_unknown(*piece); ++piece) end = piece->second;
    add_unknown(word.substr(begin, end - begin), tokens);
  }
}

}  // namespace tidemill
