#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/preparation/blanks.h"
#include "text/tokenizer_parts.h"

namespace tidemill {
namespace {

// Remembers where the tokens of a word lie in the output of this very call: most words of a text have been seen before.
// Direct-mapped; a new word takes the place of an old one. Words that do not fit into an entry are not remembered.
class WordCache {
 public:
  explicit WordCache(size_t text_bytes)
      : entries_(std::bit_ceil(std::clamp<size_t>(text_bytes / 8, fewest, most))), mask_(entries_.size() - 1) {}

  struct Entry {
    uint8_t length = 0;  // of the word; 0 is an empty entry
    uint8_t num_tokens;
    uint32_t first_token;  // index into the output
    std::array<char, 26> word;
  };

  static bool fits(std::string_view word) { return word.size() <= sizeof(Entry::word); }
  Entry& entry_for(std::string_view word) { return entries_[std::hash<std::string_view>()(word) & mask_]; }
  static bool holds(const Entry& entry, std::string_view word) {
    return entry.length == word.size() && std::memcmp(entry.word.data(), word.data(), word.size()) == 0;
  }
  static void remember(Entry& entry, std::string_view word, size_t first_token, size_t num_tokens) {
    if (first_token > 0xFFFFFFFF || num_tokens > 255) return;
    entry.length = static_cast<uint8_t>(word.size());
    entry.num_tokens = static_cast<uint8_t>(num_tokens);
    entry.first_token = static_cast<uint32_t>(first_token);
    std::memcpy(entry.word.data(), word.data(), word.size());
  }

 private:
  static constexpr size_t fewest = 16;
  static constexpr size_t most = 16384;  // 512 KiB: about what the second-level cache of a core holds
  std::vector<Entry> entries_;
  size_t mask_;
};

// One call of encode.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, std::string_view text, const UntrustedRanges& untrusted)
      : parts_(parts),
        text_(text),
        untrusted_(untrusted),
        cutter_(parts.pre_tokenizer),
        scratch_(parts.model->make_scratch()),
        cache_(text.size()) {
    tokens_.reserve(text.size() / 4 + 8);
  }

  std::vector<TokenId> run(bool add_special) && {
    size_t done = 0;
    while (auto match = parts_.added.next(text_, done, untrusted_)) {
      stretch(text_.substr(done, match->begin - done), done == 0);
      tokens_.push_back(match->id);
      done = match->end;
    }
    stretch(text_.substr(done), done == 0);
    if (add_special) frame();
    return std::move(tokens_);
  }

 private:
  // Text without control tokens.
  void stretch(std::string_view text, bool at_start) {
    if (text.empty()) return;
    if (parts_.normalizer.empty()) return normalized(text, at_start);
    normalized(parts_.normalizer.apply(text), at_start);
  }

  void normalized(std::string_view text, bool at_start) {
    static const UntrustedRanges none;
    size_t done = 0;
    while (auto match = parts_.added_normalized.next(text, done, none)) {
      words(text.substr(done, match->begin - done), at_start && done == 0);
      tokens_.push_back(match->id);
      done = match->end;
    }
    words(text.substr(done), at_start && done == 0);
  }

  void words(std::string_view text, bool at_start) {
    if (text.empty()) return;
    for (const std::string_view word : cutter_.cut(text, at_start)) {
      if (!WordCache::fits(word)) {
        parts_.model->encode(word, *scratch_, tokens_);
        continue;
      }
      WordCache::Entry& entry = cache_.entry_for(word);
      const size_t first = tokens_.size();
      if (WordCache::holds(entry, word)) {
        for (size_t i = 0; i < entry.num_tokens; ++i) tokens_.push_back(tokens_[entry.first_token + i]);
        continue;
      }
      parts_.model->encode(word, *scratch_, tokens_);
      WordCache::remember(entry, word, first, tokens_.size() - first);
    }
  }

