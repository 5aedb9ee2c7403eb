#include "cli/commands/bench/progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace tidemill {

ProgressLine::ProgressLine(std::string name)
    : name_(std::move(name)), on_terminal_(isatty(STDERR_FILENO) == 1), last_(std::chrono::steady_clock::now()) {}

ProgressLine::~ProgressLine() {
  if (on_terminal_ && shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(const RunProgress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < (on_terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10))) return;
  last_ = now;
  shown_ = true;
  const double rate = progress.seconds > 0 ? static_cast<double>(progress.output_tokens) / progress.seconds : 0;
  std::fprintf(stderr, "%s%s: %zu of %zu requests done, %zu open, %.0f s, %.1f tok/s%s", on_terminal_ ? "\r\033[K" : "",
               name_.c_str(), progress.num_done, progress.num_requests, progress.num_open, progress.seconds, rate,
               on_terminal_ ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace tidemill
