// Text to cut prompts from: a book that the user names, or invented sentences.
//
// Prompts of benchmarks are meant to be N tokens long before anybody knows the tokenizer; four characters count as a
// token (chars_per_token), which English text comes near to. Immutable; any thread may cut.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "bench/random_source.h"

namespace tidemill {

inline constexpr int32_t chars_per_token = 4;

class PromptText {
 public:
  // English-like sentences of common words, different for every seed.
  static PromptText invented(uint64_t seed);
  // A UTF-8 file of at least a few kilobytes.
  static Result<PromptText> from_file(const std::filesystem::path& path);

  // About num_chars bytes from a random place, beginning with a word and cut between characters; longer than the text
  // where it must be, by starting over.
  std::string cut(RandomSource& random, int64_t num_chars) const;

 private:
  explicit PromptText(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

}  // namespace tidemill
