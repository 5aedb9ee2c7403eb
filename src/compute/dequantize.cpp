#include "compute/dequantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compute/half.h"

namespace tidemill {
namespace {

constexpr int large = 256;  // values of a K-block

// Where a block of ggml keeps two 4-bit values per byte, byte j holds values j and j + 16.
constexpr int half_block = 16;

uint8_t byte_at(const std::byte* src, int64_t i) {
  return static_cast<uint8_t>(src[i]);
}

uint16_t bits16(const std::byte* src) {
  uint16_t bits;
  std::memcpy(&bits, src, sizeof(bits));
  return bits;
}

float half_at(const std::byte* src) {
  return half_to_float(bits16(src));
}

void block_f32(const std::byte* src, float* dst) {
  std::memcpy(dst, src, sizeof(float));
}
void block_f16(const std::byte* src, float* dst) {
  *dst = half_at(src);
}
void block_bf16(const std::byte* src, float* dst) {
  *dst = bfloat_to_float(bits16(src));
}

void block_q4_0(const std::byte* src, float* dst) {
  const float d = half_at(src);
  for (int j = 0; j < half_block; ++j) {
    const uint8_t q = byte_at(src, 2 + j);
    dst[j] = static_cast<float>((q & 0xF) - 8) * d;
    dst[j + half_block] = static_cast<float>((q >> 4) - 8) * d;
  }
}

void block_q4_1(const std::byte* src, float* dst) {
  const float d = half_at(src), m = half_at(src + 2);
  for (int j = 0; j < half_block; ++j) {
    const uint8_t q = byte_at(src, 4 + j);
    dst[j] = static_cast<float>(q & 0xF) * d + m;
    dst[j + half_block] = static_cast<float>(q >> 4) * d + m;
  }
}

// The 32 fifth bits of a q5_0 or q5_1 block, bit i for value i.
uint32_t fifth_bits(const std::byte* src) {
  uint32_t bits;
  std::memcpy(&bits, src, sizeof(bits));
  return bits;
}

void block_q5_0(const std::byte* src, float* dst) {
  const float d = half_at(src);
  const uint32_t high = fifth_bits(src + 2);
  for (int j = 0; j < half_block; ++j) {
    const uint8_t q = byte_at(src, 6 + j);
    const int low_value = (q & 0xF) | static_cast<int>((high >> j) & 1) << 4;
    const int high_value = (q >> 4) | static_cast<int>((high >> (j + half_block)) & 1) << 4;
    dst[j] = static_cast<float>(low_value - 16) * d;
    dst[j + half_block] = static_cast<float>(high_value - 16) * d;
  }
}

void block_q5_1(const std::byte* src, float* dst) {
  const float d = half_at(src), m = half_at(src + 2);
  const uint32_t high = fifth_bits(src + 4);
  for (int j = 0; j < half_block; ++j) {
    const uint8_t q = byte_at(src, 8 + j);
    const int low_value = (q & 0xF) | static_cast<int>((high >> j) & 1) << 4;
    const int high_value = (q >> 4) | static_cast<int>((high >> (j + half_block)) & 1) << 4;
    dst[j] = static_cast<float>(low_value) * d + m;
    dst[j + half_block] = static_cast<float>(high_value) * d + m;
  }
}

void block_q8_0(const std::byte* src, float* dst) {
  const float d = half_at(src);
  for (int j = 0; j < 32; ++j) dst[j] = static_cast<float>(static_cast<int8_t>(src[2 + j])) * d;
}

// Four 2-bit planes over 32 bytes, twice; each 16 values have a 4-bit scale and a 4-bit minimum.
void block_q2_k(const std::byte* src, float* dst) {
  const std::byte *scales = src, *quants = src + 16;
  const float d = half_at(src + 80), dmin = half_at(src + 82);
  for (int i = 0; i < large; ++i) {
    const int plane = i / 32 % 4;
    const int q = (byte_at(quants, i / 128 * 32 + i % 32) >> (2 * plane)) & 3;
    const uint8_t scale = byte_at(scales, i / 16);
    dst[i] = d * static_cast<float>(scale & 0xF) * static_cast<float>(q) - dmin * static_cast<float>(scale >> 4);
  }
}

// As q2_k with a third bit in a mask (bit set: no 4 taken off); sixteen 6-bit scales in 12 bytes, without minima.
void block_q3_k(const std::byte* src, float* dst) {
  const std::byte *mask = src, *quants = src + 32, *packed = src + 96;
  const float d = half_at(src + 108);
  for (int i = 0; i < large; ++i) {
    const int s = i / 16;
    const int low = s < 8 ? byte_at(packed, s) & 0xF : byte_at(packed, s - 8) >> 4;
    const int scale = (low | ((byte_at(packed, 8 + s % 4) >> (2 * (s / 4))) & 3) << 4) - 32;
    const int q = (byte_at(quants, i / 128 * 32 + i % 32) >> (2 * (i / 32 % 4))) & 3;
    const int third = (byte_at(mask, i % 32) >> (i / 32)) & 1;
    dst[i] = d * static_cast<float>(scale) * static_cast<float>(q - (third ? 0 : 4));
  }
}

struct ScaleMin {
  float scale, min;
};

// q4_k and q5_k: eight 6-bit scales and eight 6-bit minima in 12 bytes.
ScaleMin scale_min(const std::byte* packed, int j) {
  if (j < 4) {
    return {static_cast<float>(byte_at(packed, j) & 63), static_cast<float>(byte_at(packed, j + 4) & 63)};
  }
  const int scale = (byte_at(packed, j + 4) & 0xF) | byte_at(packed, j - 4) >> 6 << 4;
  const int min = byte_at(packed, j + 4) >> 4 | byte_at(packed, j) >> 6 << 4;
  return {static_cast<float>(scale), static_cast<float>(min)};
}

void block_q4_k(const std::byte* src, float* dst) {
  const float d = half_at(src), dmin = half_at(src + 2);
  const std::byte* quants = src + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sm = scale_min(src + 4, j);
    const float scale = d * sm.scale, min = dmin * sm.min;
    for (int l = 0; l < 32; ++l) {
      const uint8_t q = byte_at(quants, j / 2 * 32 + l);
      dst[j * 32 + l] = scale * static_cast<float>(j % 2 ? q >> 4 : q & 0xF) - min;
    }
  }
}

void block_q5_k(const std::byte* src, float* dst) {
  const float d = half_at(src), dmin = half_at(src + 2);
  const std::byte *high = src + 16, *quants = src + 48;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sm = scale_min(src + 4, j);
    const float scale = d * sm.scale, min = dmin * sm.min;
    for (int l = 0; l < 32; ++l) {
      const uint8_t q = byte_at(quants, j / 2 * 32 + l);
      const int value = (j % 2 ? q >> 4 : q & 0xF) + ((byte_at(high, l) >> j) & 1) * 16;
      dst[j * 32 + l] = scale * static_cast<float>(value) - min;
    }
  }
}

