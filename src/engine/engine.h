// The engine: one thread that repeats schedule -> execute -> apply and tells a listener what happened.
//
// submit, cancel, finish_choice, shutdown and stats may be called from any thread; they talk to the engine thread
// through a bounded inbox and never wait for a step. The listener is called on the engine thread, once per step with
// all events of that step, and must not block. Every accepted request gets exactly one terminal event per choice.
// Decisions that clients see: prompt plus output may exceed the KV cache; a request that has it to itself when it is
// full ends with `length`, after one token more than positions fit. max_tokens 0 computes the prompt, draws nothing and
// ends with `length`. First come, first served, but a short prompt may overtake the rest of a long one (scheduler.h).
// Each choice ends once; finish_choice on a choice that ended meanwhile changes nothing. run() may be driven by the
// caller (tests, simulation: step_once()) or by a thread that start() makes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/step_trace.h"
#include "engine/cache_map.h"
#include "engine/engine_config.h"
#include "engine/engine_stats.h"
#include "engine/executor.h"
#include "engine/kv_auditor.h"
#include "engine/request.h"

namespace tidemill {

class EventListener {
 public:
  virtual ~EventListener() = default;
  virtual void publish(std::vector<RequestEvent> events) = 0;
  // Memory of events that were handed on already, for the next ones; contents do not matter.
  virtual std::vector<RequestEvent> spare_events() { return {}; }
};

// Why a request was not taken. Nothing of it stays in memory.
struct Refusal {
  enum class Kind : uint8_t {
    context_length_exceeded,  // prompt and, where one is to be drawn, a token; the message has both numbers
    kv_capacity_exceeded,     // could never fit into the pool; the message has both numbers
    invalid,                  // a parameter the engine can't run with
    queue_full,               // try again after retry_after
    tenant_limit,             // the same, for one key
    shutting_down,
  };
  Kind kind = Kind::invalid;
  std::string message;                       // one sentence
  std::chrono::milliseconds retry_after{0};  // queue_full, tenant_limit
};

class Engine {
 public:
  // trace outlives the engine; null = no trace. auditor: null = no live meter.
  Engine(EngineConfig config, std::unique_ptr<Executor> executor, const Clock& clock, EventListener& listener,
         StepTrace* trace = nullptr, std::unique_ptr<KvAuditor> auditor = nullptr);
  ~Engine();  // stops the thread; open requests end with FinishReason::shutdown
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start();
  // One pass of the loop without a thread; false when there was nothing to do.
  bool step_once();

  std::variant<RequestId, Refusal> submit(Request request);
  void cancel(RequestId request);
  // The consumer found a stop string after `num_tokens` output tokens of this choice; what was drawn beyond is
  // discarded.
  void finish_choice(RequestId request, int32_t choice, int32_t num_tokens);

  // Stops accepting; lets running requests finish within the time limit, then ends the rest (FinishReason::shutdown).
  // Waiting requests end at once. Returns immediately; finished() tells when all is done.
  void shutdown(std::chrono::milliseconds limit);
  bool finished() const;

  // Sets the bytes of the KV cache; any thread. Growing works at once, shrinking step by step, without losing what is
  // cached before it must go. A sentence when the size is not between one block and kv_largest_budget_bytes.
  std::optional<std::string> resize_cache(size_t budget_bytes);
  // Every block as it is after the last step; any thread, makes the engine wait for the copy only.
  CacheMap cache_map() const;
  // Changes of blocks, while somebody watches.
  CacheFeed& cache_feed();
  const EngineConfig& config() const;

  EngineStats stats() const;
  // The current step began longer ago than the watchdog allows.
  bool stuck() const;
  // Recounts blocks, references and slots; a difference stops the process. Also runs by itself when the engine is idle.
  void check_integrity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tidemill
