#include "sampling/vocabulary_math.h"

#include <bit>
#include <limits>

namespace tidemill {
namespace {

constexpr size_t num_lanes = 16;

template <typename T>
T add_pairwise(T (&lanes)[num_lanes]) {
  for (size_t width = num_lanes / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

// Cody-Waite reduction to |r| <= ln(2)/2 and the Taylor polynomial of degree 7, whose remainder is below 3e-9 there.
inline float exp_core(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const float scaled = clamped * 1.44269504f;
  const auto n = static_cast<int32_t>(scaled - 0.5f);  // truncation rounds a negative number to the nearest
  const float r = (clamped - static_cast<float>(n) * 0.693145752f) - static_cast<float>(n) * 1.42860677e-6f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const float result = p * std::bit_cast<float>((n + 127) << 23);
  return x < -87.0f ? 0.0f : result;
}

}  // namespace

float exp_of_negative(float x) {
  return exp_core(x);
}

float highest_logit(std::span<const float> logits) {
  float lanes[num_lanes];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  const size_t whole = logits.size() / num_lanes * num_lanes;
  for (size_t i = 0; i < whole; i += num_lanes)
    for (size_t lane = 0; lane < num_lanes; ++lane)
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
  for (size_t i = whole; i < logits.size(); ++i) lanes[0] = logits[i] > lanes[0] ? logits[i] : lanes[0];
  float best = lanes[0];
  for (float lane : lanes) best = lane > best ? lane : best;
  return best;
}

TokenId first_highest(std::span<const float> logits) {
  const float best = highest_logit(logits);
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] == best) return static_cast<TokenId>(i);
  return 0;
}

int32_t count_above(std::span<const float> logits, float limit) {
  int32_t count = 0;
  for (float logit : logits) count += logit > limit;
  return count;
}

double exp_weights(std::span<const float> logits, float best, float inverse_temperature, std::span<float> weights) {
  for (size_t i = 0; i < logits.size(); ++i) weights[i] = exp_core((logits[i] - best) * inverse_temperature);
  double lanes[num_lanes] = {};
  const size_t whole = logits.size() / num_lanes * num_lanes;
  for (size_t i = 0; i < whole; i += num_lanes)
    for (size_t lane = 0; lane < num_lanes; ++lane) lanes[lane] += weights[i + lane];
  for (size_t i = whole; i < logits.size(); ++i) lanes[i % num_lanes] += weights[i];
  return add_pairwise(lanes);
}

double sum_of_exp(std::span<const float> logits, float best, float inverse_temperature) {
  double lanes[num_lanes] = {};
  const size_t whole = logits.size() / num_lanes * num_lanes;
  for (size_t i = 0; i < whole; i += num_lanes) {
    float values[num_lanes];
    for (size_t lane = 0; lane < num_lanes; ++lane)
      values[lane] = exp_core((logits[i + lane] - best) * inverse_temperature);
    for (size_t lane = 0; lane < num_lanes; ++lane) lanes[lane] += values[lane];
  }
  for (size_t i = whole; i < logits.size(); ++i)
    lanes[i % num_lanes] += exp_core((logits[i] - best) * inverse_temperature);
  return add_pairwise(lanes);
}

}  // namespace tidemill
