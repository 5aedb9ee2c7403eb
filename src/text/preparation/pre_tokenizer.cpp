#include "text/preparation/pre_tokenizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/preparation/blanks.h"

namespace tidemill {
namespace {

using Words = std::vector<std::string_view>;

bool is_digit(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

bool is_word_character(char32_t c) {
  if (c == '_') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ND) || category == UTF8PROC_CATEGORY_PC;
}

void add_word(Words& words, std::string_view text, size_t begin, size_t end) {
  if (begin < end) words.push_back(text.substr(begin, end - begin));
}

// One piece of a split, before the behavior joins or drops it.
struct Part {
  std::string_view text;
  bool delimiter;
};

void apply_behavior(const std::vector<Part>& parts, SplitBehavior behavior, Words& words) {
  const auto joined = [](std::string_view a, std::string_view b) {
    return std::string_view(a.data(), a.size() + b.size());
  };
  bool joinable = false;  // may the next part be appended to the last word?
  bool last_delimiter = false;
  for (const Part& part : parts) {
    bool join = false;
    switch (behavior) {
      case SplitBehavior::removed:
        if (part.delimiter) continue;
        break;
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::merged_with_previous:
        join = part.delimiter && joinable && !last_delimiter;
        break;
      case SplitBehavior::merged_with_next:
        join = !part.delimiter && joinable && last_delimiter;
        break;
      case SplitBehavior::contiguous:
        join = joinable && part.delimiter == last_delimiter;
        break;
    }
    if (join) {
      words.back() = joined(words.back(), part.text);
    } else {
      words.push_back(part.text);
    }
    joinable = true;
    last_delimiter = part.delimiter;
  }
}

void isolate_matches(Regex::Search& search, std::string_view text, Words& words) {
  size_t done = 0;
  size_t from = 0;
  size_t begin, end;
  while (from < text.size() && search.next(text, from, begin, end)) {
    add_word(words, text, done, begin);
    add_word(words, text, begin, end);
    done = end;
    from = end > begin ? end : end + (end < text.size() ? decode_utf8(text, end).length_bytes : 1);
  }
  add_word(words, text, done, text.size());
}

void cut(const RegexSplit& split, Regex::Search* search, std::string_view text, Words& words) {
  if (split.behavior == SplitBehavior::isolated) return isolate_matches(*search, text, words);
  std::vector<Part> parts;
  const auto add = [&](size_t begin, size_t end, bool match) {
    if (begin < end) parts.push_back({text.substr(begin, end - begin), match != split.invert});
  };
  size_t done = 0, from = 0, begin, end;
  while (from < text.size() && search->next(text, from, begin, end)) {
    add(done, begin, false);
    add(begin, end, true);
    done = end;
    from = end > begin ? end : end + (end < text.size() ? decode_utf8(text, end).length_bytes : 1);
  }
  add(done, text.size(), false);
  apply_behavior(parts, split.behavior, words);
}

// A run of blanks is cut off where the text, or a line of it, ends.
void cut(const TrailingBlankSplit&, Regex::Search*, std::string_view text, Words& words) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    Utf8Char c = decode_utf8(text, at);
    if (!is_blank(c.code_point)) {
      at += c.length_bytes;
      continue;
    }
    const size_t begin = at;
    size_t last_newline = begin;
    for (; at < text.size() && is_blank((c = decode_utf8(text, at)).code_point); at += c.length_bytes) {
      if (c.code_point == '\n') last_newline = at;
    }
    const size_t end = at == text.size() ? at : last_newline;
    if (end == begin) continue;
    add_word(words, text, done, begin);
    add_word(words, text, begin, end);
    done = end;
  }
  add_word(words, text, done, text.size());
}

