#include "sampling/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tidemill {
namespace {

std::vector<double> logprobs(const std::vector<float>& logits) {
  double best = -INFINITY, total = 0;
  for (const float logit : logits) best = std::max<double>(best, logit);
  for (const float logit : logits) total += std::exp(logit - best);
  std::vector<double> result;
  for (const float logit : logits) result.push_back(logit - best - std::log(total));
  return result;
}

double plain_kl(const std::vector<float>& reference, const std::vector<float>& row) {
  const std::vector<double> p = logprobs(reference), q = logprobs(row);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
  return kl;
}

std::vector<float> random_row(size_t size, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(-3, 4);
  std::vector<float> row(size);
  for (float& logit : row) logit = normal(rng);
  return row;
}

TEST(DivergenceTest, EqualRowsHaveNone) {
  for (const size_t size : {1, 7, 1000, 1024, 49153}) {
    const std::vector<float> row = random_row(size, 1);
    const RowDivergence result = compare_rows(row, row, 0);
    EXPECT_EQ(result.kl, 0);
    EXPECT_TRUE(result.same_top());
    EXPECT_EQ(result.logprob, result.reference_logprob);
  }
}

TEST(DivergenceTest, AgreesWithDoublePrecision) {
  for (const float noise : {1e-4f, 1e-2f, 1.0f}) {
    for (const size_t size : {2, 100, 5000, 49152}) {
      const std::vector<float> reference = random_row(size, 2), other = random_row(size, 3);
      std::vector<float> row = reference;
      for (size_t i = 0; i < size; ++i) row[i] += noise * other[i];
      const RowDivergence result = compare_rows(reference, row, 1);
      const double expected = plain_kl(reference, row);
      EXPECT_NEAR(result.kl, expected, 3e-7 + 1e-6 * expected) << noise << " " << size;
      EXPECT_NEAR(result.reference_logprob, logprobs(reference)[1], 1e-6);
      EXPECT_NEAR(result.logprob, logprobs(row)[1], 1e-6);
    }
  }
}

TEST(DivergenceTest, AddingAConstantChangesNothing) {
  const std::vector<float> reference = random_row(3000, 4);
  std::vector<float> row = reference;
  for (float& logit : row) logit += 64;  // rounds the smallest steps away
  EXPECT_LT(compare_rows(reference, row, no_token).kl, 1e-7);
}

TEST(DivergenceTest, NamesTheLikeliestTokensOfBothRows) {
  const RowDivergence result = compare_rows(std::vector<float>{0, 3, 1}, std::vector<float>{0, 1, 3}, no_token);
  EXPECT_EQ(result.reference_top, 1);
  EXPECT_EQ(result.top, 2);
  EXPECT_FALSE(result.same_top());
  EXPECT_EQ(result.logprob, 0);
  EXPECT_GT(result.kl, 0.5);
}

TEST(DivergenceTest, WhatTheReferenceExcludesCountsNothing) {
  const float never = -std::numeric_limits<float>::infinity();
  const RowDivergence result = compare_rows(std::vector<float>{0, never}, std::vector<float>{0, 0}, no_token);
  EXPECT_NEAR(result.kl, std::log(2.0), 1e-6);
}

}  // namespace
}  // namespace tidemill
