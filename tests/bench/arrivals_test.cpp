#include "bench/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/statistics.h"

namespace tidemill {
namespace {

std::vector<double> gaps_of(const std::vector<double>& times) {
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  return gaps;
}

TEST(Arrivals, AscendFromZeroAndFollowTheSeed) {
  const std::vector<double> times = arrival_times(100, 5, 1, 7);
  EXPECT_EQ(times.front(), 0);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_EQ(times, arrival_times(100, 5, 1, 7));
  EXPECT_NE(times, arrival_times(100, 5, 1, 8));
  EXPECT_TRUE(arrival_times(0, 5, 1, 7).empty());
}

// The deviation of gamma distributed gaps over their mean is 1 / sqrt(shape).
TEST(Arrivals, HaveTheRateAndTheBurstinessAsked) {
  for (const auto& [burstiness, deviation] : {std::pair{1.0, 1.0}, {0.25, 2.0}, {4.0, 0.5}, {100.0, 0.1}}) {
    const std::vector<double> gaps = gaps_of(arrival_times(20000, 8, burstiness, 3));
    EXPECT_NEAR(mean(gaps) * 8, 1, 0.05) << burstiness;
    EXPECT_NEAR(standard_deviation(gaps) / mean(gaps), deviation, deviation * 0.05) << burstiness;
  }
}

}  // namespace
}  // namespace tidemill
