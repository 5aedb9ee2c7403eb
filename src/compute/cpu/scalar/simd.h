// The reference: arrays of 16 floats, plain C++. A fused multiply-add is a product and a sum, rounded twice.
#pragma once

#include <math.h>

#include "compute/cpu/generic/storage.h"
#include "compute/half.h"

#define TM_ISA scalar
#define TM_INLINE inline __attribute__((always_inline))
#define TM_UNROLL

namespace tidemill::scalar {
namespace {

using cpu::BFloat;
using cpu::Float8E4M3;
using cpu::Float8E5M2;
using cpu::Half;

struct F {
  float v[16];
};

template <typename Function>
TM_INLINE F f_each(Function function) {
  F out;
  for (int i = 0; i < 16; ++i) out.v[i] = function(i);
  return out;
}

TM_INLINE float as_float(float x) {
  return x;
}
TM_INLINE float as_float(Half x) {
  return half_to_float(x.bits);
}
TM_INLINE float as_float(BFloat x) {
  return bfloat_to_float(x.bits);
}
TM_INLINE float as_float(int8_t x) {
  return x;
}
// An 8-bit float of 4 exponent bits is a half whose exponent is 8 too small, so it comes 256 times too small; one of 5
// is the upper byte of a half.
TM_INLINE float as_float(Float8E4M3 x) {
  return half_to_float(static_cast<uint16_t>((x.bits & 0x80) << 8 | (x.bits & 0x7F) << 7));
}
TM_INLINE float as_float(Float8E5M2 x) {
  return half_to_float(static_cast<uint16_t>(x.bits << 8));
}

TM_INLINE F f_set(float x) {
  return f_each([&](int) { return x; });
}
TM_INLINE F f_zero() {
  return f_set(0);
}
template <typename T>
TM_INLINE F f_load(const T* p) {
  return f_each([&](int i) { return as_float(p[i]); });
}
template <typename T>
TM_INLINE F f_load_n(const T* p, int n) {
  return f_each([&](int i) { return i < n ? as_float(p[i]) : 0.0f; });
}
// Sixteen values by the 4-bit codes at p (8 bytes, packed as compute/kv_format.h says).
struct FTable {
  F values;
};
TM_INLINE FTable f_table(const float* sixteen) {
  return {f_load(sixteen)};
}
TM_INLINE F f_lookup(const FTable& table, const uint8_t* p) {
  uint32_t words[2];
  __builtin_memcpy(words, p, sizeof(words));
  return f_each([&](int i) { return table.values.v[words[i % 2] >> i / 2 * 4 & 15]; });
}
TM_INLINE void f_store(float* p, F x) {
  for (int i = 0; i < 16; ++i) p[i] = x.v[i];
}
TM_INLINE void f_store_n(float* p, F x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.v[i];
}
TM_INLINE F f_add(F a, F b) {
  return f_each([&](int i) { return a.v[i] + b.v[i]; });
}
TM_INLINE F f_sub(F a, F b) {
  return f_each([&](int i) { return a.v[i] - b.v[i]; });
}
TM_INLINE F f_mul(F a, F b) {
  return f_each([&](int i) { return a.v[i] * b.v[i]; });
}
// 1 / x for normal x.
TM_INLINE F f_reciprocal(F x) {
  return f_each([&](int i) { return 1.0f / x.v[i]; });
}
TM_INLINE F f_fma(F a, F b, F c) {
  return f_each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
// As the vector instructions: the second operand where either is not a number.
TM_INLINE F f_max(F a, F b) {
  return f_each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
TM_INLINE F f_min(F a, F b) {
  return f_each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
TM_INLINE F f_abs(F a) {
  return f_each([&](int i) { return fabsf(a.v[i]); });
}
// To the nearest whole number, ties to even, for |a| < 2^22.
TM_INLINE F f_round(F a) {
  return f_each([&](int i) { return (a.v[i] + 12582912.0f) - 12582912.0f; });
}
// 2^n for whole n in [-126, 127].
TM_INLINE F f_pow2(F n) {
  return f_each([&](int i) {
    const auto exponent = static_cast<uint32_t>(n.v[i] >= -126 ? static_cast<int32_t>(n.v[i]) + 127 : 0);
    return float_from_bits(exponent << 23);
  });
}
// x where at_least <= test, else 0.
TM_INLINE F f_where_at_least(F test, F at_least, F x) {
  return f_each([&](int i) { return test.v[i] >= at_least.v[i] ? x.v[i] : 0.0f; });
}
constexpr int float_registers = 32;  // sums that the attention keeps in arrays
// x - floor(x).
TM_INLINE F f_fraction(F x) {
  return f_each([&](int i) { return x.v[i] - floorf(x.v[i]); });
}
// p * 2^floor(x) for x >= -126, else 0 (NaN too).
TM_INLINE F f_scale2(F p, F x) {
  return f_where_at_least(x, f_set(-126.0f), f_mul(p, f_pow2(f_each([&](int i) { return floorf(x.v[i]); }))));
}
TM_INLINE bool f_any_above(F a, F b) {
  for (int i = 0; i < 16; ++i) {
    if (a.v[i] > b.v[i]) return true;
  }
  return false;
}
// Lanes lo .. hi - 1 of x, `fill` elsewhere.
TM_INLINE F f_keep(F x, int lo, int hi, F fill) {
  return f_each([&](int i) { return i >= lo && i < hi ? x.v[i] : fill.v[i]; });
}
// Lane i + lane i + 8, then 4, 2, 1: the one order in which 16 partial sums become one.
TM_INLINE float f_sum(F x) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
  }
  return x.v[0];
}
TM_INLINE float f_largest(F x) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
  }
  return x.v[0];
}
// Whole numbers in [-127, 127]; anything else (from a row that is not finite) becomes 0.
TM_INLINE void f_store_i8(int8_t* p, F x) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(fabsf(x.v[i]) <= 127 ? x.v[i] : 0);
}
TM_INLINE void f_store_as(float* p, F x) {
  f_store(p, x);
}
TM_INLINE void f_store_as(Half* p, F x) {
  for (int i = 0; i < 16; ++i) p[i].bits = float_to_half(x.v[i]);
}
TM_INLINE void f_store_as(BFloat* p, F x) {
  for (int i = 0; i < 16; ++i) p[i].bits = float_to_bfloat(x.v[i]);
}

