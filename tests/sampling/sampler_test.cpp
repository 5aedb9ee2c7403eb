#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "sampling/vocabulary_math.h"

namespace tidemill {
namespace {

std::vector<float> random_logits(size_t size, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size);
  for (float& value : logits) value = normal(rng);
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const double best = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  double total = 0;
  for (size_t i = 0; i < p.size(); ++i) total += p[i] = std::exp((logits[i] - best) / temperature);
  for (double& value : p) value /= total;
  return p;
}

TokenHistory history_of(std::vector<TokenId> prompt, std::vector<TokenId> output = {}) {
  TokenHistory history;
  history.start(prompt, static_cast<int32_t>(prompt.size()));
  for (TokenId token : output) history.append(token);
  return history;
}

// Draws at many positions and counts the tokens.
std::map<TokenId, int> draw_many(const std::vector<float>& logits, SamplingParams params, int count) {
  Sampler sampler;
  std::map<TokenId, int> drawn;
  for (int i = 0; i < count; ++i) {
    params.seed = static_cast<uint64_t>(i) * 7919;
    ++drawn[sampler.draw(logits, params, history_of({1})).token];
  }
  return drawn;
}

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdAmongEquals) {
  SamplingParams params;
  params.temperature = 0;
  Sampler sampler;
  EXPECT_EQ(sampler.draw(std::vector<float>{1, 5, 5, 2}, params, history_of({0})).token, 1);
}

TEST(Sampler, DrawsDependOnSeedAndPositionAlone) {
  const auto logits = random_logits(500, 1);
  SamplingParams params;
  params.seed = 42;
  Sampler first, second;
  const auto history = history_of({1, 2, 3}, {4, 5});
  second.draw(random_logits(500, 9), params, history_of({3}));
  EXPECT_EQ(first.draw(logits, params, history).token, second.draw(logits, params, history).token);
  std::set<TokenId> seen;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    params.seed = seed;
    seen.insert(first.draw(logits, params, history).token);
  }
  EXPECT_GT(seen.size(), 5u);
}

TEST(Sampler, FollowsTheDistribution) {
  const auto logits = random_logits(40, 2);
  SamplingParams params;
  params.temperature = 1.3f;
  const int count = 20000;
  const auto drawn = draw_many(logits, params, count);
  const auto p = softmax(logits, params.temperature);
  double chi_square = 0;
  int classes = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] * count < 5) continue;
    const auto it = drawn.find(static_cast<TokenId>(i));
    const double observed = it == drawn.end() ? 0 : it->second;
    chi_square += (observed - p[i] * count) * (observed - p[i] * count) / (p[i] * count);
    ++classes;
  }
  EXPECT_LT(chi_square, classes + 4 * std::sqrt(2.0 * classes));
}

TEST(Sampler, TopKTopPAndMinPKeepExactlyTheRightTokens) {
  const auto logits = random_logits(1000, 3);
  const auto p = softmax(logits, 1.0);
  std::vector<TokenId> order(p.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return p[a] > p[b]; });

  SamplingParams top_k;
  top_k.top_k = 7;
  for (const auto& [token, n] : draw_many(logits, top_k, 3000))
    EXPECT_LT(std::find(order.begin(), order.end(), token) - order.begin(), 7);

  SamplingParams top_p;
  top_p.top_p = 0.6f;
  double mass = 0;
  size_t nucleus = 0;
  while (mass < 0.6) mass += p[order[nucleus++]];
  const auto drawn = draw_many(logits, top_p, 20000);
  for (const auto& [token, n] : drawn)
    EXPECT_LT(static_cast<size_t>(std::find(order.begin(), order.end(), token) - order.begin()), nucleus);
  EXPECT_GE(drawn.size(), nucleus / 2);

  SamplingParams min_p;
  min_p.min_p = 0.2f;
  for (const auto& [token, n] : draw_many(logits, min_p, 3000)) EXPECT_GE(p[token], 0.2 * p[order[0]] * 0.9999);
}

TEST(Sampler, ANucleusOfFlatLogitsReachesBelowTheFirstThreshold) {
  std::vector<float> logits(5000, 0.0f);
  logits[17] = 20.0f;  // everything else lies 20 below, and still holds mass at this temperature
  SamplingParams params;
  params.temperature = 4;
  params.top_p = 0.99f;
  EXPECT_GT(draw_many(logits, params, 2000).size(), 500u);
}

TEST(Sampler, PenaltiesAndBiasMoveTheChoice) {
  const std::vector<float> logits{3.0f, 2.9f, -1.0f, 0.0f};
  SamplingParams params;
  params.temperature = 0;
  Sampler sampler;
  EXPECT_EQ(sampler.draw(logits, params, history_of({0})).token, 0);
  params.repetition_penalty = 1.2f;
  EXPECT_EQ(sampler.draw(logits, params, history_of({0})).token, 1);
  params.repetition_penalty = 1;
  params.frequency_penalty = 0.2f;
  EXPECT_EQ(sampler.draw(logits, params, history_of({0, 0, 0})).token, 0) << "prompt tokens do not count";
  EXPECT_EQ(sampler.draw(logits, params, history_of({3}, {0})).token, 1);
  params.frequency_penalty = 0;
  params.logit_bias = {{2, 100.0f}};
  EXPECT_EQ(sampler.draw(logits, params, history_of({0})).token, 2);
}

