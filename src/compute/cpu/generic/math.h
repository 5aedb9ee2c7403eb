// Elementwise functions of a vector. Include after an instruction set's simd.h.
#pragma once

namespace tidemill::TM_ISA {
namespace {

// 2^x for x <= 126, to about one unit in the last place; exactly 1 at 0; 0 below -126 (minus infinity and NaN too). The
// polynomial is the best one of degree 5 in relative error on [0, 1] that is 1 at 0: 8e-8 before rounding.
TM_INLINE F f_exp2(F x) {
  const F r = f_fraction(x);
  F p = f_set(1.86712632e-3f);
  p = f_fma(p, r, f_set(9.01703816e-3f));
  p = f_fma(p, r, f_set(5.57999089e-2f));
  p = f_fma(p, r, f_set(0.240164459f));
  p = f_fma(p, r, f_set(0.693151295f));
  p = f_fma(p, r, f_set(1.0f));
  return f_scale2(p, x);
}

// 1 / (1 + 2^x); 1 for NaN, which f_min gives back where it is the second operand.
TM_INLINE F f_logistic2(F x) {
  return f_reciprocal(f_add(f_set(1.0f), f_exp2(f_min(f_set(126.0f), x))));
}

// 1 - 2 / (e^2x + 1): an absolute error of 1e-7, which is what gelu and soft caps need.
TM_INLINE F f_tanh(F x) {
  return f_fma(f_set(-2.0f), f_logistic2(f_mul(f_set(2.88539008f), x)), f_set(1.0f));
}

// Bends x softly into (-cap, cap).
TM_INLINE F f_softcap(F x, float cap) {
  return f_mul(f_set(cap), f_tanh(f_mul(x, f_set(1 / cap))));
}

TM_INLINE F f_silu(F x) {
  return f_mul(x, f_logistic2(f_mul(f_set(-1.44269504f), x)));
}

TM_INLINE F f_gelu_tanh(F x) {
  const F cubic = f_mul(f_mul(f_mul(x, x), x), f_set(0.044715f));
  const F t = f_tanh(f_mul(f_set(0.7978845608f), f_add(x, cubic)));
  return f_mul(f_mul(f_set(0.5f), x), f_add(f_set(1.0f), t));
}

TM_INLINE F f_gelu_erf(F x) {
  float lane[16];
  f_store(lane, x);
  for (float& value : lane) value = 0.5f * value * (1.0f + erff(value * 0.70710678f));
  return f_load(lane);
}

// The reciprocal of the root mean square of x[0 .. n - 1].
TM_INLINE float inverse_rms(const float* x, int n, float epsilon) {
  F squares = f_zero();
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const F v = f_load(x + i);
    squares = f_fma(v, v, squares);
  }
  if (i < n) {
    const F v = f_load_n(x + i, n - i);
    squares = f_fma(v, v, squares);
  }
  return 1.0f / sqrtf(f_sum(squares) / static_cast<float>(n) + epsilon);
}

}  // namespace
}  // namespace tidemill::TM_ISA