// Halves of 128 values: two runs of 64 low nibbles, four 2-bit planes of the high bits, signed 8-bit scales per 16.
void block_q6_k(const std::byte* src, float* dst) {
  const float d = half_at(src + 208);
  for (int i = 0; i < large; ++i) {
    const int half = i / 128, in_half = i % 128, plane = in_half / 32, l = in_half % 32;
    const uint8_t low = byte_at(src, half * 64 + (plane % 2) * 32 + l);
    const uint8_t high = byte_at(src + 128, half * 32 + l);
    const int q = ((plane < 2 ? low & 0xF : low >> 4) | ((high >> (2 * plane)) & 3) << 4) - 32;
    const auto scale = static_cast<int8_t>(src[192 + i / 16]);
    dst[i] = d * static_cast<float>(scale) * static_cast<float>(q);
  }
}

constexpr int8_t iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void block_iq4_nl(const std::byte* src, float* dst) {
  const float d = half_at(src);
  for (int j = 0; j < half_block; ++j) {
    const uint8_t q = byte_at(src, 2 + j);
    dst[j] = d * static_cast<float>(iq4_nl_values[q & 0xF]);
    dst[j + half_block] = d * static_cast<float>(iq4_nl_values[q >> 4]);
  }
}

// E2M1 values, doubled; the shared scale 2^(e-127) is halved to make up for it.
constexpr int8_t doubled_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void block_mxfp4(const std::byte* src, float* dst) {
  const uint32_t e = byte_at(src, 0);
  const float d = float_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  for (int j = 0; j < half_block; ++j) {
    const uint8_t q = byte_at(src, 1 + j);
    dst[j] = static_cast<float>(doubled_e2m1[q & 0xF]) * d;
    dst[j + half_block] = static_cast<float>(doubled_e2m1[q >> 4]) * d;
  }
}

