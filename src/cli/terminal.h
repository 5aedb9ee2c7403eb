// What the terminal at the other end of a stream can show, and whether its user pressed Ctrl-C.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemill {

// Colors are wanted on a terminal, unless NO_COLOR is set to something or TERM is "dumb" (https://no-color.org).
bool colors_wanted(int descriptor);

// ANSI sequences, all empty where colors are not wanted.
struct Colors {
  explicit Colors(bool wanted);
  const char *dim = "", *bold = "", *green = "", *red = "", *reset = "";
};

// Counts Ctrl-C (SIGINT) for as long as it lives, instead of ending the process. System calls that block are
// interrupted. One at a time.
class InterruptCounter {
 public:
  InterruptCounter();
  ~InterruptCounter();
  InterruptCounter(const InterruptCounter&) = delete;
  InterruptCounter& operator=(const InterruptCounter&) = delete;
  int count() const;
  void reset();
};

// Lines from standard input, without their ends. One at a time: it reads ahead.
class LineReader {
 public:
  enum class Outcome : uint8_t { line, end_of_input, interrupted };
  // `interrupted` where Ctrl-C came while it waited (InterruptCounter); what was typed so far is dropped. On a terminal
  // the system's own line editing serves.
  Outcome next(std::string& line);

 private:
  std::string pending_;
};

// A typed line without the escape sequences (ECMA-48) that keys like the arrows leave in it, and without other control
// characters but tabs. What follows an unfinished sequence is kept.
std::string without_escape_sequences(std::string_view line);

// All of standard input.
std::string read_all_input();

}  // namespace tidemill
