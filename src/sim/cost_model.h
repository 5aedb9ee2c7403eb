// How long a step takes, as a linear model: a fixed part, a part per row, per draw, and per position that a row reads;
// rows of a prompt share what they read, so a position may cost them less.
// The defaults resemble a 135 M parameter model on two CPU cores; they matter to tests only in proportion.
#pragma once

#include <chrono>
#include <cstdint>

#include "engine/step_plan.h"

namespace tidemill {

struct CostModel {
  std::chrono::nanoseconds per_step{4'000'000};  // reading the weights once
  std::chrono::nanoseconds per_row{400'000};
  std::chrono::nanoseconds per_draw{0};
  std::chrono::nanoseconds per_position{200};         // attention, for each position a row alone looks at
  std::chrono::nanoseconds per_prompt_position{200};  // the same for rows that come together

  std::chrono::nanoseconds per_moved_block{100'000};  // between the pool and a tier below it, or encoded anew

  std::chrono::nanoseconds cost(const StepPlan& plan) const {
    std::chrono::nanoseconds total = per_step;
    for (const PlannedSequence& sequence : plan.sequences) {
      const int64_t rows = sequence.num_rows;
      const int64_t positions = rows * sequence.first_position + rows * (rows + 1) / 2;
      total += per_row * rows + (rows == 1 ? per_position : per_prompt_position) * positions;
      if (sequence.draw) total += per_draw;
    }
    for (const BlockMove& move : plan.moves) {
      if (is_timed(move.kind)) total += per_moved_block;
    }
    return total;
  }
  static bool is_timed(MoveKind kind) {
    return kind == MoveKind::spill || kind == MoveKind::fetch || kind == MoveKind::reencode;
  }
};

}  // namespace tidemill
