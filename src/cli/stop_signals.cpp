#include "cli/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace tidemill {

struct StopSignals::State {
  sigset_t signals;
  std::atomic<bool> ending{false};
  std::thread thread;
};

StopSignals::StopSignals(std::function<void(int)> on_first) : state_(std::make_unique<State>()) {
  sigemptyset(&state_->signals);
  sigaddset(&state_->signals, SIGTERM);
  sigaddset(&state_->signals, SIGINT);
  sigset_t blocked = state_->signals;
  sigaddset(&blocked, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  state_->thread = std::thread([state = state_.get(), on_first = std::move(on_first)] {
    for (int heard = 0;;) {
      int signal = 0;
      sigwait(&state->signals, &signal);
      if (state->ending) return;
      if (++heard == 2) std::_Exit(128 + signal);
      on_first(signal);
    }
  });
}

StopSignals::~StopSignals() {
  state_->ending = true;
  pthread_kill(state_->thread.native_handle(), SIGTERM);
  state_->thread.join();
}

}  // namespace tidemill
