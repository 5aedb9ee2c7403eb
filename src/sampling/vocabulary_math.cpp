#include "sampling/vocabulary_math.h"

#include <algorithm>
#include <bit>
#include <cstring>
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

// Four lanes, which every machine has; written out since compilers do not vectorize the choice at the lower end.
using Floats [[gnu::vector_size(16)]] = float;
using Ints [[gnu::vector_size(16)]] = int32_t;
constexpr size_t group = sizeof(Floats) / sizeof(float);

// Cody-Waite reduction to |r| <= ln(2)/2 and the Taylor polynomial of degree 7, whose remainder is below 3e-9 there.
inline Floats exp_core(Floats x) {
  const Floats lowest = Floats{} - 87.0f;
  const Floats clamped = x < lowest ? lowest : x;
  // Truncation rounds a negative number to the nearest.
  const Ints n = __builtin_convertvector(clamped * 1.44269504f - 0.5f, Ints);
  const Floats whole = __builtin_convertvector(n, Floats);
  const Floats r = (clamped - whole * 0.693145752f) - whole * 1.42860677e-6f;
  Floats p = Floats{} + 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Ints bits = (n + 127) << 23;
  return x < lowest ? Floats{} : p * std::bit_cast<Floats>(bits);
}

// values[i] = exp((logits[i] - best) * inverse_temperature), for num_lanes logits.
inline void exp_lanes(const float* logits, float best, float inverse_temperature, float* values) {
  for (size_t i = 0; i < num_lanes; i += group) {
    Floats x;
    std::memcpy(&x, logits + i, sizeof(x));
    x = exp_core((x - best) * inverse_temperature);
    std::memcpy(values + i, &x, sizeof(x));
  }
}

}  // namespace

float exp_of_negative(float x) {
  return exp_core(Floats{x})[0];
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

// In runs, so that the second look is short.
TokenId first_highest(std::span<const float> logits) {
  constexpr size_t run = 2048;
  float best = -std::numeric_limits<float>::infinity();
  size_t best_run = 0;
  for (size_t begin = 0; begin < logits.size(); begin += run) {
    const float highest = highest_logit(logits.subspan(begin, std::min(run, logits.size() - begin)));
    if (!(highest > best)) continue;
    best = highest;
    best_run = begin;
  }
  for (size_t i = best_run; i < logits.size(); ++i)
    if (logits[i] == best) return static_cast<TokenId>(i);
  return 0;
}

int32_t count_above(std::span<const float> logits, float limit) {
  int32_t count = 0;
  for (float logit : logits) count += logit > limit;
  return count;
}

double sum_of(std::span<const float> values) {
  double lanes[num_lanes] = {};
  const size_t whole = values.size() / num_lanes * num_lanes;
  for (size_t i = 0; i < whole; i += num_lanes)
    for (size_t lane = 0; lane < num_lanes; ++lane) lanes[lane] += values[i + lane];
  for (size_t i = whole; i < values.size(); ++i) lanes[i - whole] += values[i];
  return add_pairwise(lanes);
}

double exp_weights(std::span<const float> logits, float best, float inverse_temperature, std::span<float> weights) {
  double lanes[num_lanes] = {};
  const size_t whole = logits.size() / num_lanes * num_lanes;
  for (size_t i = 0; i < whole; i += num_lanes) {
    exp_lanes(logits.data() + i, best, inverse_temperature, weights.data() + i);
    for (size_t lane = 0; lane < num_lanes; ++lane) lanes[lane] += weights[i + lane];
  }
  for (size_t i = whole; i < logits.size(); ++i) {
    weights[i] = exp_of_negative((logits[i] - best) * inverse_temperature);
    lanes[i % num_lanes] += weights[i];
  }
  return add_pairwise(lanes);
}

double sum_of_exp(std::span<const float> logits, float best, float inverse_temperature) {
  double lanes[num_lanes] = {};
  const size_t whole = logits.size() / num_lanes * num_lanes;
  for (size_t i = 0; i < whole; i += num_lanes) {
    float values[num_lanes];
    exp_lanes(logits.data() + i, best, inverse_temperature, values);
    for (size_t lane = 0; lane < num_lanes; ++lane) lanes[lane] += values[lane];
  }
  for (size_t i = whole; i < logits.size(); ++i)
    lanes[i % num_lanes] += exp_of_negative((logits[i] - best) * inverse_temperature);
  return add_pairwise(lanes);
}

}  // namespace tidemill
