// Runs plans. Two implementations are alive: runtime/ModelExecutor and sim/SimulatedExecutor.
//
// Called from the engine thread only. A plan that breaks the contract (a slot that was never started, a block outside
// the pool) is a broken invariant and stops the process; an executor never refuses a plan.
#pragma once

#include <chrono>
#include <vector>

#include "engine/step_plan.h"

namespace tidemill {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual StepResult execute(const StepPlan& plan) = 0;
  // What the disk tier holds from before: asked once, before the first plan.
  struct StoredBlock {
    BlockHash hash;
    int32_t group = 0;
    BlockPlace disk;
    std::vector<TokenId> tokens;
    uint32_t owner = 0;
  };
  virtual std::vector<StoredBlock> stored_blocks() { return {}; }
  // Appends the ends of stores and loads since the last call, in the order in which they were planned.
  virtual void take_disk_ends(std::vector<DiskEnd>&) {}
  // Returns when there is such an end, or after the time; for an engine that has nothing else to do.
  virtual void await_disk(std::chrono::milliseconds) {}
  // A result that was used up comes back, so that the next one needs no new memory.
  virtual void recycle(StepResult) {}
};

}  // namespace tidemill
