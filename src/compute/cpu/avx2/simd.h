// Vectors of 16 floats as pairs of AVX2 registers, and integer dot products by 16-bit pairs. Internal linkage only.
#pragma once

#include <immintrin.h>
#include <math.h>

#include "compute/cpu/generic/storage.h"

#define TM_ISA avx2
#define TM_INLINE inline __attribute__((always_inline))
#ifdef TM_NO_UNROLL
#define TM_UNROLL
#else
#define TM_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tidemill::avx2 {
namespace {

using cpu::BFloat;
using cpu::Float8E4M3;
using cpu::Float8E5M2;
using cpu::Half;

struct F {
  __m256 a, b;
};

TM_INLINE F f_set(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
TM_INLINE F f_zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
TM_INLINE __m256 load8(const float* p) {
  return _mm256_loadu_ps(p);
}
TM_INLINE __m256 load8(const Half* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TM_INLINE __m256 load8(const BFloat* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
TM_INLINE __m256 load8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// An 8-bit float of 4 exponent bits is a half whose exponent is 8 too small, so it comes 256 times too small; one of 5
// is the upper byte of a half.
TM_INLINE __m256 load8(const Float8E4M3* p) {
  const __m128i bits = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i half = _mm_and_si128(_mm_slli_epi16(bits, 7), _mm_set1_epi16(static_cast<int16_t>(0xBFFF)));
  return _mm256_cvtph_ps(half);
}
TM_INLINE __m256 load8(const Float8E5M2* p) {
  const __m128i bits = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_cvtph_ps(_mm_slli_epi16(bits, 8));
}
template <typename T>
TM_INLINE F f_load(const T* p) {
  return {load8(p), load8(p + 8)};
}
// Sixteen values by the 4-bit codes at p (8 bytes, packed as compute/kv_format.h says).
struct FTable {
  F values;
};
TM_INLINE FTable f_table(const float* sixteen) {
  return {f_load(sixteen)};
}
TM_INLINE __m256 lookup8(const FTable& table, __m256i codes) {
  const __m256 low = _mm256_permutevar8x32_ps(table.values.a, codes);
  const __m256 high = _mm256_permutevar8x32_ps(table.values.b, codes);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
}
TM_INLINE F f_lookup(const FTable& table, const uint8_t* p) {
  int64_t codes;
  __builtin_memcpy(&codes, p, sizeof(codes));
  const __m256i all = _mm256_set1_epi64x(codes);
  return {lookup8(table, _mm256_srlv_epi32(all, _mm256_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12))),
          lookup8(table, _mm256_srlv_epi32(all, _mm256_setr_epi32(16, 16, 20, 20, 24, 24, 28, 28)))};
}
// The first n lanes (0 to 16); the others are zero and not read.
template <typename T>
TM_INLINE F f_load_n(const T* p, int n) {
  if (n >= 16) return f_load(p);
  T lane[16] = {};
  for (int i = 0; i < n; ++i) lane[i] = p[i];
  return f_load(lane);
}
TM_INLINE void f_store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
TM_INLINE void f_store_n(float* p, F x, int n) {
  if (n >= 16) return f_store(p, x);
  float lane[16];
  f_store(lane, x);
  for (int i = 0; i < n; ++i) p[i] = lane[i];
}
TM_INLINE F f_add(F x, F y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
TM_INLINE F f_sub(F x, F y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
TM_INLINE F f_mul(F x, F y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
// 1 / x for normal x.
TM_INLINE F f_reciprocal(F x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  return {_mm256_div_ps(one, x.a), _mm256_div_ps(one, x.b)};
}
TM_INLINE F f_fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
TM_INLINE F f_max(F x, F y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
TM_INLINE F f_min(F x, F y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
TM_INLINE F f_abs(F x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
TM_INLINE F f_round(F x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TM_INLINE __m256 pow2_8(__m256 n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
// 2^n for whole n in [-126, 127].
TM_INLINE F f_pow2(F n) {
  return {pow2_8(n.a), pow2_8(n.b)};
}
// x where at_least <= test, else 0.
TM_INLINE F f_where_at_least(F test, F at_least, F x) {
  return {_mm256_and_ps(_mm256_cmp_ps(test.a, at_least.a, _CMP_GE_OQ), x.a),
          _mm256_and_ps(_mm256_cmp_ps(test.b, at_least.b, _CMP_GE_OQ), x.b)};
}
constexpr int float_registers = 8;  // how many F fit
TM_INLINE F f_floor(F x) {
  return {_mm256_floor_ps(x.a), _mm256_floor_ps(x.b)};
}
// x - floor(x).
TM_INLINE F f_fraction(F x) {
  return f_sub(x, f_floor(x));
}
// p * 2^floor(x) for x >= -126, else 0 (NaN too).
TM_INLINE F f_scale2(F p, F x) {
  return f_where_at_least(x, f_set(-126.0f), f_mul(p, f_pow2(f_floor(x))));
}
TM_INLINE bool f_any_above(F x, F y) {
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ))) !=
         0;
}
TM_INLINE __m256 keep8(__m256 x, int lo, int hi, __m256 fill, __m256i lane) {
  const __m256i at_least = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(lo - 1));
  const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane);
  return _mm256_blendv_ps(fill, x, _mm256_castsi256_ps(_mm256_and_si256(at_least, below)));
}
// Lanes lo .. hi - 1 of x, `fill` elsewhere.
TM_INLINE F f_keep(F x, int lo, int hi, F fill) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {keep8(x.a, lo, hi, fill.a, lane), keep8(x.b, lo - 8, hi - 8, fill.b, lane)};
}
// Lane i + lane i + 8, then 4, 2, 1: the one order in which 16 partial sums become one.
TM_INLINE float f_sum(F x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TM_INLINE float f_largest(F x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
TM_INLINE __m128i low_bytes(__m256i x) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  return _mm_packs_epi16(words, words);
}
// Whole numbers in [-127, 127].
TM_INLINE void f_store_i8(int8_t* p, F x) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), low_bytes(_mm256_cvtps_epi32(x.a)));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p + 8), low_bytes(_mm256_cvtps_epi32(x.b)));
}
TM_INLINE void f_store_as(float* p, F x) {
  f_store(p, x);
}
TM_INLINE void f_store_as(Half* p, F x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, mode));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, mode));
}
TM_INLINE void f_store_as(BFloat* p, F x) {
  float lane[16];
  f_store(lane, x);
  for (int i = 0; i < 16; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, lane + i, sizeof(bits));
    p[i].bits = static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
}

