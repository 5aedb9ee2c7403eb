// A line on standard error that shows how far a benchmark is: in place on a terminal, every ten seconds elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "bench/engine_run.h"

namespace tidemill {

class ProgressLine {
 public:
  explicit ProgressLine(std::string name);
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void rename(const std::string& name) { name_ = name; }
  void show(const RunProgress& progress);

 private:
  std::string name_;
  bool on_terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tidemill