void cut(const DigitGroupSplit& split, Regex::Search*, std::string_view text, Words& words) {
  size_t done = 0;
  std::vector<size_t> starts;  // of the digits of the current run
  for (size_t at = 0; at < text.size();) {
    Utf8Char c = decode_utf8(text, at);
    if (!is_digit(c.code_point)) {
      at += c.length_bytes;
      continue;
    }
    starts.clear();
    while (at < text.size() && is_digit((c = decode_utf8(text, at)).code_point)) {
      starts.push_back(at);
      at += c.length_bytes;
    }
    const bool bordered = at == text.size() || !is_word_character(c.code_point);
    if (split.needs_word_border && !bordered) continue;
    const size_t first_group = (starts.size() - 1) % 3 + 1;
    // The look-ahead pattern cuts only in front of full groups; what precedes the first one stays with the text before.
    size_t next = split.needs_word_border || first_group == 3 ? 0 : first_group;
    for (; next < starts.size(); next = next == 0 ? first_group : next + 3) {
      add_word(words, text, done, starts[next]);
      done = starts[next];
    }
    if (split.needs_word_border) {
      add_word(words, text, done, at);
      done = at;
    }
  }
  add_word(words, text, done, text.size());
}

void cut(const BlankMarkSplit& split, Regex::Search*, std::string_view text, Words& words) {
  size_t done = 0;
  for (size_t at = text.find(blank_mark, 1); at != std::string_view::npos;
       at = text.find(blank_mark, at + blank_mark.size())) {
    size_t before = at - 1;
    while (before > 0 && (text[before] & 0xC0) == 0x80) --before;
    if (std::binary_search(split.joined_before.begin(), split.joined_before.end(),
                           decode_utf8(text, before).code_point)) {
      continue;
    }
    add_word(words, text, done, at);
    done = at;
  }
  add_word(words, text, done, text.size());
}

void cut_marked(const MetaspacePieces& stage, std::string_view text, Words& words) {
  if (!stage.split) return add_word(words, text, 0, text.size());
  size_t done = 0;
  for (size_t at = text.find(blank_mark, 1); at != std::string_view::npos;
       at = text.find(blank_mark, at + blank_mark.size())) {
    add_word(words, text, done, at);
    done = at;
  }
  add_word(words, text, done, text.size());
}

std::string marked(const MetaspacePieces& stage, std::string_view text, bool at_start) {
  std::string piece;
  const bool starts_marked = text.starts_with(' ') || text.starts_with(blank_mark);
  const bool wanted = stage.prepend == MetaspacePieces::Prepend::always ||
                      (stage.prepend == MetaspacePieces::Prepend::first && at_start);
  if (wanted && !starts_marked) piece += blank_mark;
  for (const char c : text) {
    if (c == ' ') {
      piece += blank_mark;
    } else {
      piece.push_back(c);
    }
  }
  return piece;
}

}  // namespace

void PreTokenizer::add(SplitStage stage) {
  stages_.push_back(std::move(stage));
}

PreTokenizer::Cutter::Cutter(const PreTokenizer& pre_tokenizer) : pre_tokenizer_(pre_tokenizer) {
  for (const SplitStage& stage : pre_tokenizer.stages_) {
    const auto* split = std::get_if<RegexSplit>(&stage);
    searches_.push_back(split ? std::make_unique<Regex::Search>(split->regex) : nullptr);
  }
}

const std::vector<std::string_view>& PreTokenizer::Cutter::cut(std::string_view text, bool at_start) {
  words_.assign(1, text);
  arena_.clear();
  for (size_t i = 0; i < searches_.size(); ++i) {
    next_.clear();
    for (const std::string_view word : words_) {
      std::visit(
          [&](const auto& stage) {
            if constexpr (std::is_same_v<std::decay_t<decltype(stage)>, MetaspacePieces>) {
              const bool first = at_start && word.data() == text.data();
              cut_marked(stage, arena_.emplace_back(marked(stage, word, first)), next_);
            } else {
              tidemill::cut(stage, searches_[i].get(), word, next_);
            }
          },
          pre_tokenizer_.stages_[i]);
    }
    words_.swap(next_);
  }
  return words_;
}

Result<SplitStage> make_regex_stage(std::string_view pattern, SplitBehavior behavior, bool invert) {
  if (behavior == SplitBehavior::isolated && !invert) {
    if (pattern == "\\s+$") return SplitStage(TrailingBlankSplit{});
    if (pattern == "(?=(\\d{3})+(?!\\d))") return SplitStage(DigitGroupSplit{false});
    if (pattern == "\\d{1,3}(?=(?:\\d{3})*\\b)") return SplitStage(DigitGroupSplit{true});
  }
  auto regex = Regex::compile(pattern);
  if (!regex.ok()) return regex.error();
  return SplitStage(RegexSplit{std::move(*regex), behavior, invert});
}

}  // namespace tidemill
