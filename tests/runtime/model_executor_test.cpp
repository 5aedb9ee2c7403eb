// The executor against a model that answers from what it finds in the KV blocks, so that a wrong table, a lost copy or
// a shifted position changes the answer.
#include "runtime/model_executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace tidemill {
namespace {

constexpr int32_t vocab = 64;
constexpr int32_t block_size = 4;

// Stores token + 1 at each position (fp32, one layer, one head of one value) and answers with the sum over all
// positions of token * (position + 1), modulo the vocabulary.
class SummingModel final : public Model {
 public:
  SummingModel() {
    info_.vocab_size = vocab;
    layout_.groups.push_back({.layers = {0}, .shape = {1, 1, 1, 0}, .window = 0});
  }
  const ModelInfo& info() const override { return info_; }
  const KvLayout& kv_layout() const override { return layout_; }
  size_t reserve(int32_t max_rows, int32_t) override {
    max_rows_ = max_rows;
    return 0;
  }
  void forward(const StepInputs& inputs) override {
    EXPECT_LE(static_cast<int32_t>(inputs.tokens.size()), max_rows_);
    answers_.assign(inputs.tokens.size(), 0);
    const KvGroupView& kv = inputs.groups[0];
    for (const KvSegment& segment : kv.segments) {
      for (int32_t i = 0; i < segment.num_rows; ++i) {
        const int32_t row = segment.first_row + i;
        EXPECT_EQ(inputs.positions[row], segment.first_position + i);
        at(kv, segment, segment.first_position + i) = static_cast<float>(inputs.tokens[row]);
        int64_t sum = 0;
        for (int32_t position = 0; position <= segment.first_position + i; ++position)
          sum += static_cast<int64_t>(at(kv, segment, position)) * (position + 1);
        answers_[row] = static_cast<TokenId>(sum % vocab);
      }
    }
  }
  Rows logits(std::span<const int32_t> row_ids) override {
    logits_.assign(row_ids.size() * vocab, 0.0f);
    for (size_t i = 0; i < row_ids.size(); ++i) logits_[i * vocab + answers_[row_ids[i]]] = 10.0f;
    return {logits_.data(), static_cast<int32_t>(row_ids.size()), vocab};
  }

 private:
  static float& at(const KvGroupView& kv, const KvSegment& segment, int32_t position) {
    const BlockPlace place = segment.places[position / block_size - segment.first_block];
    const KvArena& arena = kv.arenas[place.size_class];
    return reinterpret_cast<float*>(arena.base + place.slot * arena.slot_bytes)[position % block_size];
  }
  ModelInfo info_;
  KvLayout layout_;
  int32_t max_rows_ = 0;
  std::vector<TokenId> answers_;
  std::vector<float> logits_;
};

TokenId expected_after(const std::vector<TokenId>& tokens) {
  int64_t sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) sum += tokens[i] * static_cast<int64_t>(i + 1);
  return static_cast<TokenId>(sum % vocab);
}

class ModelExecutorTest : public ::testing::TestWithParam<int32_t> {
 protected:
  ModelExecutorTest()
      : storage_(std::move(KvStorage::make(model_.kv_layout(), block_size, {KvFormat::fp32}, 1 << 20)).value()),
        executor_(model_, *storage_, {.max_num_seqs = 4, .max_rows = GetParam(), .max_logit_rows = 2}) {}

  PlannedSequence start(SlotId slot, std::vector<TokenId> tokens, std::vector<BlockPlace> places) {
    PlannedSequence planned;
    planned.slot = slot;
    planned.start = SequenceStart{tokens, static_cast<int32_t>(tokens.size()), {}};
    planned.start->sampling.temperature = 0;
    planned.num_rows = static_cast<int32_t>(tokens.size());
    planned.tables = {{.num_dropped = 0, .appended = std::move(places), .first_block = 0}};
    planned.draw = true;
    return planned;
  }

  SummingModel model_;
  std::unique_ptr<KvStorage> storage_;
  ModelExecutor executor_;
};

TEST_P(ModelExecutorTest, PrefillAndDecodeReadTheirOwnBlocks) {
  const std::vector<TokenId> a{3, 1, 4, 1, 5}, b{9, 2, 6, 5, 3, 5, 8};
  StepPlan plan;
  plan.sequences.push_back(start(2, a, {{7, 0}, {3, 0}}));
  plan.sequences.push_back(start(0, b, {{0, 0}, {5, 0}}));
  StepResult result = executor_.execute(plan);
  EXPECT_EQ(result.sequences[0].draw->token, expected_after(a));
  EXPECT_EQ(result.sequences[1].draw->token, expected_after(b));

  std::vector<TokenId> longer = b;
  for (TokenId token : {result.sequences[1].draw->token, TokenId{11}, TokenId{12}}) {
    PlannedSequence next;
    next.slot = 0;
    next.new_tokens = {token};
    next.first_position = static_cast<int32_t>(longer.size());
    next.num_rows = 1;
    next.tables.resize(1);
    if (longer.size() % block_size == 0) next.tables[0].appended = {{9, 0}};
    next.draw = true;
    longer.push_back(token);
    StepPlan step;
    step.sequences = {next};
    EXPECT_EQ(executor_.execute(step).sequences[0].draw->token, expected_after(longer));
  }
}

