// The fitted model of a step's time: what it learns, how fast, and what does not throw it off. Times are made up, with
// a noise that is the same in every run.
#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/split_mix.h"

namespace tidemill {
namespace {

// What the made-up machine takes, in seconds.
struct Machine {
  double step = 5e-3, row = 280e-6, draw = 120e-6, decode_position = 400e-9, prompt_position = 120e-9;
  double time_s(const StepShape& shape) const {
    return step + row * static_cast<double>(shape.num_rows) + draw * static_cast<double>(shape.num_draws) +
           decode_position * static_cast<double>(shape.decode_positions) +
           prompt_position * static_cast<double>(shape.prompt_positions);
  }
  Machine times(double factor) const {
    return {step * factor, row * factor, draw * factor, decode_position * factor, prompt_position * factor};
  }
};

StepShape decodes(int64_t num_streams, int64_t context) {
  StepShape shape;
  for (int64_t i = 0; i < num_streams; ++i) shape.add(context, 1, true);
  return shape;
}

StepShape with_prompt(StepShape shape, int64_t first, int64_t rows, bool draws = false) {
  shape.add(first, rows, draws);
  return shape;
}

// Steps as a server sees them; deterministic.
class Traffic {
 public:
  StepShape next() {
    const auto below = [this](uint64_t most) { return static_cast<int64_t>(split_mix(++state_) % most); };
    StepShape shape = decodes(below(40), 20 + below(800));
    if (shape.num_rows == 0 || below(2) == 0) shape.add(below(3000), 2 + below(300), below(3) == 0);
    return shape;
  }
  // Between 1 - width and 1 + width.
  double noise(double width) { return 1 + width * (static_cast<double>(split_mix(++state_) % 2001) / 1000 - 1); }

 private:
  uint64_t state_ = 42;
};

double error_of(const StepCost& cost, const Machine& machine, const StepShape& shape) {
  return std::abs(cost.predict_s(shape) - machine.time_s(shape)) / machine.time_s(shape);
}

void expect_knows(const StepCost& cost, const Machine& machine, double tolerance) {
  for (int64_t streams : {1, 8, 32}) {
    for (int64_t context : {100, 600}) {
      EXPECT_LT(error_of(cost, machine, decodes(streams, context)), tolerance) << streams << " at " << context;
      const StepShape more = with_prompt(decodes(streams, context), 1000, 128);
      EXPECT_LT(error_of(cost, machine, more), tolerance) << streams << " at " << context << " and a chunk";
    }
  }
  EXPECT_LT(error_of(cost, machine, with_prompt({}, 2000, 256)), tolerance);
}

TEST(StepCost, LearnsWhatStepsTake) {
  const Machine machine;
  StepCost cost;
  Traffic traffic;
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = traffic.next();
    cost.observe(shape, machine.time_s(shape) * traffic.noise(0.05));
  }
  expect_knows(cost, machine, 0.06);
  for (double coefficient : cost.coefficients()) EXPECT_GE(coefficient, 0);
  EXPECT_LT(cost.mean_error(), 0.06);
}

TEST(StepCost, AModelAHundredTimesAsLargeIsKnownAfterAFewSteps) {
  const Machine machine = Machine{}.times(100);
  StepCost cost;
  cost.observe(with_prompt({}, 0, 200, true), machine.time_s(with_prompt({}, 0, 200, true)));
  for (int64_t i = 0; i < 3; ++i) cost.observe(decodes(1, 200 + i), machine.time_s(decodes(1, 200 + i)));
  const StepShape next = with_prompt(decodes(2, 300), 0, 64);
  EXPECT_LT(error_of(cost, machine, next), 0.3);
}

TEST(StepCost, AThreadThatDidNotRunNowAndThenChangesLittle) {
  const Machine machine;
  StepCost cost;
  Traffic traffic;
  for (int i = 0; i < 400; ++i) {
    const StepShape shape = traffic.next();
    const bool held_up = i > 20 && i % 20 == 0;
    cost.observe(shape, machine.time_s(shape) * (held_up ? 10 : 1) * traffic.noise(0.03));
  }
  expect_knows(cost, machine, 0.12);
}

TEST(StepCost, LongDecodingDoesNotWashOutWhatPromptsCost) {
  const Machine machine;
  StepCost cost;
  Traffic traffic;
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = traffic.next();
    cost.observe(shape, machine.time_s(shape));
  }
  for (int64_t i = 0; i < 2000; ++i) {
    const StepShape shape = decodes(16, 100 + i);
    cost.observe(shape, machine.time_s(shape) * traffic.noise(0.05));
  }
  expect_knows(cost, machine, 0.15);
}

TEST(StepCost, FollowsAMachineThatChangesItsSpeed) {
  const Machine fast, slow = Machine{}.times(2);
  StepCost cost;
  Traffic traffic;
  for (int i = 0; i < 300; ++i) {
    const StepShape shape = traffic.next();
    cost.observe(shape, fast.time_s(shape));
  }
  for (int i = 0; i < 600; ++i) {
    const StepShape shape = traffic.next();
    cost.observe(shape, slow.time_s(shape));
  }
  expect_knows(cost, slow, 0.1);
}

TEST(StepCost, RowsWithinIsTheInverseOfWhatRowsAdd) {
  const Machine machine;
  StepCost cost;
  Traffic traffic;
  for (int i = 0; i < 100; ++i) {
    const StepShape shape = traffic.next();
    cost.observe(shape, machine.time_s(shape));
  }
  int32_t last = 1 << 20;
  for (int64_t first : {0, 500, 4000, 30000}) {
    const int32_t rows = cost.rows_within(0.05, first, 1 << 20);
    EXPECT_LE(cost.added_s(first, rows, false), 0.05) << first;
    EXPECT_GT(cost.added_s(first, rows + 1, false), 0.05) << first;
    EXPECT_LT(rows, last) << "what is read already makes chunks smaller";
    last = rows;
  }
  EXPECT_EQ(cost.rows_within(10, 0, 100), 100);
  EXPECT_EQ(cost.rows_within(0, 0, 100), 0);
  EXPECT_EQ(cost.rows_within(-1, 0, 100), 0);
  EXPECT_EQ(cost.rows_within(1, 0, 0), 0);
}

TEST(StepCost, TheSameMeasurementsGiveTheSameCoefficients) {
  const Machine machine;
  StepCost a, b;
  for (StepCost* cost : {&a, &b}) {
    Traffic traffic;
    for (int i = 0; i < 50; ++i) {
      const StepShape shape = traffic.next();
      cost->observe(shape, machine.time_s(shape) * traffic.noise(0.1));
    }
  }
  EXPECT_EQ(a.coefficients(), b.coefficients());
}

TEST(StepCost, MeasurementsThatSayNothingAreIgnored) {
  StepCost cost;
  const StepCost::Terms before = cost.coefficients();
  cost.observe({}, 1);
  cost.observe(decodes(1, 10), 0);
  cost.observe(decodes(1, 10), -1);
  cost.observe(decodes(1, 10), std::nan(""));
  EXPECT_EQ(cost.coefficients(), before);
  EXPECT_EQ(cost.num_observed(), 0u);
}

}  // namespace
}  // namespace tidemill
