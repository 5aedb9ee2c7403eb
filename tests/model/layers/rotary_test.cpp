#include "model/layers/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tidemill {
namespace {

constexpr RotaryLengths trained{512, 512};

RopeConfig rope_of(RopeScalingKind kind, double factor, int64_t original) {
  RopeConfig rope;
  rope.base = 10000.0;
  rope.scaling.kind = kind;
  rope.scaling.factor = factor;
  rope.scaling.original_context_length = original;
  return rope;
}

void expect_near(const RotarySpec& rotary, const std::vector<double>& expected) {
  ASSERT_EQ(rotary.inverse_frequencies.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(rotary.inverse_frequencies[i] / expected[i], 1.0, 1e-6) << i;
  }
}

TEST(Rotary, PlainFrequenciesArePowersOfTheBase) {
  const Result<RotarySpec> rotary = make_rotary(RopeConfig{}, 8, trained);
  ASSERT_TRUE(rotary.ok());
  expect_near(*rotary, {1.0, 0.1, 0.01, 0.001});
  EXPECT_EQ(rotary->attention_factor, 1.0f);
}

TEST(Rotary, LinearDividesAll) {
  const Result<RotarySpec> rotary = make_rotary(rope_of(RopeScalingKind::linear, 4.0, 64), 8, trained);
  ASSERT_TRUE(rotary.ok());
  expect_near(*rotary, {0.25, 0.025, 0.0025, 0.00025});
}

TEST(Rotary, DynamicIsPlainUpToTheTrainedLengthAndStretchesBeyondIt) {
  RopeConfig rope = rope_of(RopeScalingKind::dynamic, 2.0, 512);
  rope.scaling.original_context_length.reset();
  expect_near(*make_rotary(rope, 8, {512, 512}), {1.0, 0.1, 0.01, 0.001});
  // base * (2 * 1024 / 512 - 1) ^ (8 / 6)
  const double base = 10000.0 * std::pow(3.0, 8.0 / 6.0);
  expect_near(*make_rotary(rope, 8, {512, 1024}),
              {1.0, std::pow(base, -0.25), std::pow(base, -0.5), std::pow(base, -0.75)});
}

TEST(Rotary, Llama3AgreesWithTheFactorsOfItsConverter) {
  // rope_freqs.weight of the tiny model with factor 8, original context 64, 16 rotated dimensions.
  const std::vector<double> divisors = {1.0, 1.2939758, 7.6673851, 8.0, 8.0, 8.0, 8.0, 8.0};
  const Result<RotarySpec> scaled = make_rotary(rope_of(RopeScalingKind::llama3, 8.0, 64), 16, trained);
  ASSERT_TRUE(scaled.ok());
  Result<RotarySpec> divided = make_rotary(RopeConfig{}, 16, trained);
  ASSERT_TRUE(divide_frequencies(*divided, divisors).ok());
  for (size_t i = 0; i < divisors.size(); ++i) {
    EXPECT_NEAR(scaled->inverse_frequencies[i] / divided->inverse_frequencies[i], 1.0, 1e-6) << i;
  }
}

TEST(Rotary, YarnKeepsFastFrequenciesDividesSlowOnesAndScalesTheVectors) {
  const Result<RotarySpec> rotary = make_rotary(rope_of(RopeScalingKind::yarn, 4.0, 4096), 64, trained);
  ASSERT_TRUE(rotary.ok());
  EXPECT_FLOAT_EQ(rotary->inverse_frequencies.front(), 1.0f);
  EXPECT_NEAR(rotary->inverse_frequencies.back(), std::pow(10000.0, -62.0 / 64.0) / 4.0, 1e-10);
  EXPECT_NEAR(rotary->attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-6);
}

TEST(Rotary, YarnTakesAStatedAttentionFactor) {
  RopeConfig rope = rope_of(RopeScalingKind::yarn, 4.0, 4096);
  rope.scaling.attention_factor = 1.5;
  EXPECT_FLOAT_EQ(make_rotary(rope, 64, trained)->attention_factor, 1.5f);
  rope.scaling.attention_factor.reset();
  rope.scaling.mscale = 1.0;
  rope.scaling.mscale_all_dim = 1.0;
  EXPECT_FLOAT_EQ(make_rotary(rope, 64, trained)->attention_factor, 1.0f);
}

TEST(Rotary, LongropeChoosesItsFactorsByTheLongestSequence) {
  RopeConfig rope = rope_of(RopeScalingKind::longrope, 1.0, 4096);
  rope.scaling.short_factor = {1.0, 1.0, 2.0, 2.0};
  rope.scaling.long_factor = {1.0, 10.0, 10.0, 10.0};
  const Result<RotarySpec> near = make_rotary(rope, 8, {131072, 4096});
  const Result<RotarySpec> far = make_rotary(rope, 8, {131072, 4097});
  ASSERT_TRUE(near.ok() && far.ok());
  expect_near(*near, {1.0, 0.1, 0.005, 0.0005});
  expect_near(*far, {1.0, 0.01, 0.001, 0.0001});
  EXPECT_NEAR(near->attention_factor, std::sqrt(1.0 + std::log(32.0) / std::log(4096.0)), 1e-6);
  EXPECT_EQ(near->attention_factor, far->attention_factor);
}

TEST(Rotary, ImpossibleValuesAreRefusedByName) {
  RopeConfig rope = rope_of(RopeScalingKind::longrope, 1.0, 4096);
  rope.scaling.short_factor = {1.0, 1.0};
  EXPECT_NE(make_rotary(rope, 8, trained).error().message.find("2 rotary factors"), std::string::npos);
  rope.scaling.short_factor = {1.0, 0.0, 1.0, 1.0};
  EXPECT_NE(make_rotary(rope, 8, trained).error().message.find("rotary factor 1 is 0"), std::string::npos);
  EXPECT_FALSE(make_rotary(RopeConfig{}, 7, trained).ok());
  EXPECT_FALSE(make_rotary(RopeConfig{}, 0, trained).ok());
  RopeConfig no_base;
  no_base.base = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(make_rotary(no_base, 8, trained).ok());
  RopeConfig flat = rope_of(RopeScalingKind::llama3, 8.0, 64);
  flat.scaling.high_freq_factor = flat.scaling.low_freq_factor;
  EXPECT_FALSE(make_rotary(flat, 8, trained).ok());
}

}  // namespace
}  // namespace tidemill
