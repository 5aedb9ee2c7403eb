// Four blocks of a row quantized at once, so that one tree of shuffles reduces four vectors. The results are those of
// quantize_block in generic/quantize.h. Include after simd.h. Internal linkage only.
#pragma once

#include "compute/cpu/kernels.h"

#define TM_QUANTIZE_FOUR

namespace tidemill::TM_ISA {
namespace {

// Lane i of every quarter: op over all 16 lanes of v[i].
template <typename Op>
TM_INLINE __m512 reduce_four(const __m512 (&v)[4], Op&& op) {
  const __m512 a = op(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 b = op(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
  const __m512 quarters = op(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
  const __m512 halves = op(quarters, _mm512_shuffle_f32x4(quarters, quarters, 0x4E));
  return op(halves, _mm512_shuffle_f32x4(halves, halves, 0xB1));
}

// Lane i: the sum of all lanes of v[i], whole numbers.
TM_INLINE __m128i sum_four(const __m512i (&v)[4]) {
  const __m512 lanes[4] = {_mm512_castsi512_ps(v[0]), _mm512_castsi512_ps(v[1]), _mm512_castsi512_ps(v[2]),
                           _mm512_castsi512_ps(v[3])};
  const __m512 sums = reduce_four(lanes, [](__m512 a, __m512 b) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  });
  return _mm512_castsi512_si128(_mm512_castps_si512(sums));
}

TM_INLINE __m512i quantize_16(const float* x, __m512 factor) {
  const __m512 limit = _mm512_set1_ps(127.0f), scaled = _mm512_mul_ps(_mm512_loadu_ps(x), factor);
  return _mm512_cvtps_epi32(_mm512_max_ps(_mm512_min_ps(scaled, limit), _mm512_set1_ps(-127.0f)));
}

// Rows of four lanes to the four blocks, at field.
TM_INLINE void store_fields(cpu::ActBlock* out, int stride, size_t at, __m128 a, __m128 b, __m128 c, __m128 d) {
  _MM_TRANSPOSE4_PS(a, b, c, d);
  const __m128 rows[4] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    _mm_store_ps(reinterpret_cast<float*>(reinterpret_cast<char*>(out + i * stride) + at), rows[i]);
  }
}

// x[0 .. 127] into four blocks, `stride` apart.
TM_INLINE void quantize_four(const float* x, cpu::ActBlock* out, int stride) {
  constexpr size_t scales_at = offsetof(cpu::ActBlock, scale), sums_at = offsetof(cpu::ActBlock, negative_sum);
  static_assert(scales_at == 32 && sums_at == 48 && sizeof(cpu::ActBlock) == 64);
  __m512 largest[4];
  TM_UNROLL
  for (int i = 0; i < 4; ++i) {
    largest[i] = f_max(f_abs(_mm512_loadu_ps(x + 32 * i)), f_abs(_mm512_loadu_ps(x + 32 * i + 16)));
  }
  const __m128 four = _mm512_castps512_ps128(reduce_four(largest, [](__m512 a, __m512 b) { return f_max(a, b); }));
  const __m128 limit = _mm_set1_ps(127.0f), scale = _mm_div_ps(four, limit);
  const __mmask8 positive = _mm_cmp_ps_mask(four, _mm_setzero_ps(), _CMP_GT_OQ);
  const __m512 inverse = _mm512_broadcast_f32x4(_mm_maskz_div_ps(positive, limit, four));
  const __m512 factors[4] = {_mm512_permute_ps(inverse, 0x00), _mm512_permute_ps(inverse, 0x55),
                             _mm512_permute_ps(inverse, 0xAA), _mm512_permute_ps(inverse, 0xFF)};
  __m512i low[4], high[4];
  TM_UNROLL
  for (int i = 0; i < 4; ++i) {
    low[i] = quantize_16(x + 32 * i, factors[i]);
    high[i] = quantize_16(x + 32 * i + 16, factors[i]);
    auto* q = reinterpret_cast<__m128i*>(out[i * stride].q);
    _mm_store_si128(q, _mm512_cvtepi32_epi8(low[i]));
    _mm_store_si128(q + 1, _mm512_cvtepi32_epi8(high[i]));
  }
  const __m128i lows = sum_four(low), highs = sum_four(high), all = _mm_add_epi32(lows, highs);
  store_fields(out, stride, scales_at, scale, _mm_mul_ps(scale, _mm_cvtepi32_ps(all)),
               _mm_mul_ps(scale, _mm_cvtepi32_ps(lows)), _mm_mul_ps(scale, _mm_cvtepi32_ps(highs)));
  const auto negative = [](__m128i v) { return _mm_castsi128_ps(_mm_sub_epi32(_mm_setzero_si128(), v)); };
  store_fields(out, stride, sums_at, negative(all), negative(lows), negative(highs), _mm_setzero_ps());
}

}  // namespace
}  // namespace tidemill::TM_ISA
