#include "server/openai/thinking_splitter.h"

#include <algorithm>

namespace tidemill {
namespace {

// The length of the longest end of text that is a beginning of mark.
size_t partial_mark(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size)
    if (text.ends_with(mark.substr(0, size))) return size;
  return 0;
}

}  // namespace

std::string ThinkingSplitter::take_lines_off(std::string text) {
  if (!at_border_) return text;
  const size_t begin = text.find_first_not_of("\r\n");
  if (begin == std::string::npos) return {};
  at_border_ = false;
  return text.substr(begin);
}

void ThinkingSplitter::advance(Parts& parts) {
  if (state_ == State::start) {
    const size_t begin = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
    const std::string_view rest = std::string_view(held_).substr(begin);
    if (rest.starts_with(marks_.open)) {
      held_.erase(0, begin + marks_.open.size());
      state_ = State::thinking;
    } else if (!std::string_view(marks_.open).starts_with(rest)) {
      state_ = State::answer;
      at_border_ = false;
    }
  }
  if (state_ == State::thinking) {
    const size_t end = held_.find(marks_.close);
    if (end != std::string::npos) {
      parts.thinking += take_lines_off(held_.substr(0, end));
      held_.erase(0, end + marks_.close.size());
      state_ = State::answer;
      at_border_ = true;
    } else {
      const size_t ready = held_.size() - partial_mark(held_, marks_.close);
      parts.thinking += take_lines_off(held_.substr(0, ready));
      held_.erase(0, ready);
    }
  }
  if (state_ == State::answer) {
    parts.answer += take_lines_off(std::move(held_));
    held_.clear();
  }
}

ThinkingSplitter::Parts ThinkingSplitter::push(std::string_view text) {
  Parts parts;
  held_ += text;
  advance(parts);
  return parts;
}

ThinkingSplitter::Parts ThinkingSplitter::finish() {
  Parts parts;
  (state_ == State::thinking ? parts.thinking : parts.answer) += held_;
  held_.clear();
  return parts;
}

}  // namespace tidemill
