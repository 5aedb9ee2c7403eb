// How far one row's distribution of the next token is from another's.
//
// Pure functions over raw logits. Exponentials are single precision (relative error below 2e-7), every sum is double
// and has one order that depends on the vocabulary's size only; equal rows have a divergence of exactly 0.
#pragma once

#include <span>

#include "base/token.h"

namespace tidemill {

struct RowDivergence {
  double kl = 0;              // nats: sum of p_reference * log(p_reference / p), never negative
  TokenId reference_top = 0;  // the most likely token of each row
  TokenId top = 0;
  // Of the token that really follows; 0 where none is known.
  double reference_logprob = 0;
  double logprob = 0;
  bool same_top() const { return reference_top == top; }
  bool operator==(const RowDivergence&) const = default;
};

inline constexpr TokenId no_token = -1;

// Rows [vocab_size] of one vocabulary. next: the token that follows, or no_token.
RowDivergence compare_rows(std::span<const float> reference, std::span<const float> row, TokenId next);

}  // namespace tidemill
