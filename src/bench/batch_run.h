// One batch of equal sequences through an executor, by plans made by hand: all prompts, then the answers.
//
// No scheduler is in between, so the two phases do not mix and each can be timed alone. Prompts are random tokens,
// different for every sequence and repeat; answers are greedy. One thread, which is the executor's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "bench/bench_model.h"

namespace tidemill {

struct BatchShape {
  int32_t num_sequences = 1;
  int32_t prompt_tokens = 0;
  int32_t new_tokens = 0;
};

struct BatchTimes {
  double prefill_s = 0;         // all prompts, the first tokens with them
  std::vector<double> steps_s;  // each step of one token per sequence
  double decode_s() const;
};

// Whether the batch fits the model's length and its cache; the Error has both numbers.
Result<void> check_batch(const BenchModel& model, BatchShape shape);

// The shape was checked. The executor must not run other sequences meanwhile.
BatchTimes run_batch(const BenchModel& model, Executor& executor, BatchShape shape, uint64_t seed);

// The medians of the repeats of one shape.
struct BatchRates {
  BatchShape shape;
  double prefill_s = 0;
  double decode_s = 0;
  std::vector<double> steps_s;  // of all repeats
  double prefill_tokens_per_s() const;
  double decode_tokens_per_s() const;
};
BatchRates measure_batch(const BenchModel& model, Executor& executor, BatchShape shape, int32_t repeats);

}  // namespace tidemill
