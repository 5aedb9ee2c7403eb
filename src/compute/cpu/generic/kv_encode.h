// Keys and values of a full block into their storage format, and back. Include after an instruction set's simd.h.
//
// Scales come of the block's own values only: of the largest magnitude, or of the range where a format has mins. They
// are rounded first, and codes are chosen for the rounded ones.
#pragma once

#include "compute/cpu/generic/kv_decode.h"
#include "compute/cpu/kernels.h"

namespace tidemill::TM_ISA {
namespace {

using cpu::CodeSide;

// A scale and a min as they are stored (a half, or the byte of nvfp4), and what codes are computed with:
// code = (value - base) * inverse.
struct Scale {
  uint16_t scale, min;
  float base, inverse;
};

inline float largest_code(KvFormat format) {
  switch (format) {
    case KvFormat::fp8_e4m3:
    case KvFormat::fp8_e5m2:  // could reach further, but then scales would be subnormal halves
      return largest_e4m3;
    case KvFormat::nvfp4:
      return largest_e2m1;
    default:
      return 127.0f;
  }
}

inline Scale scale_of(KvCode code, float low, float high, float outer) {
  Scale out = {};
  float step;
  if (code.format == KvFormat::int4) {
    out.min = float_to_half(low);
    out.base = half_to_float(out.min);
    step = (high - out.base) / 15.0f;
  } else if (code.format == KvFormat::q4_0) {
    step = (high > -low ? high : low) / -8.0f;
  } else if (has_min(code)) {
    out.min = float_to_half(0.5f * (low + high));
    out.base = half_to_float(out.min);
    const float above = high - out.base, below = out.base - low;
    step = (above > below ? above : below) / 127.0f;
  } else {
    step = (high > -low ? high : -low) / largest_code(code.format);
  }
  float rounded;
  if (code.format == KvFormat::nvfp4) {
    out.scale = float_to_e4m3(outer > 0 ? step / outer : 0);
    rounded = e4m3_to_float(static_cast<uint8_t>(out.scale)) * outer;
  } else {
    out.scale = float_to_half(step);
    rounded = half_to_float(out.scale);
  }
  const float inverse = 1.0f / rounded;
  out.inverse = inverse <= 3.0e38f && inverse >= -3.0e38f ? inverse : 0;  // 0 for a scale of 0
  return out;
}

inline void put_scale(const CodeSide& side, const KvSideLayout& layout, int index, const Scale& scale) {
  auto* bytes = static_cast<uint8_t*>(side.to);
  if (side.code.format == KvFormat::nvfp4) {
    bytes[layout.scales + static_cast<size_t>(index)] = static_cast<uint8_t>(scale.scale);
    return;
  }
  __builtin_memcpy(bytes + layout.scales + static_cast<size_t>(index) * 2, &scale.scale, 2);
  if (has_min(side.code)) __builtin_memcpy(bytes + layout.mins + static_cast<size_t>(index) * 2, &scale.min, 2);
}

TM_INLINE F clamped(F x, float low, float high) {
  return f_max(f_min(x, f_set(high)), f_set(low));
}

TM_INLINE void put_nibbles(const uint8_t* codes, uint8_t* to) {
  for (int word = 0; word < 2; ++word) {
    for (int byte = 0; byte < 4; ++byte) {
      const int j = word + 4 * byte;
      to[word * 4 + byte] = static_cast<uint8_t>(codes[j] | codes[j + 2] << 4);
    }
  }
}

// Codes of 16 scaled values.
TM_INLINE void put_codes(KvFormat format, F x, uint8_t* to) {
  alignas(64) float lane[16];
  uint8_t codes[16];
  switch (format) {
    case KvFormat::int8:
    case KvFormat::q8_0:
      return f_store_i8(reinterpret_cast<int8_t*>(to), clamped(f_round(x), -127.0f, 127.0f));
    case KvFormat::fp8_e4m3:
      f_store(lane, x);
      for (int i = 0; i < 16; ++i) to[i] = float_to_e4m3(lane[i]);
      return;
    case KvFormat::fp8_e5m2:
      f_store(lane, x);
      for (int i = 0; i < 16; ++i) to[i] = float_to_e5m2(lane[i]);
      return;
    case KvFormat::int4:
      f_store_i8(reinterpret_cast<int8_t*>(codes), clamped(f_round(x), 0.0f, 15.0f));
      return put_nibbles(codes, to);
    case KvFormat::q4_0:
      f_store_i8(reinterpret_cast<int8_t*>(codes), f_add(clamped(f_round(x), -8.0f, 7.0f), f_set(8.0f)));
      return put_nibbles(codes, to);
    case KvFormat::nvfp4:
      f_store(lane, x);
      for (int i = 0; i < 16; ++i) codes[i] = float_to_e2m1(lane[i]);
      return put_nibbles(codes, to);
    default:
      return;
  }
}

// For nvfp4: what multiplies all scales, so that the largest one is E4M3's largest.
template <typename T>
inline float outer_scale(const CodeSide& side) {
  if (side.code.format != KvFormat::nvfp4) return 1.0f;
  const auto* from = static_cast<const T*>(side.from);
  F largest = f_zero();
  for (int i = 0; i < side.dim * side.block_size; i += 16) largest = f_max(f_abs(f_load(from + i)), largest);
  return f_largest(largest) / (largest_e2m1 * largest_e4m3);
}

inline void put_outer(const CodeSide& side, const KvSideLayout& layout, float outer) {
  if (side.code.format != KvFormat::nvfp4) return;
  __builtin_memcpy(static_cast<uint8_t*>(side.to) + layout.outer, &outer, sizeof(outer));
}

template <typename T>
void encode_keys_by_channel(const CodeSide& side) {
  const KvSideLayout layout = key_layout(side.code, side.dim, side.block_size);
  const int row_bytes = side.block_size * code_bits(side.code.format) / 8;
  for (int d = 0; d < side.dim; ++d) {
    const T* row = static_cast<const T*>(side.from) + static_cast<size_t>(d) * side.block_size;
    F high = f_load(row), below = f_sub(f_zero(), high);
    for (int p = 16; p < side.block_size; p += 16) {
      high = f_max(f_load(row + p), high);
      below = f_max(f_sub(f_zero(), f_load(row + p)), below);
    }
    const Scale scale = scale_of(side.code, -f_largest(below), f_largest(high), 1.0f);
    put_scale(side, layout, d, scale);
    uint8_t* to = static_cast<uint8_t*>(side.to) + static_cast<size_t>(d) * row_bytes;
    for (int p = 0; p < side.block_size; p += 16) {
      const F x = f_mul(f_sub(f_load(row + p), f_set(scale.base)), f_set(scale.inverse));
      put_codes(side.code.format, x, to + p * code_bits(side.code.format) / 8);
    }
  }
}

template <typename T>
void encode_keys_by_token(const CodeSide& side) {
  const KvSideLayout layout = key_layout(side.code, side.dim, side.block_size);
  const int bits = code_bits(side.code.format), row_bytes = side.block_size * bits / 8;
  const int group = values_per_scale(side.code.format, side.dim);
  const float outer = outer_scale<T>(side);
  put_outer(side, layout, outer);
  const auto* from = static_cast<const T*>(side.from);
  for (int p = 0; p < side.block_size; p += 16) {
    for (int first = 0, g = 0; first < side.dim; first += group, ++g) {
      const int end = first + group < side.dim ? first + group : side.dim;
      F high = f_load(from + first * side.block_size + p), below = f_sub(f_zero(), high);
      for (int d = first + 1; d < end; ++d) {
        const F x = f_load(from + d * side.block_size + p);
        high = f_max(x, high);
        below = f_max(f_sub(f_zero(), x), below);
      }
      alignas(64) float highs[16], lows[16], bases[16], inverses[16];
      f_store(highs, high);
      f_store(lows, f_sub(f_zero(), below));
      for (int i = 0; i < 16; ++i) {
        const Scale scale = scale_of(side.code, lows[i], highs[i], outer);
        put_scale(side, layout, g * side.block_size + p + i, scale);
        bases[i] = scale.base;
        inverses[i] = scale.inverse;
      }
      const F base = f_load(bases), inverse = f_load(inverses);
      for (int d = first; d < end; ++d) {
        const F x = f_mul(f_sub(f_load(from + d * side.block_size + p), base), inverse);
        put_codes(side.code.format, x,
                  static_cast<uint8_t*>(side.to) + static_cast<size_t>(d) * row_bytes + p * bits / 8);
      }
    }
  }
}

template <typename T>
void encode_value_rows(const CodeSide& side) {
  const KvSideLayout layout = value_layout(side.code, side.dim, side.block_size);
  const int bits = code_bits(side.code.format), row_bytes = value_row(side.code, side.dim) * bits / 8;
  const int group = values_per_scale(side.code.format, side.dim), num_groups = (side.dim + group - 1) / group;
  const float outer = outer_scale<T>(side);
  put_outer(side, layout, outer);
  for (int p = 0; p < side.block_size; ++p) {
    const T* row = static_cast<const T*>(side.from) + static_cast<size_t>(p) * side.dim;
    uint8_t* to = static_cast<uint8_t*>(side.to) + static_cast<size_t>(p) * row_bytes;
    for (int g = 0; g < num_groups; ++g) {
      const int first = g * group, end = first + group < side.dim ? first + group : side.dim;
      const F lowest = f_set(-__builtin_inff());
      F high = lowest, below = lowest;
      for (int d = first; d < end; d += 16) {
        const int n = end - d < 16 ? end - d : 16;
        const F x = f_load_n(row + d, n);
        high = f_max(f_keep(x, 0, n, lowest), high);
        below = f_max(f_keep(f_sub(f_zero(), x), 0, n, lowest), below);
      }
      const Scale scale = scale_of(side.code, -f_largest(below), f_largest(high), outer);
      put_scale(side, layout, p * num_groups + g, scale);
      for (int d = first; d < end; d += 16) {
        const int n = end - d < 16 ? end - d : 16;
        const F x = f_mul(f_sub(f_load_n(row + d, n), f_set(scale.base)), f_set(scale.inverse));
        put_codes(side.code.format, x, to + d * bits / 8);
      }
    }
  }
}

template <typename T>
void encode_keys_from(const CodeSide& side) {
  if (side.code.scales == KvScales::per_channel) return encode_keys_by_channel<T>(side);
  encode_keys_by_token<T>(side);
}

// Where both sides have the plain format: bytes as they are.
inline bool copy_plain(const CodeSide& side) {
  if (!is_plain(side.code.format)) return false;
  __builtin_memcpy(side.to, side.from,
                   static_cast<size_t>(side.dim) * static_cast<size_t>(side.block_size) *
                       static_cast<size_t>(code_bits(side.code.format)) / 8);
  return true;
}

}  // namespace

void encode_keys(const CodeSide& side) {
  if (copy_plain(side)) return;
  if (side.from_format == KvFormat::fp32) return encode_keys_from<float>(side);
  encode_keys_from<Half>(side);
}

void encode_values(const CodeSide& side) {
  if (copy_plain(side)) return;
  if (side.from_format == KvFormat::fp32) return encode_value_rows<float>(side);
  encode_value_rows<Half>(side);
}

void decode_keys(const CodeSide& side) {
  load_keys({static_cast<const uint8_t*>(side.from), side.code, side.dim, side.block_size}, 0, side.block_size,
            static_cast<float*>(side.to), side.block_size);
}

void decode_values(const CodeSide& side) {
  load_values({static_cast<const uint8_t*>(side.from), side.code, side.dim, side.block_size}, 0, side.block_size,
              static_cast<float*>(side.to));
}

}  // namespace tidemill::TM_ISA
