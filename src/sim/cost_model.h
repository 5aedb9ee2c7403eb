// How long a step takes, as a linear model: a fixed part, a part per row, and a part per position that a row reads.
// The defaults resemble a 135 M parameter model on two CPU cores; they matter to tests only in proportion.
#pragma once

#include <chrono>
#include <cstdint>

#include "engine/step_plan.h"

namespace tidemill {

struct CostModel {
  std::chrono::nanoseconds per_step{4'000'000};  // reading the weights once
  std::chrono::nanoseconds per_row{400'000};
  std::chrono::nanoseconds per_position{200};  // attention, for each position a row looks at

  std::chrono::nanoseconds cost(const StepPlan& plan) const {
    std::chrono::nanoseconds total = per_step;
    for (const PlannedSequence& sequence : plan.sequences) {
      const int64_t rows = sequence.num_rows;
      const int64_t positions = rows * sequence.first_position + rows * (rows + 1) / 2;
      total += per_row * rows + per_position * positions;
    }
    return total;
  }
};

}  // namespace tidemill
