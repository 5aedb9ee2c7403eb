#include "eval/eval_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tidemill {
namespace {

TEST(EvalStatisticsTest, AnIntervalIsTheMeanAndItsStandardErrors) {
  // 1, 2, 3, 4: mean 2.5, variance 5/3.
  const Interval interval = mean_interval(10, 30, 4);
  EXPECT_DOUBLE_EQ(interval.value, 2.5);
  EXPECT_NEAR(interval.high - interval.value, 1.959964 * std::sqrt(5.0 / 3 / 4), 1e-6);
  EXPECT_NEAR(interval.value - interval.low, interval.high - interval.value, 1e-12);
  EXPECT_TRUE(std::isnan(mean_interval(0, 0, 0).value));
}

TEST(EvalStatisticsTest, RowsGiveMeansPercentilesAndRatios) {
  RowStatistics rows;
  for (int i = 0; i < 1000; ++i) {
    rows.add({.kl = i == 17 ? 5.0 : 0.001 * i,
              .reference_top = 1,
              .top = i % 10 == 0 ? 2 : 1,
              .reference_logprob = -2,
              .logprob = -2.1});
  }
  EXPECT_EQ(rows.count(), 1000);
  EXPECT_DOUBLE_EQ(rows.worst_kl(), 5);
  EXPECT_DOUBLE_EQ(rows.percentile_kl(99.9), 5);
  EXPECT_NEAR(rows.same_top(), 0.9, 1e-12);
  EXPECT_NEAR(rows.reference_perplexity(), std::exp(2), 1e-9);
  EXPECT_NEAR(rows.perplexity_ratio().value, std::exp(0.1), 1e-9);
  EXPECT_NEAR(rows.perplexity_ratio().low, rows.perplexity_ratio().high, 1e-6);

  RowStatistics twice = rows;
  twice.add(rows);
  EXPECT_EQ(twice.count(), 2000);
  EXPECT_DOUBLE_EQ(twice.mean_kl(), rows.mean_kl());
}

TEST(EvalStatisticsTest, ItemsArePaired) {
  ItemStatistics items;
  for (int i = 0; i < 40; ++i) items.add(true, true);
  for (int i = 0; i < 6; ++i) items.add(true, false);
  for (int i = 0; i < 2; ++i) items.add(false, true);
  for (int i = 0; i < 52; ++i) items.add(false, false);
  EXPECT_EQ(items.num_items, 100);
  EXPECT_DOUBLE_EQ(items.reference_accuracy(), 0.46);
  EXPECT_DOUBLE_EQ(items.accuracy(), 0.42);
  EXPECT_DOUBLE_EQ(items.difference().value, -0.04);
  EXPECT_LT(items.difference().high - items.difference().low, 0.12);  // unpaired it would be 0.27
  // Two sides of binomial(8, 1/2) at most 2: 2 * (1 + 8 + 28) / 256.
  EXPECT_NEAR(items.p_value(), 2 * 37.0 / 256, 1e-12);
  EXPECT_EQ(ItemStatistics().p_value(), 1);
}

}  // namespace
}  // namespace tidemill
