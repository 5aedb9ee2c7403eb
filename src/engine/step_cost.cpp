#include "engine/step_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tidemill {
namespace {

// A small model on two cores. Only proportions matter for long: the first steps set the scale.
constexpr StepCost::Terms prior = {4e-3, 300e-6, 100e-6, 150e-9, 50e-9};
constexpr double prior_weight = 0.02;     // against 1 of a measured step
constexpr double kept_of_kind = 0.95;     // of what steps of the same kind and magnitude said before
constexpr double kept_of_all = 0.9995;    // of what any step said before
constexpr double kept_when_wrong = 0.97;  // the same while predictions fail: machines change their speed
constexpr double wrong_error = 0.15;      // mean error of predictions that fail
constexpr double usual_error = 0.05;      // least error below which a step counts in full
constexpr int num_sweeps = 12;

StepCost::Terms terms_of(const StepShape& shape) {
  return {1.0, static_cast<double>(shape.num_rows), static_cast<double>(shape.num_draws),
          static_cast<double>(shape.decode_positions), static_cast<double>(shape.prompt_positions)};
}

size_t kind_of(const StepShape& shape) {
  if (shape.num_prompt_rows == 0) return 0;
  return shape.num_prompt_rows == shape.num_rows ? 1 : 2;
}

// Index of (i, j), i <= j, in a triangle stored by rows.
constexpr size_t at(size_t i, size_t j) {
  return i * StepCost::num_terms - i * (i + 1) / 2 + j;
}

}  // namespace

void StepShape::add(int64_t first_position, int64_t rows, bool draws) {
  num_rows += rows;
  num_draws += draws;
  const int64_t positions = rows * first_position + rows * (rows + 1) / 2;
  if (rows == 1) {
    decode_positions += positions;
  } else {
    num_prompt_rows += rows;
    prompt_positions += positions;
  }
}

StepShape shape_of(const StepPlan& plan) {
  StepShape shape;
  for (const PlannedSequence& sequence : plan.sequences) {
    shape.add(sequence.first_position, sequence.num_rows, sequence.draw);
  }
  return shape;
}

StepCost::StepCost() : coefficients_(prior) {
  scales_.fill(1);
}

double StepCost::predict_s(const StepShape& shape) const {
  const Terms terms = terms_of(shape);
  double seconds = 0;
  for (size_t i = 0; i < num_terms; ++i) seconds += coefficients_[i] * terms[i];
  return seconds;
}

double StepCost::added_s(int64_t first_position, int64_t rows, bool draws) const {
  StepShape shape;
  shape.add(first_position, rows, draws);
  return predict_s(shape) - coefficients_[0];
}

int32_t StepCost::rows_within(double seconds, int64_t first_position, int32_t most) const {
  if (most <= 0) return 0;
  if (added_s(first_position, most, true) <= seconds) return most;
  // row * n + position * (n * first + n * (n + 1) / 2) = seconds
  const double square = coefficients_[4] / 2;
  const double linear = coefficients_[1] + coefficients_[4] * (static_cast<double>(first_position) + 0.5);
  if (seconds <= 0) return 0;
  const double root = std::sqrt(linear * linear + 4 * square * seconds);
  const double rows = linear + root > 0 ? 2 * seconds / (linear + root) : most - 1;
  return static_cast<int32_t>(std::clamp(rows + 1e-6, 0.0, most - 1.0));  // 16 rows' seconds are enough for 16 rows
}

void StepCost::observe(const StepShape& shape, double seconds) {
  if (shape.num_rows <= 0 || !(seconds > 0)) return;
  const double error = std::abs(predict_s(shape) - seconds) / seconds;
  const double trusted = num_observed_ == 0 ? 1 : std::max(usual_error, 3 * mean_error_);
  const double weight = error > trusted ? trusted / error : 1;
  mean_error_ += (std::min(error, 1.0) - mean_error_) / static_cast<double>(std::min<uint64_t>(num_observed_ + 1, 50));
  ++num_observed_;

  Terms terms = terms_of(shape);
  for (size_t i = 0; i < num_terms; ++i) terms[i] *= prior[i] / seconds;
  const double kept = mean_error_ > wrong_error ? kept_when_wrong : kept_of_all;
  for (Memory& memory : memories_) {
    if (memory.weight == 0) continue;
    for (double& value : memory.products) value *= kept;
    for (double& value : memory.times) value *= kept;
    memory.weight *= kept;
  }
  const size_t magnitude = std::min<size_t>(std::bit_width(static_cast<uint64_t>(shape.num_rows)), num_magnitudes - 1);
  Memory& memory = memories_[kind_of(shape) * num_magnitudes + magnitude];
  for (size_t i = 0; i < num_terms; ++i) {
    memory.times[i] = memory.times[i] * kept_of_kind + weight * terms[i];
    for (size_t j = i; j < num_terms; ++j) {
      memory.products[at(i, j)] = memory.products[at(i, j)] * kept_of_kind + weight * terms[i] * terms[j];
    }
  }
  memory.weight = memory.weight * kept_of_kind + weight;
  solve();
}

// Least squares with scales >= 0 by coordinate descent from the last solution. What no measurement speaks of is drawn,
// weakly, to the scale that the measured terms have on average, so that a model 50 times as large has a sane prior too.
void StepCost::solve() {
  Memory sum;
  for (const Memory& memory : memories_) {
    if (memory.weight == 0) continue;
    for (size_t i = 0; i < sum.products.size(); ++i) sum.products[i] += memory.products[i];
    for (size_t i = 0; i < num_terms; ++i) sum.times[i] += memory.times[i];
    sum.weight += memory.weight;
  }
  double all_products = 0, all_times = 0;
  for (size_t i = 0; i < num_terms; ++i) {
    all_times += sum.times[i];
    for (size_t j = 0; j < num_terms; ++j) all_products += sum.products[at(std::min(i, j), std::max(i, j))];
  }
  const double common = all_products > 0 ? all_times / all_products : 1;
  for (int sweep = 0; sweep < num_sweeps; ++sweep) {
    for (size_t i = 0; i < num_terms; ++i) {
      // The prior's error is relative to the common scale, as the measured ones are relative to their times.
      const double pull = prior_weight / (common * common);
      double rest = sum.times[i] + pull * common;
      for (size_t j = 0; j < num_terms; ++j) {
        if (j != i) rest -= sum.products[at(std::min(i, j), std::max(i, j))] * scales_[j];
      }
      scales_[i] = std::max(0.0, rest / (sum.products[at(i, i)] + pull));
    }
  }
  for (size_t i = 0; i < num_terms; ++i) coefficients_[i] = scales_[i] * prior[i];
}

}  // namespace tidemill
