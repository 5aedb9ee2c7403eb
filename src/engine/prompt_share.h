// Who of the waiting prompts computes how many rows in a step.
//
// Where not all fit, the first in the order of service gets at least half of the room, in rows and in time; the other
// half goes to prompts of its latency class behind it that have less to do, shortest first, so that a short question
// does not wait for a long document; what they leave goes to the first, then to the others in order. Where a prompt has
// read much already its rows cost more, so its chunk gets smaller by itself. A pure function of plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "engine/step_cost.h"

namespace tidemill {

struct Sequence;

// A sequence that may get prompt rows in this step.
struct PromptDemand {
  Sequence* sequence = nullptr;
  int32_t first_position = 0;  // of its next row
  int32_t num_remaining = 0;   // rows until it can draw, hits left out
  int32_t latency_class = 0;   // as it is served now, waiting counted
  int32_t num_granted = 0;
};

inline constexpr double endless_s = std::numeric_limits<double>::infinity();

// What a step has left for prompts.
struct StepRoom {
  int32_t num_rows = 0;
  double seconds = endless_s;  // that their rows may add
  int32_t min_rows = 0;        // may be had whatever they cost
};

// Fills in num_granted of `demands`, which are in the order of service and have none yet. `scratch` is as long as
// `demands`; what is in it does not matter.
void share_room(std::span<PromptDemand> demands, StepRoom room, const StepCost& cost, std::span<PromptDemand*> scratch);

}  // namespace tidemill
