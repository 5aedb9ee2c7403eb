// SIGTERM and SIGINT for a server: the first asks it to end, a second ends the process at once.
//
// Must be made before any other thread, since it blocks both signals for the whole process, and SIGPIPE with them. A
// thread of its own waits for them.
#pragma once

#include <functional>
#include <memory>

namespace tidemill {

class StopSignals {
 public:
  // on_first is called once, on the signal thread, and may take its time: a second signal is heard meanwhile only by
  // the system's own rules, so it should return soon.
  explicit StopSignals(std::function<void(int signal)> on_first);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tidemill