TEST(Sampler, MasksBarTokens) {
  const std::vector<float> logits{5, 4, 3, 2};
  SamplingParams params;
  params.temperature = 0;
  Sampler sampler;
  params.allowed_token_ids = {3, 2};
  EXPECT_EQ(sampler.draw(logits, params, history_of({0})).token, 2);
  params.allowed_token_ids = {};
  params.bad_words = {{7, 0}, {1}};
  EXPECT_EQ(sampler.draw(logits, params, history_of({9, 7})).token, 2);
  EXPECT_EQ(sampler.draw(logits, params, history_of({7, 9})).token, 0);
  params.bad_words = {};
  params.min_tokens = 2;
  params.end_token_ids = {0};
  params.stop_token_ids = {1};
  EXPECT_EQ(sampler.draw(logits, params, history_of({9}, {3})).token, 2);
  EXPECT_EQ(sampler.draw(logits, params, history_of({9}, {3, 3})).token, 0);
}

// Against a sorted vocabulary with many equal logits: what is drawn is what a sort would keep, no more and no less.
TEST(Sampler, TruncationKeepsWhatASortWouldKeep) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits(1 + random() % 40);
    for (float& logit : logits) logit = static_cast<float>(random() % 6) * 0.5f;
    SamplingParams params;
    params.top_p = 0.05f + 0.09f * static_cast<float>(random() % 11);
    params.top_k = static_cast<int32_t>(random() % 12);
    params.min_p = random() % 2 ? 0.2f : 0.0f;
    std::vector<TokenId> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order.size()) order.resize(params.top_k);
    const double best = logits[order[0]];
    double total = 0, mass = 0;
    for (TokenId token : order) total += std::exp(logits[token] - best);
    std::set<TokenId> expected;
    for (TokenId token : order) {
      if (params.top_p < 1 && mass >= params.top_p * total && !expected.empty()) break;
      mass += std::exp(logits[token] - best);
      if (std::exp(logits[token] - best) >= params.min_p) expected.insert(token);
    }
    if (params.top_k == 1) expected = {order[0]};
    std::set<TokenId> drawn;
    for (const auto& [token, count] : draw_many(logits, params, 3000)) drawn.insert(token);
    EXPECT_EQ(drawn, expected) << "round " << round << " top_p " << params.top_p << " top_k " << params.top_k;
  }
}

TEST(Sampler, ScoresAreThoseOfTheRawLogits) {
  const auto logits = random_logits(300, 5);
  const auto p = softmax(logits, 1.0);
  SamplingParams params;
  params.temperature = 0.2f;
  params.logprobs = 5;
  Sampler sampler;
  const Draw draw = sampler.draw(logits, params, history_of({0}));
  EXPECT_NEAR(draw.logprob, std::log(p[draw.token]), 1e-5);
  ASSERT_EQ(draw.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(draw.top[i].rank, static_cast<int32_t>(i) + 1);
    EXPECT_NEAR(draw.top[i].logprob, std::log(p[draw.top[i].token]), 1e-5);
    EXPECT_LE(draw.top[i].logprob, draw.top[i == 0 ? 0 : i - 1].logprob);
  }
  EXPECT_EQ(Sampler::score(logits, draw.top[3].token, 0).rank, 4);
}

TEST(VocabularyMath, ExpIsAccurateOverItsRange) {
  for (float x = -87; x <= 0; x += 0.0137f)
    EXPECT_NEAR(exp_of_negative(x) / std::exp(static_cast<double>(x)), 1, 3e-7) << x;
  EXPECT_EQ(exp_of_negative(-1000), 0);
  EXPECT_EQ(exp_of_negative(0), 1);
}

TEST(VocabularyMath, SumsAndMaximaOfEverySize) {
  for (size_t size : {1, 15, 16, 17, 1000, 1003}) {
    const auto logits = random_logits(size, static_cast<uint32_t>(size));
    const float best = *std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(highest_logit(logits), best);
    EXPECT_EQ(first_highest(logits), std::max_element(logits.begin(), logits.end()) - logits.begin());
    double sum = 0;
    for (float logit : logits) sum += std::exp((static_cast<double>(logit) - best) * 0.7);
    EXPECT_NEAR(sum_of_exp(logits, best, 0.7f) / sum, 1, 1e-6);
    std::vector<float> weights(size);
    EXPECT_EQ(exp_weights(logits, best, 0.7f, weights), sum_of_exp(logits, best, 0.7f));
  }
}

TEST(Sampler, UniformDrawsAreUniform) {
  std::array<int, 10> bins{};
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (uint64_t position = 0; position < 100; ++position)
      ++bins[static_cast<size_t>(uniform_draw(seed, position) * 10)];
  for (int count : bins) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace tidemill