TEST_P(ModelExecutorTest, PromptLogprobsScoreEveryKnownNextToken) {
  const std::vector<TokenId> tokens{3, 1, 4, 1, 5, 9};
  StepPlan plan;
  plan.sequences.push_back(start(1, tokens, {{1, 0}, {2, 0}}));
  plan.sequences[0].prompt_logprobs = 1;
  const StepResult result = executor_.execute(plan);
  ASSERT_EQ(result.sequences[0].prompt_logprobs.size(), tokens.size() - 1);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const Draw& score = result.sequences[0].prompt_logprobs[i];
    EXPECT_EQ(score.token, tokens[i + 1]);
    EXPECT_EQ(score.top[0].token, expected_after({tokens.begin(), tokens.begin() + i + 1}));
  }
}

TEST_P(ModelExecutorTest, CopiedTailsGoTheirOwnWays) {
  const std::vector<TokenId> tokens{3, 1, 4, 1, 5, 9};
  StepPlan plan;
  plan.sequences.push_back(start(0, tokens, {{1, 0}, {2, 0}}));
  executor_.execute(plan);
  // A second sequence shares the full block 1 and continues in a copy of the tail 2.
  StepPlan fork;
  fork.moves = {{MoveKind::copy, 0, {2, 0}, {6, 0}}};
  PlannedSequence child = start(3, {3, 1, 4, 1, 5, 9, 20}, {{1, 0}, {6, 0}});
  child.first_position = 6;
  child.num_rows = 1;
  PlannedSequence parent;
  parent.slot = 0;
  parent.new_tokens = {30};
  parent.first_position = 6;
  parent.num_rows = 1;
  parent.tables.resize(1);
  parent.draw = true;
  fork.sequences = {child, parent};
  const StepResult result = executor_.execute(fork);
  EXPECT_EQ(result.sequences[0].draw->token, expected_after({3, 1, 4, 1, 5, 9, 20}));
  EXPECT_EQ(result.sequences[1].draw->token, expected_after({3, 1, 4, 1, 5, 9, 30}));
}

TEST_P(ModelExecutorTest, AnEndedSlotServesTheNextSequenceInTheSamePlan) {
  StepPlan plan;
  plan.sequences.push_back(start(0, {1, 2, 3}, {{1, 0}}));
  executor_.execute(plan);
  StepPlan next;
  next.ended = {0};
  next.sequences.push_back(start(0, {7, 7}, {{1, 0}}));
  EXPECT_EQ(executor_.execute(next).sequences[0].draw->token, expected_after({7, 7}));
}

INSTANTIATE_TEST_SUITE_P(RowsPerSlice, ModelExecutorTest, ::testing::Values(1, 3, 64));

// A plan may seal a block, take its place away again in a preemption, and seal another one there.
TEST(KvStorage, OfSealsIntoOnePlaceTheLastStays) {
  auto backend = make_cpu_backend({.num_threads = 4}).value();
  KvLayout layout;
  layout.groups.push_back({.layers = std::vector<int32_t>(12), .shape = {2, 64, 64, 0}});
  for (int32_t i = 0; i < 12; ++i) layout.groups[0].layers[static_cast<size_t>(i)] = i;
  auto storage = std::move(KvStorage::make(layout, 32, {KvFormat::int8}, 4 << 20, backend.get())).value();
  const auto sealed = static_cast<uint8_t>(storage->storage_class(0, 0));
  const auto tail = static_cast<uint8_t>(sealed == 0 ? 1 : 0);
  std::mt19937 random(1);
  for (uint32_t slot = 0; slot < 2; ++slot) {
    for (std::byte& byte : storage->bytes_of({slot, tail})) byte = static_cast<std::byte>(random() % 60);
  }
  storage->move({.kind = MoveKind::seal, .from = {1, tail}, .to = {5, sealed}});
  const std::vector<std::byte> want(storage->bytes_of({5, sealed}).begin(), storage->bytes_of({5, sealed}).end());
  for (int round = 0; round < 100; ++round) {
    const BlockMove moves[] = {{.kind = MoveKind::seal, .from = {0, tail}, .to = {5, sealed}},
                               {.kind = MoveKind::seal, .from = {1, tail}, .to = {5, sealed}}};
    storage->move(moves);
    ASSERT_TRUE(std::ranges::equal(storage->bytes_of({5, sealed}), want)) << round;
  }
}

TEST(KvStorage, DroppedSlotsReadAsZerosAndTheirNeighboursStay) {
  KvLayout layout;
  layout.groups.push_back({.layers = {0, 1}, .shape = {2, 64, 64, 0}, .window = 0});
  auto storage = std::move(KvStorage::make(layout, 32, {KvFormat::fp16}, 1 << 20)).value();
  const KvArena& arena = storage->arenas()[0];
  std::memset(arena.base, 0x5a, 3 * arena.slot_bytes);
  storage->move({MoveKind::drop, 0, {1, 0}, {}});
  EXPECT_EQ(arena.base[arena.slot_bytes - 1], std::byte{0x5a});
  EXPECT_EQ(arena.base[arena.slot_bytes + arena.slot_bytes / 2], std::byte{0});
  EXPECT_EQ(arena.base[2 * arena.slot_bytes], std::byte{0x5a});
}

}  // namespace
}  // namespace tidemill