// Vectors of the product: `lanes` outputs.
constexpr int lanes = 8;
using MF = __m256;
using MI = __m256i;
using MB = __m256i;  // lanes x 4 codes

TM_INLINE MB b_load(const uint8_t* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
TM_INLINE MB b_low(MB x) {
  return _mm256_and_si256(x, _mm256_set1_epi8(0x0F));
}
TM_INLINE MB b_high(MB x) {
  return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(0x0F));
}
TM_INLINE MB b_table(const uint8_t* table) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}
TM_INLINE MB b_lookup(MB table, MB codes) {
  return _mm256_shuffle_epi8(table, codes);
}
TM_INLINE MI i_set(int32_t x) {
  return _mm256_set1_epi32(x);
}
TM_INLINE MI i_shift(MI x, int bits) {
  return _mm256_sll_epi32(x, _mm_cvtsi32_si128(bits));
}
// acc + the four products of each lane. Pairs are summed in 16 bits: 2 * 127 * code overflows from code 130 on. Wide
// codes are around a zero point of 128, so they go as (code - 128) with the sign moved to the activation, and 128 times
// the activations is added back.
template <bool Wide>
TM_INLINE MI i_dot(MI acc, MB codes, const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  const __m256i acts = _mm256_set1_epi32(four);
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (Wide) {
    const __m256i centered = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(centered), _mm256_sign_epi8(acts, centered));
    const __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(64), acts);
    const __m256i both =
        _mm256_add_epi32(_mm256_madd_epi16(pairs, ones), _mm256_madd_epi16(sums, _mm256_set1_epi16(2)));
    return _mm256_add_epi32(acc, both);
  }
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, acts), ones));
}
TM_INLINE MF m_zero() {
  return _mm256_setzero_ps();
}
TM_INLINE MF m_set(float x) {
  return _mm256_set1_ps(x);
}
template <typename T>
TM_INLINE MF m_load(const T* p) {
  return load8(p);
}
TM_INLINE void m_store(float* p, MF x) {
  _mm256_storeu_ps(p, x);
}
TM_INLINE MF m_from(MI x) {
  return _mm256_cvtepi32_ps(x);
}
TM_INLINE MF m_mul(MF a, MF b) {
  return _mm256_mul_ps(a, b);
}
TM_INLINE MF m_fma(MF a, MF b, MF c) {
  return _mm256_fmadd_ps(a, b, c);
}

}  // namespace
}  // namespace tidemill::avx2
