// The simulated executor is the oracle of the engine tests, so what it must catch is tested here.
#include "sim/simulated_executor.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

EngineConfig config_of() {
  EngineConfig config;
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 0}};
  config.block_size_tokens = 4;
  config.kv_budget_bytes = 1000;
  config.max_model_len_tokens = 100;
  config.max_num_seqs = 4;
  return config;
}

BlockPlace at(uint32_t slot) {
  return {slot, 0};
}

PlannedSequence starting(SlotId slot, std::vector<TokenId> tokens, std::vector<BlockPlace> places, int32_t first = 0) {
  PlannedSequence sequence;
  sequence.slot = slot;
  const int32_t num_tokens = static_cast<int32_t>(tokens.size());
  sequence.start = SequenceStart{std::move(tokens), num_tokens, {}};
  sequence.start->sampling.temperature = 0;
  sequence.first_position = first;
  sequence.num_rows = num_tokens - first;
  sequence.tables = {TableChange{0, std::move(places), 0}};
  sequence.draw = true;
  return sequence;
}

PlannedSequence going_on(SlotId slot, TokenId token, int32_t position, std::vector<BlockPlace> places = {}) {
  PlannedSequence sequence;
  sequence.slot = slot;
  sequence.new_tokens = {token};
  sequence.first_position = position;
  sequence.num_rows = 1;
  sequence.tables = {TableChange{0, std::move(places), 0}};
  sequence.draw = true;
  return sequence;
}

StepPlan plan_of(uint64_t step, std::vector<PlannedSequence> sequences) {
  StepPlan plan;
  plan.step = step;
  plan.sequences = std::move(sequences);
  return plan;
}

class Oracle : public testing::Test {
 protected:
  TokenId run(const StepPlan& plan) { return executor.execute(plan).sequences.front().draw->token; }
  SimulatedExecutor executor{config_of(), {}};
};
using OracleDeathTest = Oracle;

TEST_F(Oracle, TokensFollowFromAllTokensBefore) {
  const TokenId drawn = run(plan_of(1, {starting(0, {1, 2, 3}, {at(0)})}));
  const TokenId second = run(plan_of(2, {going_on(0, drawn, 3)}));
  SimulatedExecutor other(config_of(), {});
  const StepResult whole = other.execute(plan_of(1, {starting(2, {1, 2, 3, drawn}, {at(5)})}));
  EXPECT_EQ(whole.sequences[0].draw->token, second);
  SimulatedExecutor changed(config_of(), {});
  EXPECT_NE(changed.execute(plan_of(1, {starting(2, {2, 2, 3, drawn}, {at(5)})})).sequences[0].draw->token, second);
}

TEST_F(Oracle, SharedPrefixesAndCopiesAreReadable) {
  run(plan_of(1, {starting(0, {1, 2, 3, 4, 5, 6}, {at(0), at(1)})}));
  StepPlan plan = plan_of(2, {starting(1, {1, 2, 3, 4, 5, 6}, {at(0), at(2)}, 5)});
  plan.moves = {{MoveKind::copy, 0, at(1), at(2)}};
  run(plan);
}

TEST_F(OracleDeathTest, AHitOnOtherTokens) {
  run(plan_of(1, {starting(0, {1, 2, 3, 4, 5}, {at(0), at(1)})}));
  EXPECT_DEATH(run(plan_of(2, {starting(1, {1, 2, 3, 9, 5}, {at(0), at(2)}, 4)})), "own tokens");
}

TEST_F(OracleDeathTest, AHitOnTheRightTokensAfterOthers) {
  run(plan_of(1, {starting(0, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {at(0), at(1), at(2)})}));
  run(plan_of(2, {starting(1, {9, 9, 9, 9}, {at(3)})}));
  EXPECT_DEATH(run(plan_of(3, {starting(2, {9, 9, 9, 9, 5, 6, 7, 8, 9}, {at(3), at(1), at(4)}, 8)})), "own tokens");
}

TEST_F(OracleDeathTest, ALostCopy) {
  run(plan_of(1, {starting(0, {1, 2, 3, 4, 5, 6}, {at(0), at(1)})}));
  EXPECT_DEATH(run(plan_of(2, {starting(1, {1, 2, 3, 4, 5, 6}, {at(0), at(2)}, 5)})), "own tokens");
}

