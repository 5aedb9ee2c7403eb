// Conversions between float and the two 16-bit floats, in plain integer arithmetic.
//
// To 16 bits: round to nearest, ties to even; too large becomes infinity; NaN stays NaN. From 16 bits: exact.
// Functions are static so that a file compiled for one instruction set never lends its copy to another.
#pragma once

#include <cstdint>
#include <cstring>

namespace tidemill {

static inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline float bfloat_to_float(uint16_t bits) {
  return float_from_bits(static_cast<uint32_t>(bits) << 16);
}

static inline uint16_t float_to_bfloat(float value) {
  const uint32_t bits = bits_of_float(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

static inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7FFF;
  if (magnitude >= 0x7C00) return float_from_bits(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
  if (magnitude >= 0x0400) return float_from_bits(sign | ((magnitude << 13) + 0x38000000));
  // Subnormal: magnitude * 2^-24, exact in float.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return float_from_bits(sign | bits_of_float(value));
}

static inline uint16_t float_to_half(float value) {
  const uint32_t bits = bits_of_float(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7C00);  // 65536 and above
  if (magnitude >= 0x38800000) {                                             // 2^-14, the smallest normal half
    // A carry out of the mantissa moves on into the exponent, up to infinity.
    const uint32_t rounded = magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  // Adding 2^-1 puts the unit of a float's mantissa at 2^-24, the smallest half; the addition itself rounds to even.
  const float shifted = float_from_bits(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (bits_of_float(shifted) - 0x3F000000));
}

}  // namespace tidemill
