// Cuts normalized text into words; a token never crosses a word's border.
//
// A pre-tokenizer is a list of stages; each stage cuts every piece the previous one left. Immutable after construction,
// const methods are safe from any thread; linear in the text for the stages we build ourselves.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/preparation/regex.h"

namespace tidemill {

// What becomes of a match of the delimiter.
enum class SplitBehavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// Matches of a regular expression are delimiters; `invert` makes the text between them the delimiters.
struct RegexSplit {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
};

// The pattern \s+$ in one pass over the text (a backtracking search is quadratic in runs of blanks).
struct TrailingBlankSplit {};

// Cuts runs of decimal digits into groups of three counted from the right, the patterns (?=(\d{3})+(?!\d)) and
// \d{1,3}(?=(?:\d{3})*\b), which are quadratic in the length of the run.
struct DigitGroupSplit {
  bool needs_word_border = false;  // the second pattern: a run that a letter follows stays whole
};

// Cuts in front of every U+2581 unless the character before it is one of `joined_before`: those that stand before a
// U+2581 inside some token. No token crosses such a cut, so it does not change the tokens; it makes words short.
struct BlankMarkSplit {
  std::vector<char32_t> joined_before;  // ascending
};

// Writes U+2581 for each blank and puts one in front of the piece (Metaspace behind other stages).
struct MetaspacePieces {
  enum class Prepend : uint8_t { always, first, never } prepend;
  bool split;
};

using SplitStage = std::variant<RegexSplit, TrailingBlankSplit, DigitGroupSplit, BlankMarkSplit, MetaspacePieces>;

class PreTokenizer {
 public:
  void add(SplitStage stage);
  bool empty() const { return stages_.empty(); }

  // One thread's state; keeps buffers between texts. The pre-tokenizer must outlive it.
  class Cutter {
   public:
    explicit Cutter(const PreTokenizer& pre_tokenizer);
    // `text` is valid UTF-8; `at_start` says whether it begins the whole input. The result stays valid, as long as
    // `text` does, until the next call.
    const std::vector<std::string_view>& cut(std::string_view text, bool at_start);

   private:
    const PreTokenizer& pre_tokenizer_;
    std::vector<std::unique_ptr<Regex::Search>> searches_;  // one for each stage, null where it has no regex
    std::vector<std::string_view> words_;                   // what the stages so far left, into the text or arena_
    std::vector<std::string_view> next_;
    std::deque<std::string> arena_;  // pieces that a stage wrote anew
  };

 private:
  std::vector<SplitStage> stages_;
};

// A stage for a pattern of a model file: the linear scanners above for the patterns they replace, otherwise a regex.
Result<SplitStage> make_regex_stage(std::string_view pattern, SplitBehavior behavior = SplitBehavior::isolated,
                                    bool invert = false);

// The stages that a GGUF file names in tokenizer.ggml.pre, and what else the name implies.
struct NamedPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token stays whole, whatever the merges say
  bool adds_bos = false;       // when the file does not say
};
// An unknown name gives an Error that names it.
Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name);

// The pattern of GPT-2, which Hugging Face's ByteLevel pre-tokenizer uses too.
extern const std::string_view gpt2_pattern;

}  // namespace tidemill
