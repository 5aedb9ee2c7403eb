// Rewrites text before it is cut into words: Unicode normal forms, replacements, a blank in front.
//
// A list of steps, applied in order to each stretch of text between added tokens. Immutable, safe from any thread;
// linear in the text (normal forms sort runs of combining marks: n log n).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/preparation/regex.h"

namespace tidemill {

class CharacterMap;

enum class UnicodeForm : uint8_t { nfc, nfd, nfkc, nfkd };

struct ReplaceText {
  std::string from;  // not empty
  std::string to;
};
struct ReplacePattern {
  std::shared_ptr<const Regex> pattern;
  std::string to;
};
struct PrependText {
  std::string text;
  bool unless_there;  // not before a text that begins with it
};
struct StripBlanks {
  bool left, right;
};
struct MergeBlanks {};  // runs of blanks become one, those at both ends go
struct Lowercase {};
struct StripAccents {};  // drops non-spacing marks
struct MapCharacters {   // SentencePiece's precompiled table
  std::shared_ptr<const CharacterMap> map;
};

using NormalizerStep = std::variant<UnicodeForm, ReplaceText, ReplacePattern, PrependText, StripBlanks, MergeBlanks,
                                    Lowercase, StripAccents, MapCharacters>;

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8 and so is the result.
  std::string apply(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace tidemill
