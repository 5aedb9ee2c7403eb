// From float to the 8-bit and 4-bit floats of encoded KV blocks: round to nearest, ties to even, saturating.
//
// E4M3 is the OCP format (largest 448, no infinity); its NaN is never written. E2M1 has the values 0, 0.5, 1, 1.5, 2,
// 3, 4 and 6 and their negatives. Inputs are numbers. Functions are static, see compute/half.h.
#pragma once

#include <stdint.h>

#include "compute/half.h"

namespace tidemill {

static constexpr float largest_e4m3 = 448.0f;
static constexpr float largest_e5m2 = 57344.0f;
static constexpr float largest_e2m1 = 6.0f;

// Values by code; codes 8 to 15 are the negatives.
static constexpr float e2m1_values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

static inline uint8_t float_to_e4m3(float value) {
  const uint32_t bits = bits_of_float(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= bits_of_float(largest_e4m3)) return sign | 0x7E;
  if (magnitude >= 0x3C800000) {  // 2^-6, the smallest normal number
    return static_cast<uint8_t>(sign | (magnitude - 0x3C000000 + 0x7FFFF + (magnitude >> 20 & 1)) >> 20);
  }
  // Adding 2^14 puts the unit of a float's mantissa at 2^-9, the smallest subnormal; the addition rounds to even.
  return static_cast<uint8_t>(sign | (bits_of_float(float_from_bits(magnitude) + 16384.0f) - 0x46800000));
}

static inline uint8_t float_to_e5m2(float value) {
  const uint32_t bits = bits_of_float(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= bits_of_float(largest_e5m2)) return sign | 0x7B;
  if (magnitude >= 0x38800000) {  // 2^-14
    return static_cast<uint8_t>(sign | (magnitude - 0x38000000 + 0xFFFFF + (magnitude >> 21 & 1)) >> 21);
  }
  return static_cast<uint8_t>(sign | (bits_of_float(float_from_bits(magnitude) + 128.0f) - 0x43000000));
}

static inline uint8_t float_to_e2m1(float value) {
  const uint32_t bits = bits_of_float(value);
  const float x = float_from_bits(bits & 0x7FFFFFFF);
  const int code = (x > 0.25f) + (x >= 0.75f) + (x > 1.25f) + (x >= 1.75f) + (x > 2.5f) + (x >= 3.5f) + (x > 5.0f);
  return static_cast<uint8_t>(bits >> 28 & 8) | static_cast<uint8_t>(code);
}

static inline float e4m3_to_float(uint8_t code) {
  return half_to_float(static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7F) << 7)) * 256.0f;
}

}  // namespace tidemill
