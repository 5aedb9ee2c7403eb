// Runs plans. Two implementations are alive: runtime/ModelExecutor and sim/SimulatedExecutor.
//
// Called from the engine thread only. A plan that breaks the contract (a slot that was never started, a block outside
// the pool) is a broken invariant and stops the process; an executor never refuses a plan.
#pragma once

#include "engine/step_plan.h"

namespace tidemill {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual StepResult execute(const StepPlan& plan) = 0;
  // A result that was used up comes back, so that the next one needs no new memory.
  virtual void recycle(StepResult) {}
};

}  // namespace tidemill
