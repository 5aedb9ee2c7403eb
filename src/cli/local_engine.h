// An engine in this process, driven by the calling thread: for the commands that answer without a server.
//
// One thread. Requests are submitted and then the engine is stepped until they have ended; every event is handed to the
// callback in the engine's order.
#pragma once

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/engine_stack.h"

namespace tidemill {

class LocalEngine {
 public:
  // Loads the model, showing the progress on a terminal.
  static Result<std::unique_ptr<LocalEngine>> load(const RunOptions& options);

  const EngineStack& stack() const { return *stack_; }
  // The Error says why the engine refused.
  Result<RequestId> submit(Request request);
  // Steps until every submitted request has ended. Where `should_stop` turns true, all of them are cancelled first.
  void run(
      const std::function<void(const RequestEvent&)>& on_event,
      const std::function<bool()>& should_stop = [] { return false; });

 private:
  class Mailbox final : public EventListener {
   public:
    void publish(std::vector<RequestEvent> events) override;
    std::vector<RequestEvent> take();

   private:
    std::vector<RequestEvent> events_;
  };

  explicit LocalEngine(std::unique_ptr<EngineStack> stack);

  SystemClock clock_;
  Mailbox mailbox_;
  std::unique_ptr<EngineStack> stack_;
  std::unique_ptr<Engine> engine_;
  std::vector<RequestId> open_;
};

// Prints how far the loading is, in place, where standard error is a terminal; nothing otherwise.
void show_loading(LoadProgress progress);

}  // namespace tidemill
