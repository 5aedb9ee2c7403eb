#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/preparation/blanks.h"

namespace tidemill {
namespace {

bool is_word_character(char32_t c) {
  if (c == '_') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO;
}

size_t character_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (text[at] & 0xC0) == 0x80);
  return at;
}

bool is_whole_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_character(decode_utf8(text, character_before(text, begin)).code_point)) return false;
  return end == text.size() || !is_word_character(decode_utf8(text, end).code_point);
}

// The ASCII ones: what a token takes along is looked at byte by byte.
bool is_ascii_blank(char c) {
  return static_cast<unsigned char>(c) < 0x80 && is_blank(static_cast<unsigned char>(c));
}

}  // namespace

void UntrustedRanges::add(size_t begin, size_t end) {
  if (begin == end) return;
  if (!ranges_.empty() && ranges_.back().second == begin) {
    ranges_.back().second = end;
  } else {
    ranges_.push_back({begin, end});
  }
}

bool UntrustedRanges::touches(size_t begin, size_t end) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                      [](size_t at, const auto& range) { return at < range.second; });
  return after != ranges_.end() && after->first < end;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string, TokenId>> entries;
  for (size_t i = 0; i < tokens_.size(); ++i) entries.emplace_back(tokens_[i].text, static_cast<TokenId>(i));
  trie_ = ByteTrie(std::move(entries));
}

std::optional<AddedTokens::Match> AddedTokens::match_at(std::string_view text, size_t at,
                                                        const UntrustedRanges& untrusted) const {
  std::optional<Match> best;
  const AddedToken* best_token = nullptr;
  trie_.prefixes_of(text.substr(at), [&](size_t length, TokenId index) {
    const AddedToken& token = tokens_[index];
    if (token.control && untrusted.touches(at, at + length)) return;
    if (token.whole_word && !is_whole_word(text, at, at + length)) return;
    best = Match{at, at + length, token.id};
    best_token = &token;
  });
  if (best && best_token->strip_right) {
    while (best->end < text.size() && is_ascii_blank(text[best->end])) ++best->end;
  }
  if (best && best_token->strip_left) {
    while (best->begin > 0 && is_ascii_blank(text[best->begin - 1])) --best->begin;
  }
  return best;
}

std::optional<AddedTokens::Match> AddedTokens::next(std::string_view text, size_t from,
                                                    const UntrustedRanges& untrusted) const {
  if (trie_.empty()) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (!trie_.may_begin_with(text[at])) continue;
    auto match = match_at(text, at, untrusted);
    if (!match) continue;
    match->begin = std::max(match->begin, from);
    return match;
  }
  return std::nullopt;
}

}  // namespace tidemill
