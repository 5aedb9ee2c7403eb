// Reductions over a whole row of logits, written so that the compiler vectorizes them.
//
// Sums run in 16 strided lanes that are added pairwise at the end, so the order of additions depends on nothing but the
// vocabulary's size. Pure functions; no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/token.h"

namespace tidemill {

// The highest logit; -infinity for an empty row. NaN never wins.
float highest_logit(std::span<const float> logits);
// The first position of the highest logit.
TokenId first_highest(std::span<const float> logits);
// How many logits are above the limit.
int32_t count_above(std::span<const float> logits, float limit);
double sum_of(std::span<const float> values);
// Sum of exp((logit - best) * inverse_temperature), where best is the highest logit.
double sum_of_exp(std::span<const float> logits, float best, float inverse_temperature);
// weights[i] = exp((logits[i] - best) * inverse_temperature); returns their sum, the same value as sum_of_exp.
double exp_weights(std::span<const float> logits, float best, float inverse_temperature, std::span<float> weights);

// exp for x <= 0, relative error below 2e-7; 0 below -87.
float exp_of_negative(float x);

}  // namespace tidemill