TEST_F(OracleDeathTest, ABlockThatTwoSequencesWrite) {
  EXPECT_DEATH(run(plan_of(1, {starting(0, {1, 2, 3}, {at(0)}), starting(1, {4, 5, 6}, {at(0)})})), "own tokens");
}

TEST_F(OracleDeathTest, ABlockThatWasDroppedOrReused) {
  run(plan_of(1, {starting(0, {1, 2, 3, 4}, {at(0)})}));
  StepPlan drop = plan_of(2, {going_on(0, 5, 4, {at(1)})});
  drop.moves = {{MoveKind::drop, 0, at(0), at(0)}};
  EXPECT_DEATH(run(drop), "own tokens");
  run(plan_of(2, {starting(1, {8, 8}, {at(0)})}));
  EXPECT_DEATH(run(plan_of(3, {going_on(0, 5, 4, {at(1)})})), "own tokens");
}

TEST_F(OracleDeathTest, GapsDoublesAndMissingBlocks) {
  run(plan_of(1, {starting(0, {1, 2, 3}, {at(0)})}));
  EXPECT_DEATH(run(plan_of(2, {going_on(0, 5, 4, {at(1)})})), "rows have known tokens");  // position 3 was left out
  PlannedSequence doubled = going_on(0, 5, 3);
  doubled.new_tokens = {5, 5};
  EXPECT_DEATH(run(plan_of(2, {doubled})), "a draw follows the last known token");
  run(plan_of(2, {going_on(0, 5, 3)}));
  EXPECT_DEATH(run(plan_of(3, {going_on(0, 6, 4)})), "a position has a block");
  EXPECT_DEATH(run(plan_of(2, {going_on(0, 6, 4, {at(1)})})), "steps ascend");
}

TEST_F(OracleDeathTest, SlotsAndPlacesOutOfRange) {
  EXPECT_DEATH(run(plan_of(1, {going_on(0, 5, 3)})), "a sequence starts once");
  EXPECT_DEATH(run(plan_of(1, {starting(4, {1}, {at(0)})})), "a slot lies in the range");
  EXPECT_DEATH(run(plan_of(1, {starting(0, {1}, {at(10)})})), "within the budget");
  StepPlan plan = plan_of(1, {starting(0, {1}, {at(0)})});
  plan.ended = {1};
  EXPECT_DEATH(run(plan), "an ended slot was live");
}

TEST_F(OracleDeathTest, AWindowCutTooShort) {
  EngineConfig config = config_of();
  config.groups[0].window_tokens = 5;
  SimulatedExecutor windowed(config, {});
  windowed.execute(plan_of(1, {starting(0, {1, 2, 3, 4, 5, 6, 7, 8}, {at(0), at(1)})}));
  PlannedSequence sequence = going_on(0, 9, 8, {at(2)});
  sequence.tables[0].num_dropped = 1;
  windowed.execute(plan_of(2, {sequence}));  // position 8 reads from 4
  SimulatedExecutor again(config, {});
  again.execute(plan_of(1, {starting(0, {1, 2, 3, 4, 5, 6, 7}, {at(0), at(1)})}));
  sequence = going_on(0, 9, 7);
  sequence.tables[0].num_dropped = 1;  // position 7 reads from 3
  EXPECT_DEATH(again.execute(plan_of(2, {sequence})), "a position has a block");
}

TEST(VirtualTime, AStepTakesWhatTheModelSays) {
  VirtualClock clock;
  SimulatedExecutor executor(config_of(), {.cost = {.per_step = std::chrono::nanoseconds(1000),
                                                    .per_row = std::chrono::nanoseconds(100),
                                                    .per_draw = std::chrono::nanoseconds(10),
                                                    .per_position = std::chrono::nanoseconds(1),
                                                    .per_prompt_position = std::chrono::nanoseconds(2)},
                                           .clock = &clock});
  const Clock::Time begin = clock.now();
  const StepResult result = executor.execute(plan_of(1, {starting(0, {1, 2, 3}, {at(0)})}));
  EXPECT_EQ(result.duration_ns, 1000 + 300 + 10 + 2 * 6);
  EXPECT_EQ(clock.now() - begin, std::chrono::nanoseconds(1322));
  PlannedSequence sequence = going_on(0, 9, 3);
  EXPECT_EQ(executor.execute(plan_of(2, {sequence})).duration_ns, 1000 + 100 + 10 + 4);
}

}  // namespace
}  // namespace tidemill
