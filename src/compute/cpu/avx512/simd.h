// Vectors of 16 floats and the integer dot products of AVX-512 with VNNI. Internal linkage only.
#pragma once

#include <immintrin.h>
#include <math.h>

#include "compute/cpu/generic/storage.h"

#ifndef TM_ISA  // amx/simd.h names itself
#define TM_ISA avx512
#endif
#define TM_INLINE inline __attribute__((always_inline))
#ifdef TM_NO_UNROLL
#define TM_UNROLL
#else
#define TM_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tidemill::TM_ISA {
namespace {

using cpu::BFloat;
using cpu::Float8E4M3;
using cpu::Float8E5M2;
using cpu::Half;

using F = __m512;

TM_INLINE __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
TM_INLINE F f_zero() {
  return _mm512_setzero_ps();
}
TM_INLINE F f_set(float x) {
  return _mm512_set1_ps(x);
}
TM_INLINE F f_load(const float* p) {
  return _mm512_loadu_ps(p);
}
TM_INLINE F f_load(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TM_INLINE F f_load(const BFloat* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// The first n lanes (0 to 16); the others are zero and not read.
TM_INLINE F f_load_n(const float* p, int n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
TM_INLINE F f_load_n(const Half* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
TM_INLINE F f_load_n(const BFloat* p, int n) {
  const __m256i bits = _mm256_maskz_loadu_epi16(first_lanes(n), p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
TM_INLINE F f_load(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// An 8-bit float of 4 exponent bits is a half whose exponent is 8 too small, so it comes 256 times too small; one of 5
// is the upper byte of a half.
TM_INLINE F f_load(const Float8E4M3* p) {
  const __m256i bits = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(bits, 7), _mm256_set1_epi16(static_cast<int16_t>(0xBFFF)));
  return _mm512_cvtph_ps(half);
}
TM_INLINE F f_load(const Float8E5M2* p) {
  const __m256i bits = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(_mm256_slli_epi16(bits, 8));
}
// Sixteen values by the 4-bit codes at p (8 bytes, packed as compute/kv_format.h says).
struct FTable {
  F values;
};
TM_INLINE FTable f_table(const float* sixteen) {
  return {_mm512_loadu_ps(sixteen)};
}
TM_INLINE F f_lookup(const FTable& table, const uint8_t* p) {
  int64_t codes;
  __builtin_memcpy(&codes, p, sizeof(codes));
  const __m512i shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(codes), shifts), table.values);
}
TM_INLINE void f_store(float* p, F x) {
  _mm512_storeu_ps(p, x);
}
TM_INLINE void f_store_n(float* p, F x, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x);
}
TM_INLINE F f_add(F a, F b) {
  return _mm512_add_ps(a, b);
}
TM_INLINE F f_sub(F a, F b) {
  return _mm512_sub_ps(a, b);
}
TM_INLINE F f_mul(F a, F b) {
  return _mm512_mul_ps(a, b);
}
// 1 / x for normal x, to about one unit in the last place: 14 bits, and one of Newton's steps.
TM_INLINE F f_reciprocal(F x) {
  const F about = _mm512_rcp14_ps(x);
  return _mm512_mul_ps(about, _mm512_fnmadd_ps(x, about, _mm512_set1_ps(2.0f)));
}
TM_INLINE F f_fma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
}
TM_INLINE F f_max(F a, F b) {
  return _mm512_max_ps(a, b);
}
TM_INLINE F f_min(F a, F b) {
  return _mm512_min_ps(a, b);
}
TM_INLINE F f_abs(F a) {
  return _mm512_abs_ps(a);
}
TM_INLINE F f_round(F a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
constexpr int float_registers = 32;  // how many F fit
// x - floor(x).
TM_INLINE F f_fraction(F x) {
  return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
// p * 2^floor(x) for x >= -126, else 0 (NaN too).
TM_INLINE F f_scale2(F p, F x) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ), p, x);
}
TM_INLINE bool f_any_above(F a, F b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}
// Lanes lo .. hi - 1 of x, `fill` elsewhere. 0 <= lo, hi <= 16.
TM_INLINE F f_keep(F x, int lo, int hi, F fill) {
  return _mm512_mask_mov_ps(fill, static_cast<__mmask16>(first_lanes(hi) & ~first_lanes(lo)), x);
}
// Lane i + lane i + 8, then 4, 2, 1: the one order in which 16 partial sums become one.
TM_INLINE float f_sum(F x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TM_INLINE float f_largest(F x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
// Whole numbers in [-127, 127].
TM_INLINE void f_store_i8(int8_t* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}
TM_INLINE void f_store_as(float* p, F x) {
  _mm512_storeu_ps(p, x);
}
TM_INLINE void f_store_as(Half* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Rounds to the nearest, ties to even. Where the instruction set has this (the file set of amx), it takes subnormal
// numbers for zero.
TM_INLINE void f_store_as(BFloat* p, F x) {
#ifdef __AVX512BF16__
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
#else
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
#endif
}

// Vectors of the product: `lanes` outputs.
constexpr int lanes = 16;
using MF = __m512;
using MI = __m512i;
using MB = __m512i;  // lanes x 4 codes

TM_INLINE MB b_load(const uint8_t* p) {
  return _mm512_load_si512(p);
}
TM_INLINE MB b_low(MB x) {
  return _mm512_and_si512(x, _mm512_set1_epi8(0x0F));
}
TM_INLINE MB b_high(MB x) {
  return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(0x0F));
}
TM_INLINE MB b_table(const uint8_t* table) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}
TM_INLINE MB b_lookup(MB table, MB codes) {
  return _mm512_shuffle_epi8(table, codes);
}
TM_INLINE MI i_set(int32_t x) {
  return _mm512_set1_epi32(x);
}
TM_INLINE MI i_shift(MI x, int bits) {
  return _mm512_sll_epi32(x, _mm_cvtsi32_si128(bits));
}
// acc + the four products of each lane; Wide: codes may exceed 128.
template <bool Wide>
TM_INLINE MI i_dot(MI acc, MB codes, const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(four));
}
TM_INLINE MF m_zero() {
  return _mm512_setzero_ps();
}
TM_INLINE MF m_set(float x) {
  return _mm512_set1_ps(x);
}
template <typename T>
TM_INLINE MF m_load(const T* p) {
  return f_load(p);
}
TM_INLINE void m_store(float* p, MF x) {
  _mm512_storeu_ps(p, x);
}
TM_INLINE MF m_from(MI x) {
  return _mm512_cvtepi32_ps(x);
}
TM_INLINE MF m_mul(MF a, MF b) {
  return _mm512_mul_ps(a, b);
}
TM_INLINE MF m_fma(MF a, MF b, MF c) {
  return _mm512_fmadd_ps(a, b, c);
}

}  // namespace
}  // namespace tidemill::TM_ISA
