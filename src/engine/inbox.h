// Where other threads leave what they want of the engine: requests within the queue limits, cancellations, finishes.
//
// The queue is what was accepted and not yet admitted. A request is accepted while the queue, less the slots that the
// next step could fill from it, is shorter than the limit; so with 2 slots and a limit of 4, exactly 6 of 20 requests
// that arrive at once are taken. Every method may be called from any thread and only holds the lock for a moment.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_config.h"
#include "engine/sequence.h"

namespace tidemill {

// How fast work has been leaving the engine lately, busy time only.
struct EngineRates {
  double requests_per_s = 0;  // 0 = not known yet
  double rows_per_s = 0;
};

struct ChoiceFinish {
  RequestId request = 0;
  int32_t choice = 0;
  int32_t num_tokens = 0;
};

struct InboxMessages {
  std::vector<std::unique_ptr<LiveRequest>> arrivals;
  std::vector<RequestId> cancels;
  std::vector<ChoiceFinish> finishes;
  std::optional<size_t> budget_bytes;  // of the cache, from now on
  std::optional<Clock::Time> end_by;   // shutdown: when the last running request ends
  bool empty() const { return arrivals.empty() && cancels.empty() && finishes.empty() && !budget_bytes && !end_by; }
};

class Inbox {
 public:
  explicit Inbox(const EngineConfig& config);

  // Gives the request its id and queues it, or says why not.
  std::variant<RequestId, Refusal> submit(std::unique_ptr<LiveRequest> request);
  void cancel(RequestId request);
  void finish(ChoiceFinish finish);
  void resize(size_t budget_bytes);
  void shutdown(Clock::Time end_by);
  void stop();  // ends wait()
  // A refusal that was decided elsewhere, counted here.
  void count_refusal(Refusal::Kind kind);

  // The engine's side.
  InboxMessages drain();
  void wait();  // until there is a message or stop() was called
  bool stopped() const;
  // A request left the queue, admitted or ended.
  void dequeue(const LiveRequest& request);
  void publish(int32_t num_open_slots, EngineRates rates);
  int64_t num_queued_tokens() const;
  std::array<uint64_t, 6> refused() const;

 private:
  std::optional<Refusal> check_limits(const LiveRequest& request) const;
  std::chrono::milliseconds time_for(double amount, double per_s) const;

  const int32_t max_requests_;
  const int64_t max_tokens_, max_tenant_tokens_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  InboxMessages messages_;
  RequestId last_id_ = 0;
  bool accepting_ = true;
  bool stopped_ = false;
  int64_t num_queued_ = 0;  // requests here and in the engine's queue
  int64_t num_queued_tokens_ = 0;
  std::unordered_map<std::string, int64_t> tenant_tokens_;
  int32_t num_open_slots_ = 0;
  EngineRates rates_;
  std::array<uint64_t, 6> refused_{};
};

}  // namespace tidemill