// Vectors of the product: `lanes` outputs.
constexpr int lanes = 16;
using MF = F;
struct MI {
  int32_t v[lanes];
};
struct MB {
  uint8_t v[lanes * 4];
};

TM_INLINE MB b_load(const uint8_t* p) {
  MB out;
  __builtin_memcpy(out.v, p, sizeof(out.v));
  return out;
}
TM_INLINE MB b_low(MB x) {
  for (auto& byte : x.v) byte &= 0x0F;
  return x;
}
TM_INLINE MB b_high(MB x) {
  for (auto& byte : x.v) byte >>= 4;
  return x;
}
TM_INLINE MB b_table(const uint8_t* table) {
  MB out = {};
  __builtin_memcpy(out.v, table, 16);
  return out;
}
TM_INLINE MB b_lookup(const MB& table, MB codes) {
  for (auto& byte : codes.v) byte = table.v[byte];
  return codes;
}
TM_INLINE MI i_set(int32_t x) {
  MI out;
  for (auto& lane : out.v) lane = x;
  return out;
}
TM_INLINE MI i_shift(MI x, int bits) {
  for (auto& lane : x.v) lane *= 1 << bits;
  return x;
}
// acc + the four products of each lane.
template <bool Wide>
TM_INLINE MI i_dot(MI acc, const MB& codes, const int8_t* a) {
  for (int i = 0; i < lanes; ++i) {
    for (int j = 0; j < 4; ++j) acc.v[i] += codes.v[i * 4 + j] * a[j];
  }
  return acc;
}
TM_INLINE MF m_zero() {
  return f_zero();
}
TM_INLINE MF m_set(float x) {
  return f_set(x);
}
template <typename T>
TM_INLINE MF m_load(const T* p) {
  return f_load(p);
}
TM_INLINE void m_store(float* p, MF x) {
  f_store(p, x);
}
TM_INLINE MF m_from(const MI& x) {
  return f_each([&](int i) { return static_cast<float>(x.v[i]); });
}
TM_INLINE MF m_mul(MF a, MF b) {
  return f_mul(a, b);
}
TM_INLINE MF m_fma(MF a, MF b, MF c) {
  return f_fma(a, b, c);
}

}  // namespace
}  // namespace tidemill::scalar
