#include "cli/terminal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace tidemill {
namespace {

std::atomic<int> interrupts{0};
struct sigaction previous_action;

void count_interrupt(int) {
  interrupts.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool colors_wanted(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) == 1 && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

Colors::Colors(bool wanted) {
  if (!wanted) return;
  dim = "\033[2m";
  bold = "\033[1m";
  green = "\033[32m";
  red = "\033[31m";
  reset = "\033[0m";
}

InterruptCounter::InterruptCounter() {
  interrupts = 0;
  struct sigaction action = {};
  action.sa_handler = count_interrupt;  // without SA_RESTART, so that a read at the prompt ends
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_action);
}

InterruptCounter::~InterruptCounter() {
  sigaction(SIGINT, &previous_action, nullptr);
}

int InterruptCounter::count() const {
  return interrupts.load(std::memory_order_relaxed);
}

void InterruptCounter::reset() {
  interrupts = 0;
}

LineReader::Outcome LineReader::next(std::string& line) {
  while (true) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return Outcome::line;
    }
    char buffer[4096];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) {
      pending_.clear();
      return Outcome::interrupted;
    }
    if (got <= 0) {
      line = std::move(pending_);
      pending_.clear();
      return line.empty() ? Outcome::end_of_input : Outcome::line;
    }
    pending_.append(buffer, static_cast<size_t>(got));
  }
}

namespace {

// The length of the sequence that `text` begins with: ESC [ parameters (0x30-0x3F) intermediates (0x20-0x2F) final
// (0x40-0x7E); ESC O final (function keys); ESC and one character (Alt with a key).
size_t escape_sequence_bytes(std::string_view text) {
  const auto is_within = [&](size_t at, char low, char high) {
    return at < text.size() && text[at] >= low && text[at] <= high;
  };
  if (!is_within(1, '\x20', '\x7E')) return 1;
  if (text[1] == 'O' && is_within(2, '\x40', '\x7E')) return 3;
  if (text[1] != '[') return 2;
  size_t end = 2;
  while (is_within(end, '\x30', '\x3F')) ++end;
  while (is_within(end, '\x20', '\x2F')) ++end;
  return is_within(end, '\x40', '\x7E') ? end + 1 : 2;
}

}  // namespace

std::string without_escape_sequences(std::string_view line) {
  std::string kept;
  for (size_t at = 0; at < line.size();) {
    if (line[at] == '\033') {
      at += escape_sequence_bytes(line.substr(at));
      continue;
    }
    const auto byte = static_cast<unsigned char>(line[at++]);
    if ((byte >= 0x20 && byte != 0x7F) || byte == '\t') kept.push_back(static_cast<char>(byte));
  }
  return kept;
}

std::string read_all_input() {
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace tidemill
