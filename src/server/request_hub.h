// Between the engine and the replies: takes the events of each step from the engine thread and hands them, on a thread
// of its own, to whoever submitted the request; takes submissions and cancellations the other way.
//
// publish() only moves a vector into a queue, and gets the memory of an old one back. The bytes that all consumers make
// of one batch of events travel to the I/O thread together. A consumer is registered before its first event can be
// handed out, and forgotten with its last.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "server/http/exchange.h"

namespace tidemill {

// The receiving end of one client request, which may be several engine requests (one for each prompt).
class EventConsumer {
 public:
  virtual ~EventConsumer() = default;
  // Delivery thread. `index` counts the submitted requests. Bytes for the client go to `pieces`.
  virtual void on_event(size_t index, RequestEvent& event, std::vector<ReplyPiece>& pieces) = 0;
  bool gone() const { return gone_; }

 private:
  friend class RequestHub;
  std::atomic<bool> gone_{false};
  std::vector<RequestId> ids_;  // under the hub's mutex
};

class RequestHub final : public EventListener {
 public:
  RequestHub();
  ~RequestHub() override;  // stop()

  // The engine that requests go to; must be set before the first submit and outlive stop() or detach().
  void attach(Engine& engine);
  // No calls into the engine any more; its last events may still come.
  void detach();
  // Ends the delivery thread.
  void stop();

  // Engine thread.
  void publish(std::vector<RequestEvent> events) override;
  std::vector<RequestEvent> spare_events() override;

  struct Gone {};  // the client left in between: nothing was submitted
  using Submitted = std::variant<std::monostate, Refusal, Gone>;
  // All requests or none. `first` are sent before anything that the events bring.
  Submitted submit(const std::shared_ptr<EventConsumer>& consumer, std::vector<Request> requests,
                   std::vector<ReplyPiece> first);

  // Any thread. Cancels what the consumer submitted, and what it may be about to; its later events are dropped.
  void abandon(EventConsumer& consumer);

  // Delivery thread, for consumers.
  void finish_choice(EventConsumer& consumer, size_t index, int32_t choice, int32_t num_tokens);
  void cancel_all(EventConsumer& consumer);

  // When to try again, for requests whose time was up: a request's mean time for each one that waits before it.
  int estimate_retry_seconds() const;

  // Tokens that the engine counted as delivered because the choice ended by itself before it heard of the stop string.
  void count_late_discards(int32_t num_tokens) { num_late_discards_ += static_cast<uint64_t>(num_tokens); }
  uint64_t num_late_discards() const { return num_late_discards_; }

  // Nothing submitted is open and no event waits.
  bool idle() const;
  size_t num_open() const;

 private:
  struct Registration {
    std::shared_ptr<EventConsumer> consumer;
    size_t index = 0;
  };
  void run();
  void hand_out(std::vector<RequestEvent>& events);

  mutable std::mutex registry_mutex_;
  Engine* engine_ = nullptr;
  std::atomic<uint64_t> num_late_discards_{0};
  std::unordered_map<RequestId, Registration> open_;

  mutable std::mutex queue_mutex_;
  std::condition_variable queue_filled_;
  std::vector<std::vector<RequestEvent>> queue_;   // in order
  std::vector<std::vector<RequestEvent>> spares_;  // empty, for their memory
  bool handing_out_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tidemill
