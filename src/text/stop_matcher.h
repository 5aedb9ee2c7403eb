// Finds stop strings in a stream of text and holds back what may yet become one.
//
// The match that completes first wins; of several that complete at the same character, the one that starts first (the
// longest). Text is delivered as soon as no stop string can begin in it: only the longest suffix that is a beginning of
// some stop string is held. Linear in the text for each stop string (Knuth, Morris, Pratt). One stream, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidemill {

class StopMatcher {
 public:
  struct Output {
    std::string text;                    // safe to deliver
    std::optional<size_t> matched_stop;  // index into the stop strings: the stream ends here
  };

  // Stop strings are valid UTF-8; empty ones never match. include_stop delivers the matched string too.
  explicit StopMatcher(std::vector<std::string> stop_strings, bool include_stop = false);

  // `text` is whole characters. After a match everything further is dropped.
  Output push(std::string_view text);
  // The text still held, once the stream ends without a match.
  std::string flush();

  bool stopped() const { return stopped_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // [bytes]: longest proper prefix of text[0..i] that ends there too
    size_t matched_bytes = 0;      // how much of it the text so far ends with
  };
  void advance(Pattern& pattern, char byte) const;

  std::vector<Pattern> patterns_;
  bool include_stop_;
  bool stopped_ = false;
  std::string held_;
};

}  // namespace tidemill
