#include "cli/local_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tidemill {

void show_loading(LoadProgress progress) {
  if (isatty(STDERR_FILENO) != 1 || progress.total_bytes == 0) return;
  std::fprintf(stderr, "\rloading %3zu %%", progress.done_bytes * 100 / progress.total_bytes);
  if (progress.done_bytes >= progress.total_bytes) std::fputs("\r             \r", stderr);
  std::fflush(stderr);
}

void LocalEngine::Mailbox::publish(std::vector<RequestEvent> events) {
  for (RequestEvent& event : events) events_.push_back(std::move(event));
}

std::vector<RequestEvent> LocalEngine::Mailbox::take() {
  return std::exchange(events_, {});
}

LocalEngine::LocalEngine(std::unique_ptr<EngineStack> stack)
    : stack_(std::move(stack)), engine_(make_engine(*stack_, clock_, mailbox_)) {}

Result<std::unique_ptr<LocalEngine>> LocalEngine::load(const RunOptions& options) {
  Result<std::unique_ptr<EngineStack>> stack = load_engine_stack(options, show_loading);
  if (!stack) return stack.error();
  for (const std::string& warning : (*stack)->warnings) {
    std::fprintf(stderr, "tidemill: warning: %s\n", warning.c_str());
  }
  return std::unique_ptr<LocalEngine>(new LocalEngine(*std::move(stack)));
}

Result<RequestId> LocalEngine::submit(Request request) {
  const std::variant<RequestId, Refusal> outcome = engine_->submit(std::move(request));
  if (const Refusal* refusal = std::get_if<Refusal>(&outcome)) return Error{refusal->message};
  open_.push_back(std::get<RequestId>(outcome));
  return open_.back();
}

void LocalEngine::run(const std::function<void(const RequestEvent&)>& on_event,
                      const std::function<bool()>& should_stop) {
  bool cancelled = false;
  while (!open_.empty()) {
    if (!cancelled && should_stop()) {
      for (const RequestId request : open_) engine_->cancel(request);
      cancelled = true;
    }
    engine_->step_once();
    for (const RequestEvent& event : mailbox_.take()) {
      on_event(event);
      if (event.request_done) std::erase(open_, event.request);
    }
  }
}

}  // namespace tidemill
