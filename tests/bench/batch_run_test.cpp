// The executor that remembers which token lies where stops at the first wrong block.
#include "bench/batch_run.h"

#include <gtest/gtest.h>

#include "sim/simulated_executor.h"

namespace tidemill {
namespace {

TEST(BatchRun, FillsAndSealsTheBlocksOfEveryFormat) {
  for (const bool encoded : {false, true}) {
    for (const int32_t prompt_tokens : {1, 15, 16, 33, 100}) {
      for (const int32_t rows : {7, 24, 64, 512}) {
        BenchModel model;
        model.vocab_size = 100;
        model.config.block_size_tokens = 16;
        model.config.max_num_batched_tokens = rows;
        model.config.max_model_len_tokens = 1000;
        model.config.kv_budget_bytes = 100000;
        model.config.groups = {
            {.tail_bytes = 100, .sealed_bytes = encoded ? 40u : 100u, .same_format = !encoded, .window_tokens = 0},
            {.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 0}};
        int32_t num_rows = 0, num_seals = 0, largest = 0;
        SimulatedOptions options;
        options.observer = [&](const StepPlan& plan, const StepResult&) {
          num_rows += plan.num_rows();
          largest = std::max(largest, plan.num_rows());
          num_seals += static_cast<int32_t>(plan.moves.size());
        };
        SimulatedExecutor executor(model.config, options);
        const BatchShape shape = {.num_sequences = 3, .prompt_tokens = prompt_tokens, .new_tokens = 40};
        ASSERT_TRUE(check_batch(model, shape));
        const BatchTimes times = run_batch(model, executor, shape, 1);
        EXPECT_EQ(times.steps_s.size(), 40u);
        EXPECT_EQ(num_rows, 3 * (prompt_tokens + 40));
        EXPECT_LE(largest, std::max(rows, 3));
        EXPECT_EQ(num_seals > 0, encoded);
      }
    }
  }
}

}  // namespace
}  // namespace tidemill
