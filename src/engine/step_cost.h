// What a step will cost: a small linear model of its time, fitted to the steps that were measured.
//
// time = fixed + rows * a + draws * b + positions that decode rows read * c + positions that prompt rows read * d, all
// coefficients >= 0. A step is measured once and enters normal equations in units relative to its own time, so a step
// of 5 ms and one of 500 ms count alike; steps far off the prediction (a thread that was not scheduled) count less.
// Kinds of steps (decode rows only, prompts only, both; by magnitude of rows) are remembered apart: an hour of decoding
// does not wash out what a prompt costs. Until there are measurements, a prior answers, which is weaker than one step.
//
// Deterministic: the same measurements give the same coefficients. Allocates nothing. Used by the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "engine/step_plan.h"

namespace tidemill {

// What of a step its time depends on.
struct StepShape {
  int64_t num_rows = 0;
  int64_t num_prompt_rows = 0;   // of num_rows, those of sequences with several rows
  int64_t num_draws = 0;         // rows that meet the output head
  int64_t decode_positions = 0;  // positions that attention reads for rows that come alone, summed
  int64_t prompt_positions = 0;  // the same for rows that come together and share what is read

  void add(int64_t first_position, int64_t rows, bool draws);
};

StepShape shape_of(const StepPlan& plan);

class StepCost {
 public:
  // Coefficients in seconds: of a step, a row, a draw, a position of a decode row, a position of a prompt row.
  static constexpr size_t num_terms = 5;
  using Terms = std::array<double, num_terms>;
  static constexpr std::array<const char*, num_terms> term_names = {"step", "row", "draw", "decode_position",
                                                                    "prompt_position"};

  StepCost();

  double predict_s(const StepShape& shape) const;
  // What so many more rows of one sequence add to a step that runs anyway.
  double added_s(int64_t first_position, int64_t rows, bool draws) const;
  // The most rows from first_position on, up to `most`, that add at most `seconds`; the last row of `most` draws.
  int32_t rows_within(double seconds, int64_t first_position, int32_t most) const;

  void observe(const StepShape& shape, double seconds);

  const Terms& coefficients() const { return coefficients_; }
  // |measured - predicted| / measured of recent steps, averaged.
  double mean_error() const { return mean_error_; }
  uint64_t num_observed() const { return num_observed_; }

 private:
  static constexpr size_t num_kinds = 3;
  static constexpr size_t num_magnitudes = 20;
  // Weighted sums over steps of one kind and magnitude: products of terms, and of terms with the measured time.
  struct Memory {
    std::array<double, num_terms*(num_terms + 1) / 2> products{};
    Terms times{};
    double weight = 0;
  };
  void solve();

  std::array<Memory, num_kinds * num_magnitudes> memories_{};
  Terms scales_{};  // coefficients over their priors
  Terms coefficients_{};
  double mean_error_ = 0;
  uint64_t num_observed_ = 0;
};

}  // namespace tidemill
