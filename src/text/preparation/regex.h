// A regular expression over UTF-8 with Unicode classes, compiled to machine code (PCRE2).
//
// The dialect is Oniguruma's as Hugging Face tokenizers use it, as far as PCRE2 has it: \s is the White_Space property,
// ^ and $ match at line borders, letters fold by Unicode. Matching never recurses on the process stack. Its work is
// bounded: a search that exceeds the limits counts as "no further match", so a hostile pattern costs
// its text's splitting, not the process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace tidemill {

class Regex {
 public:
  // The error names the pattern and the position PCRE2 complains about.
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // One thread's state for searching. The Regex must outlive it; the regex itself is immutable and shared.
  class Search {
   public:
    explicit Search(const Regex& regex);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    // The first match of valid UTF-8 `text` that begins at or after `from` (a character border), as [begin, end).
    bool next(std::string_view text, size_t from, size_t& begin, size_t& end);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Compiled;
  explicit Regex(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tidemill
