#include "bench/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tidemill {
namespace {

using ::testing::ElementsAre;

TEST(Percentile, TakesTheValueAtTheShareOfTheWay) {
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 50), 3);
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 0), 1);
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 99), 5);
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 100), 5);
  EXPECT_EQ(percentile({7}, 50), 7);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 50), 3);
  EXPECT_TRUE(std::isnan(percentile({}, 50)));
}

TEST(Median, IsTheMiddleOrTheMeanOfTwo) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(StandardDeviation, IsThatOfThePopulation) {
  EXPECT_DOUBLE_EQ(standard_deviation(std::vector<double>{2, 4, 4, 4, 5, 5, 7, 9}), 2);
  EXPECT_TRUE(std::isnan(standard_deviation({})));
}

RequestRecord record(const std::string& class_name, std::vector<double> token_s, std::string error = "") {
  RequestRecord made;
  made.class_name = class_name;
  made.start_s = 1;
  made.output_tokens = static_cast<int64_t>(token_s.size());
  made.prompt_tokens = 10;
  made.end_s = token_s.empty() ? 1 : token_s.back();
  made.token_s = std::move(token_s);
  made.error = std::move(error);
  return made;
}

TEST(RequestRecord, HasGapsAndJitter) {
  EXPECT_THAT(record("a", {2, 3, 5}).gaps_s(), ElementsAre(1, 2));
  EXPECT_TRUE(record("a", {2}).gaps_s().empty());
  EXPECT_TRUE(std::isnan(record("a", {1, 2, 3, 4, 5, 6, 7, 8}).jitter()));  // seven gaps
  EXPECT_EQ(record("a", {1, 2, 3, 4, 5, 6, 7, 8, 9}).jitter(), 0);
  EXPECT_NEAR(record("a", {0, 1, 4, 5, 8, 9, 12, 13, 16}).jitter(), 0.5, 1e-12);  // gaps 1 and 3
}

TEST(Summary, CountsWhatWasAnsweredAndOnlyTheErrorsOfTheRest) {
  const std::vector<RequestRecord> records = {record("a", {2, 3}), record("b", {4, 4.5, 5}),
                                              record("b", {9}, "refused")};
  const LoadSummary all = summarize(records, 2);
  EXPECT_EQ(all.num_requests, 3u);
  EXPECT_EQ(all.num_errors, 1u);
  EXPECT_EQ(all.output_tokens, 5);
  EXPECT_EQ(all.prompt_tokens, 20);
  EXPECT_EQ(all.output_tokens_per_s, 2.5);
  EXPECT_EQ(all.total_tokens_per_s, 12.5);
  EXPECT_EQ(all.first_token_s.count, 2u);
  EXPECT_EQ(all.first_token_s.max, 3);
  EXPECT_EQ(all.gap_s.count, 3u);
  EXPECT_EQ(all.gap_s.p50, 0.5);
  EXPECT_EQ(all.gap_ratio(), 2);
  EXPECT_THAT(class_names(records), ElementsAre("a", "b"));
  EXPECT_EQ(summarize_class(records, "b", 2).output_tokens, 3);
  EXPECT_EQ(summarize_class(records, "c", 2).num_requests, 0u);
}

}  // namespace
}  // namespace tidemill
