#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace tidemill {

StopMatcher::StopMatcher(std::vector<std::string> stop_strings, bool include_stop) : include_stop_(include_stop) {
  for (std::string& text : stop_strings) {
    Pattern pattern{std::move(text), {}};
    pattern.border.assign(pattern.text.size(), 0);
    for (size_t i = 1, length = 0; i < pattern.text.size(); ++i) {
      while (length > 0 && pattern.text[i] != pattern.text[length]) length = pattern.border[length - 1];
      if (pattern.text[i] == pattern.text[length]) ++length;
      pattern.border[i] = static_cast<uint32_t>(length);
    }
    patterns_.push_back(std::move(pattern));
  }
}

void StopMatcher::advance(Pattern& pattern, char byte) const {
  if (pattern.text.empty()) return;
  size_t& matched = pattern.matched_bytes;
  while (matched > 0 && pattern.text[matched] != byte) matched = pattern.border[matched - 1];
  if (pattern.text[matched] == byte) ++matched;
}

StopMatcher::Output StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  for (size_t i = 0; i < text.size(); ++i) {
    std::optional<size_t> stop;
    for (size_t p = 0; p < patterns_.size(); ++p) {
      advance(patterns_[p], text[i]);
      const size_t length = patterns_[p].text.size();
      const bool complete = length > 0 && patterns_[p].matched_bytes == length;
      if (complete && (!stop || length > patterns_[*stop].text.size())) stop = p;
    }
    if (!stop) continue;
    stopped_ = true;
    held_.append(text, 0, i + 1);
    if (!include_stop_) held_.resize(held_.size() - patterns_[*stop].text.size());
    return {std::exchange(held_, {}), stop};
  }
  held_ += text;
  size_t num_held = 0;
  for (const Pattern& pattern : patterns_) num_held = std::max(num_held, pattern.matched_bytes);
  std::string safe = held_.substr(0, held_.size() - num_held);
  held_.erase(0, safe.size());
  return {std::move(safe), std::nullopt};
}

std::string StopMatcher::flush() {
  for (Pattern& pattern : patterns_) pattern.matched_bytes = 0;
  return std::exchange(held_, {});
}

}  // namespace tidemill