  void frame() {
    std::span<const TokenId> prefix = parts_.prefix;
    if (!prefix.empty() && !tokens_.empty() && tokens_.front() == prefix.back()) {
      prefix = prefix.first(prefix.size() - 1);
    }
    tokens_.insert(tokens_.begin(), prefix.begin(), prefix.end());
    tokens_.insert(tokens_.end(), parts_.suffix.begin(), parts_.suffix.end());
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  const UntrustedRanges& untrusted_;
  PreTokenizer::Cutter cutter_;
  std::unique_ptr<WordModel::Scratch> scratch_;
  WordCache cache_;
  std::vector<TokenId> tokens_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextSegment segment{text, options.parse_special};
  return encode_segments({&segment, 1}, options);
}

std::vector<TokenId> Tokenizer::encode_segments(std::span<const TextSegment> segments, EncodeOptions options) const {
  UntrustedRanges untrusted;
  if (segments.size() == 1 && is_valid_utf8(segments[0].text)) {
    if (!segments[0].trusted) untrusted.add(0, segments[0].text.size());
    return Encoding(*parts_, segments[0].text, untrusted).run(options.add_special);
  }
  std::string text;
  for (const TextSegment& segment : segments) {
    const size_t begin = text.size();
    text += sanitize_utf8(segment.text);
    if (!segment.trusted) untrusted.add(begin, text.size());
  }
  return Encoding(*parts_, text, untrusted).run(options.add_special);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const TokenId token : tokens) text += detokenizer.push(token);
  return text += detokenizer.finish();
}

size_t Tokenizer::vocab_size() const {
  return parts_->vocabulary->size();
}

std::string_view Tokenizer::token_bytes_view(TokenId token) const {
  return parts_->vocabulary->contains(token) ? parts_->vocabulary->bytes(token) : std::string_view();
}

std::string Tokenizer::token_bytes(TokenId token) const {
  return std::string(token_bytes_view(token));
}

std::string Tokenizer::token_text(TokenId token) const {
  return parts_->vocabulary->contains(token) ? std::string(parts_->vocabulary->text(token)) : std::string();
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
  return parts_->vocabulary->find(token_text);
}

bool Tokenizer::is_control(TokenId token) const {
  if (!parts_->vocabulary->contains(token)) return false;
  const TokenKind kind = parts_->vocabulary->kind(token);
  return kind == TokenKind::control || kind == TokenKind::unknown;
}

const std::vector<TokenId>& Tokenizer::end_of_generation_ids() const {
  return parts_->end_of_generation;
}
std::optional<TokenId> Tokenizer::bos() const {
  return parts_->bos;
}
std::optional<TokenId> Tokenizer::eos() const {
  return parts_->eos;
}

bool Tokenizer::adds_bos() const {
  return parts_->bos && std::find(parts_->prefix.begin(), parts_->prefix.end(), *parts_->bos) != parts_->prefix.end();
}

bool Tokenizer::strips_leading_blank() const {
  return parts_->strips_leading_blank;
}

bool is_end_of_turn_text(std::string_view text) {
  static const std::unordered_set<std::string_view> texts = {"<|eot_id|>",
                                                             "<|im_end|>",
                                                             "<|end|>",
                                                             "<|return|>",
                                                             "<|call|>",
                                                             "<end_of_turn>",
                                                             "<|endoftext|>",
                                                             "<|end_of_text|>",
                                                             "<|eom_id|>",
                                                             "<EOT>",
                                                             "<end_of_utterance>",
                                                             "<turn|>",
                                                             "[EOT]",
                                                             "[EOS]",
                                                             "<|eot|>",
                                                             "<|eom|>",
                                                             "<|flush|>",
                                                             "<|calls|>",
                                                             "<\xEF\xBD\x9C"
                                                             "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                                             "<|END_OF_TURN_TOKEN|>"};
  return texts.contains(text);
}

void complete_end_of_generation(TokenizerParts& parts) {
  const Vocabulary& vocabulary = *parts.vocabulary;
  std::vector<TokenId>& ids = parts.end_of_generation;
  if (parts.eos) ids.push_back(*parts.eos);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (vocabulary.kind(id) == TokenKind::control && is_end_of_turn_text(vocabulary.text(id))) ids.push_back(id);
  }
  // Where a format has its own ends of an answer (harmony: <|return|>, <|call|>), <|end|> only ends one part of it.
  const auto end = vocabulary.find("<|end|>");
  const bool parts_end = vocabulary.find("<|return|>") && vocabulary.find("<|call|>");
  const bool calls_end = vocabulary.find("<|calls|>") && vocabulary.find("<|flush|>");
  if (end && end != parts.eos && (parts_end || calls_end)) std::erase(ids, *end);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

BlankMarkSplit blank_mark_split(const Vocabulary& vocabulary) {
  std::unordered_set<char32_t> joined{U'\u2581'};
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const std::string_view text = vocabulary.text(static_cast<TokenId>(i));
    for (size_t at = text.find(blank_mark, 1); at != std::string_view::npos; at = text.find(blank_mark, at + 1)) {
      size_t before = at - 1;
      while (before > 0 && (text[before] & 0xC0) == 0x80) --before;
      joined.insert(decode_utf8(text, before).code_point);
    }
  }
  BlankMarkSplit split{{joined.begin(), joined.end()}};
  std::sort(split.joined_before.begin(), split.joined_before.end());
  return split;
}

}  // namespace tidemill
