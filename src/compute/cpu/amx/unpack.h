// Quantized weights as pairs of BF16, which the matrix unit multiplies: 32 inputs of 16 outputs at a time.
//
// A code is a whole number below 256 and becomes the half scale * code + min in one fused operation of AVX512-FP16. A
// half becomes a BF16 by rounding away three bits of its mantissa (ties away from zero) while its exponent stays what
// it is: BF16 counts exponents from 127, halves from 15, so that all weights are 2^-112 of what they should be. The
// matrix unit takes numbers without a leading one for zero, which makes zero of halves below 2^-14; a panel's scales
// are laid so that this is little in proportion to the row's largest weights (PackedKind in kernel_types.h). The
// factors of the row and the activations' (pair_unit) make up for it.
#pragma once

#include "compute/cpu/amx/simd.h"
#include "compute/cpu/generic/matmul.h"

namespace tidemill::amx {
namespace {

constexpr int tile_values = 512;  // of the weights' tile for one block of inputs

// Bits of a code, scales per block, and what else there is.
template <int Bits, bool HasMin, int Groups = 1, bool Lookup = false>
struct PairsOf {
  static constexpr bool packed = true;
  static constexpr int bits = Bits, groups = Groups;
  static constexpr bool has_min = HasMin, lookup = Lookup;
  static constexpr int code_bytes = panel_rows * block_k * Bits / 8;
  static constexpr int scale_count = panel_rows * Groups;
  static constexpr int block_bytes = code_bytes + scale_count * 2 * (HasMin ? 2 : 1);
};
// Weights that are pairs of BF16 in the panel.
struct PairsAsTheyAre {
  static constexpr bool packed = false;
  static constexpr int block_bytes = tile_values * 2;
};

// What all panels of one part have in common.
struct UnpackConstants {
  __m512i twice;   // 0 0 1 1 2 2 ..: a value per output becomes one per word
  __m512h zero;    // times a scale: the min of kinds that have none
  __m512h values;  // [32] of a code that is looked up, twice the 16
};

template <typename Kind>
TM_INLINE UnpackConstants unpack_constants(const Panels& panels) {
  alignas(64) uint16_t twice[32];
  for (int i = 0; i < 32; ++i) twice[i] = static_cast<uint16_t>(i / 2);
  UnpackConstants constants;
  constants.twice = _mm512_load_si512(twice);
  constants.zero = _mm512_setzero_ph();
  constants.values = _mm512_setzero_ph();
  if constexpr (Kind::packed) {
    const int zero_point = 1 << panels.zero_shift;
    if constexpr (Kind::lookup) {
      const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panels.table)));
      const __m512i twice_codes = _mm512_broadcast_i64x4(codes);
      constants.values =
          _mm512_cvtepi16_ph(_mm512_sub_epi16(twice_codes, _mm512_set1_epi16(static_cast<int16_t>(zero_point))));
    } else if constexpr (!Kind::has_min) {
      const float zero = -static_cast<float>(zero_point) / (Kind::bits == 8 ? 1.0f : cpu::code_unit(Kind::bits));
      constants.zero = _mm512_set1_ph(static_cast<_Float16>(zero));
    }
  }
  return constants;
}

TM_INLINE __m512i pairs_of_halves(__m512h halves) {
  // (x * 2^12 + 2^14) >> 15: three bits are rounded away.
  const __m512i rounded = _mm512_mulhrs_epi16(_mm512_castph_si512(halves), _mm512_set1_epi16(4096));
  // The shift repeats the sign in front of the exponent.
  return _mm512_and_si512(rounded, _mm512_set1_epi16(static_cast<int16_t>(0x8FFF)));
}

// To the left; to the right where n < 0.
TM_INLINE __m512i shift_words(__m512i words, int n) {
  if (n == 0) return words;
  return n > 0 ? _mm512_slli_epi16(words, static_cast<unsigned>(n))
               : _mm512_srli_epi16(words, static_cast<unsigned>(-n));
}

