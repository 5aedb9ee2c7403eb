#include "sampling/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "sampling/vocabulary_math.h"

namespace tidemill {
namespace {

constexpr size_t run = 1024;  // logits exponentiated at a time
constexpr size_t num_lanes = 8;

// Sum of weights[i] * ((reference[i] - row[i]) - offset).
double weighted_difference(std::span<const float> weights, std::span<const float> reference, std::span<const float> row,
                           double offset) {
  std::array<double, num_lanes> lanes{};
  const size_t whole = weights.size() / num_lanes * num_lanes;
  const auto term = [&](size_t i) {
    // A token that the reference excludes has no part in the sum, whatever the other row says of it.
    if (weights[i] == 0) return 0.0;
    return static_cast<double>(weights[i]) *
           ((static_cast<double>(reference[i]) - static_cast<double>(row[i])) - offset);
  };
  for (size_t i = 0; i < whole; i += num_lanes)
    for (size_t lane = 0; lane < num_lanes; ++lane) lanes[lane] += term(i + lane);
  for (size_t i = whole; i < weights.size(); ++i) lanes[i - whole] += term(i);
  for (size_t width = num_lanes / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

}  // namespace

RowDivergence compare_rows(std::span<const float> reference, std::span<const float> row, TokenId next) {
  TM_CHECK(reference.size() == row.size() && !row.empty(), "compared rows are of one vocabulary");
  RowDivergence result;
  result.reference_top = first_highest(reference);
  result.top = first_highest(row);
  const float reference_best = reference[static_cast<size_t>(result.reference_top)];
  const float best = row[static_cast<size_t>(result.top)];
  const double offset = static_cast<double>(reference_best) - static_cast<double>(best);
  double reference_total = 0, total = 0, difference = 0;
  std::array<float, run> weights;
  for (size_t begin = 0; begin < row.size(); begin += run) {
    const size_t count = std::min(run, row.size() - begin);
    const std::span<float> own(weights.data(), count);
    total += sum_of_exp(row.subspan(begin, count), best, 1);
    reference_total += exp_weights(reference.subspan(begin, count), reference_best, 1, own);
    difference += weighted_difference(own, reference.subspan(begin, count), row.subspan(begin, count), offset);
  }
  const double log_total = std::log(total), log_reference_total = std::log(reference_total);
  result.kl = std::max(0.0, difference / reference_total + log_total - log_reference_total);
  if (next == no_token) return result;
  TM_CHECK(next >= 0 && static_cast<size_t>(next) < row.size(), "the token that follows is in the vocabulary");
  const auto at = static_cast<size_t>(next);
  result.reference_logprob = static_cast<double>(reference[at]) - reference_best - log_reference_total;
  result.logprob = static_cast<double>(row[at]) - best - log_total;
  return result;
}

}  // namespace tidemill
