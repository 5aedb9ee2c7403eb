// Divides a model's text into thinking and answer at the marks that its template uses, while it arrives.
//
// Only one block is thinking: the one that the text begins with (blanks before it do not count), or that the prompt
// left open. Holds back only what may still become a mark. The marks themselves, and line breaks next to them, are in
// neither part. One stream, one thread.
#pragma once

#include <string>
#include <string_view>

#include "server/served_model.h"

namespace tidemill {

class ThinkingSplitter {
 public:
  struct Parts {
    std::string thinking;
    std::string answer;
  };

  ThinkingSplitter(ThinkingMarks marks, bool starts_thinking)
      : marks_(std::move(marks)), state_(starts_thinking ? State::thinking : State::start) {}

  Parts push(std::string_view text);
  // What was held back at the end of the text.
  Parts finish();
  bool thinking() const { return state_ == State::thinking; }

 private:
  enum class State { start, thinking, answer };
  void advance(Parts& parts);
  std::string take_lines_off(std::string text);
  ThinkingMarks marks_;
  State state_;
  std::string held_;
  bool at_border_ = true;  // behind a mark: line breaks are dropped
};

}  // namespace tidemill