// Code n of every word, as a half; of 4 to 6 bits that are not looked up, divided by code_unit. Their higher bits begin
// at bit `high_at` of `high`.
template <typename Kind>
TM_INLINE __m512h code_of_word(__m512i words, int n, __m512i high, int high_at, const UnpackConstants& constants) {
  if constexpr (Kind::bits == 8) {
    return _mm512_cvtepu16_ph(n == 0 ? _mm512_and_si512(words, _mm512_set1_epi16(255)) : _mm512_srli_epi16(words, 8));
  } else if constexpr (Kind::lookup) {
    // Five bits choose among twice 16 values: the fifth, of the next code, does not matter.
    const __m512i index = shift_words(words, -4 * n);
    return _mm512_castsi512_ph(_mm512_permutexvar_epi16(index, _mm512_castph_si512(constants.values)));
  } else {
    // From bit 5 or 6 of a half up to bit 9 or 10: code / code_unit, without a conversion, for the halves that begin at
    // bit 10 go on where those without a leading one end.
    constexpr int first = Kind::bits == 6 ? 5 : 6, low_bits = 0xF << first, all_bits = ((1 << Kind::bits) - 1) << first;
    __m512i code = shift_words(words, first - 4 * n);
    if constexpr (Kind::bits > 4) {
      constexpr int first_else_second = 0xCA;  // by the bits of a mask
      code = _mm512_ternarylogic_epi32(_mm512_set1_epi16(low_bits), code, shift_words(high, first + 4 - high_at),
                                       first_else_second);
    }
    return _mm512_castsi512_ph(_mm512_and_si512(code, _mm512_set1_epi16(all_bits)));
  }
}

TM_INLINE __m512h half_per_output(const uint8_t* p, const UnpackConstants& constants) {
  const __m256i sixteen = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ph(_mm512_permutexvar_epi16(constants.twice, _mm512_castsi256_si512(sixteen)));
}

// Block b of a panel of num_blocks as a tile of weights, [16 pairs of inputs][16 outputs][2 inputs].
template <typename Kind>
TM_INLINE void unpack_pairs(const uint8_t* panel, int num_blocks, int b, const UnpackConstants& constants,
                            uint16_t* out) {
  constexpr int codes = Kind::bits == 8 ? 2 : 4, vectors = 16 / codes;  // per word; without those of higher bits
  constexpr int high_bits = Kind::bits == 8 ? 0 : Kind::bits - 4, per_high = high_bits == 2 ? 8 : 16;
  const uint8_t* scales = panel + static_cast<size_t>(num_blocks) * Kind::code_bytes;
  const uint8_t* mins = scales + static_cast<size_t>(num_blocks) * Kind::scale_count * 2;
  const uint8_t* words = panel + static_cast<size_t>(b) * Kind::code_bytes;
  TM_UNROLL
  for (int g = 0; g < Kind::groups; ++g) {
    const auto at = static_cast<size_t>((b * Kind::groups + g) * panel_rows * 2);
    const __m512h scale = half_per_output(scales + at, constants);
    __m512h min = _mm512_mul_ph(scale, constants.zero);
    if constexpr (Kind::has_min) min = half_per_output(mins + at, constants);
    TM_UNROLL
    for (int j = g * vectors / Kind::groups; j < (g + 1) * vectors / Kind::groups; ++j) {
      const __m512i vector = _mm512_load_si512(words + j * 64);
      TM_UNROLL
      for (int n = 0; n < codes; ++n) {
        const int i = j * codes + n;
        __m512i high = vector;
        if constexpr (high_bits > 0) high = _mm512_load_si512(words + (vectors + i / per_high) * 64);
        const __m512h code = code_of_word<Kind>(vector, n, high, i % per_high * high_bits, constants);
        __m512h weight;
        if constexpr (Kind::lookup) {
          weight = _mm512_mul_ph(code, scale);
        } else {
          weight = _mm512_fmadd_ph(code, scale, min);
        }
        _mm512_store_si512(out + i * 32, pairs_of_halves(weight));
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::amx