using BlockFunction = void (*)(const std::byte*, float*);
constexpr BlockFunction block_functions[num_dtypes] = {block_f32,  block_f16,  block_bf16, block_q4_0,   block_q4_1,
                                                       block_q5_0, block_q5_1, block_q8_0, block_q2_k,   block_q3_k,
                                                       block_q4_k, block_q5_k, block_q6_k, block_iq4_nl, block_mxfp4};

void put_half(std::byte* dst, float value) {
  const uint16_t bits = float_to_half(value);
  std::memcpy(dst, &bits, sizeof(bits));
}

bool all_finite(const float* src, int count) {
  return std::all_of(src, src + count, [](float value) { return std::isfinite(value); });
}

}  // namespace

void dequantize_row(DType type, const std::byte* src, float* dst, int64_t count) {
  const int64_t values = block_values(type), bytes = block_bytes(type);
  TM_CHECK(count >= 0 && count % values == 0, "dequantize_row is given whole blocks");
  const BlockFunction block = block_functions[static_cast<size_t>(type)];
  for (int64_t i = 0; i < count / values; ++i) block(src + i * bytes, dst + i * values);
}

void quantize_row_q8_0(const float* src, std::byte* dst, int64_t count) {
  TM_CHECK(count >= 0 && count % 32 == 0, "quantize_row_q8_0 is given whole blocks");
  for (; count > 0; count -= 32, src += 32, dst += 34) {
    if (!all_finite(src, 32)) {
      std::memset(dst, 0, 34);
      continue;
    }
    float largest = 0;
    for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(src[j]));
    const float d = largest / 127, inverse = d != 0 ? 1 / d : 0;
    put_half(dst, d);
    // The clamp matters only for subnormal scales, whose inverse is infinite.
    for (int j = 0; j < 32; ++j) {
      const float scaled = std::isfinite(inverse) ? std::clamp(std::round(src[j] * inverse), -127.0f, 127.0f) : 0;
      dst[2 + j] = static_cast<std::byte>(static_cast<int8_t>(scaled));
    }
  }
}

void quantize_row_q4_0(const float* src, std::byte* dst, int64_t count) {
  TM_CHECK(count >= 0 && count % 32 == 0, "quantize_row_q4_0 is given whole blocks");
  for (; count > 0; count -= 32, src += 32, dst += 18) {
    float extreme = 0;
    const bool usable = all_finite(src, 32);
    for (int j = 0; usable && j < 32; ++j) extreme = std::fabs(src[j]) > std::fabs(extreme) ? src[j] : extreme;
    const float d = extreme / -8, inverse = d != 0 ? 1 / d : 0;
    put_half(dst, d);
    auto level = [&](float value) {
      const float scaled = usable && std::isfinite(inverse) ? value * inverse : 0;
      return static_cast<int>(std::clamp(scaled + 8.5f, 0.0f, 15.0f));
    };
    for (int j = 0; j < half_block; ++j) {
      dst[2 + j] = static_cast<std::byte>(level(src[j]) | level(src[j + half_block]) << 4);
    }
  }
}

}  // namespace tidemill
