// Who gets how many rows of a step: a table of small cases.
#include "engine/prompt_share.h"

#include <gtest/gtest.h>

#include <vector>

namespace tidemill {
namespace {

// A model that knows: 1 ms a row, nothing else but a little.
StepCost millisecond_rows() {
  StepCost cost;
  for (int64_t rows = 1; rows < 200; ++rows) {
    StepShape shape;
    shape.add(0, rows, false);
    cost.observe(shape, 1e-3 * static_cast<double>(rows));
  }
  return cost;
}

std::vector<int32_t> shares(std::vector<int32_t> remaining, StepRoom room, std::vector<int32_t> classes = {}) {
  std::vector<PromptDemand> demands;
  for (size_t i = 0; i < remaining.size(); ++i) {
    demands.push_back({.num_remaining = remaining[i], .latency_class = classes.empty() ? 1 : classes[i]});
  }
  std::vector<PromptDemand*> scratch(demands.size());
  share_room(demands, room, millisecond_rows(), scratch);
  std::vector<int32_t> granted;
  for (const PromptDemand& demand : demands) granted.push_back(demand.num_granted);
  return granted;
}

using Shares = std::vector<int32_t>;

TEST(PromptShare, AllThatFitGetAllTheyWant) {
  EXPECT_EQ(shares({}, {.num_rows = 10}), Shares{});
  EXPECT_EQ(shares({4, 3, 3}, {.num_rows = 10}), (Shares{4, 3, 3}));
}

TEST(PromptShare, TheFirstGetsHalfAndWhatTheShorterOnesLeave) {
  EXPECT_EQ(shares({100, 10, 4}, {.num_rows = 40}), (Shares{26, 10, 4}));
  EXPECT_EQ(shares({100, 30, 8}, {.num_rows = 40}), (Shares{20, 12, 8}));  // shortest first
  EXPECT_EQ(shares({100, 100, 100}, {.num_rows = 40}), (Shares{40, 0, 0}));
  EXPECT_EQ(shares({10, 100, 50}, {.num_rows = 40}), (Shares{10, 30, 0}));  // nobody is shorter than the first
}

TEST(PromptShare, AWorseClassDoesNotOvertake) {
  EXPECT_EQ(shares({100, 10}, {.num_rows = 40}, {0, 1}), (Shares{40, 0}));
  EXPECT_EQ(shares({100, 10}, {.num_rows = 40}, {0, 0}), (Shares{30, 10}));
}

TEST(PromptShare, TimeIsABudgetBesideRows) {
  const Shares alone = shares({1000}, {.num_rows = 512, .seconds = 0.05});
  EXPECT_GT(alone[0], 40);
  EXPECT_LE(alone[0], 50);
  const Shares two = shares({1000, 10}, {.num_rows = 512, .seconds = 0.05});
  EXPECT_EQ(two[1], 10);
  EXPECT_GT(two[0], 30);
  EXPECT_LE(two[0], 40);
}

TEST(PromptShare, SomeRowsAreHadWhateverTheyCost) {
  EXPECT_EQ(shares({1000}, {.num_rows = 512, .seconds = 0, .min_rows = 16})[0], 16);
  EXPECT_EQ(shares({5}, {.num_rows = 512, .seconds = 0, .min_rows = 16})[0], 5);
  EXPECT_EQ(shares({1000}, {.num_rows = 3, .seconds = 0, .min_rows = 16})[0], 3);
  EXPECT_EQ(shares({1000}, {.num_rows = 512, .seconds = 0})[0], 0);
  // Of 16 rows the shorter one has half.
  EXPECT_NEAR(shares({1000, 100}, {.num_rows = 512, .seconds = 0, .min_rows = 16})[1], 8, 1);
}

}  // namespace
}  // namespace tidemill
