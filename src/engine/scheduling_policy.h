// In which order sequences are served, and who makes room when blocks run out.
//
// Latency classes come first, whatever the policy; a policy orders the sequences of one class. It sees plain numbers
// and keeps no state, so it can be tested as a table. The scheduler adds what every policy obeys: the first in the
// order is never preempted, nor one that drew no token since its last preemption. How to add one:
// docs/adding-a-policy.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>

#include "base/clock.h"
#include "engine/engine_config.h"

namespace tidemill {

// What a policy may know of a sequence.
struct Standing {
  LatencyClass latency_class = LatencyClass::standard;
  int32_t priority = 0;  // the request's; lower runs earlier
  Clock::Time arrival{};
  uint64_t order = 0;  // of arrival, unique per request
  int32_t choice = 0;
  bool admitted_before = false;  // preempted, or a later choice of a running request
  double tenant_service = 0;     // what its tenant consumed lately, in tokens
};

// What preempting a sequence would gain and cost: the cheaper of computing again and of moving out and in.
struct VictimStanding {
  size_t num_freed_bytes = 0;        // of blocks held by it alone
  int64_t num_remaining_tokens = 0;  // upper bound of what it will still draw
  int32_t num_computed_tokens = 0;   // to be computed again, unless they are moved out and in
  // How many tokens could be computed while that is done; endless where they cannot be moved.
  double moving_tokens = std::numeric_limits<double>::infinity();
};

class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  // Ranks inside a latency class: a lower one is served first and preempted last.
  virtual int64_t rank(const Standing& standing, Clock::Time now) const = 0;
  // Inside the last rank the highest value goes: kv-cache won, times the time it would stay taken, over the work lost.
  virtual double victim_value(const VictimStanding& victim) const;
};

std::unique_ptr<SchedulingPolicy> make_policy(const EngineConfig& config);

// The latency class in which a sequence is served, one better for each span of waiting, so that nobody starves.
int32_t class_now(const Standing& standing, std::chrono::milliseconds aging, Clock::Time now);

// The order of service: by class_now; then by rank; then who was admitted before; then whose tenant consumed least;
// then by arrival.
bool served_before(const SchedulingPolicy& policy, std::chrono::milliseconds aging, const Standing& a,
                   const Standing& b, Clock::Time now);

}  // namespace tidemill
