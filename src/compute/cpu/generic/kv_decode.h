// Encoded keys and values as floats. Include after an instruction set's simd.h.
//
// A value is always code * scale, or fma(code, scale, min), whoever decodes it: so every reader sees the same floats.
#pragma once

#include "compute/cpu/generic/math.h"
#include "compute/cpu/kernel_types.h"
#include "compute/float8.h"

namespace tidemill::TM_ISA {
namespace {

constexpr int most_value_groups = 64;  // scales of one position's values: heads of up to 1,024 values

constexpr float e4m3_unit = 256.0f;  // f_load of E4M3 gives values that are so many times too small

// One KV head's keys or values as they lie in a block.
struct StoredSide {
  const uint8_t* bytes;
  KvCode code;
  int dim, block_size;
};

// Codes of 16 neighbours as floats. `row` is where a row of codes begins, `index` a multiple of 16.
template <typename T>
struct ByteCodes {
  static constexpr int bits = 8;
  TM_INLINE F load(const uint8_t* row, int index) const { return f_load(reinterpret_cast<const T*>(row) + index); }
};
struct NibbleCodes {
  static constexpr int bits = 4;
  FTable table;
  TM_INLINE F load(const uint8_t* row, int index) const { return f_lookup(table, row + index / 2); }
};

inline NibbleCodes nibble_codes(KvFormat format) {
  static const float whole[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  static const float centred[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  if (format == KvFormat::nvfp4) return {f_table(e2m1_values)};
  return {f_table(format == KvFormat::int4 ? whole : centred)};
}

// Scales first .. first + 15 (fewer at the end of them) of a side.
TM_INLINE F load_scales(const StoredSide& side, const KvSideLayout& layout, int first) {
  const int n = layout.num_scales - first < 16 ? layout.num_scales - first : 16;
  if (side.code.format == KvFormat::nvfp4) {
    float outer;
    __builtin_memcpy(&outer, side.bytes + layout.outer, sizeof(outer));
    // Always whole sixteens: a block has a multiple of 16 positions.
    return f_mul(f_load(reinterpret_cast<const Float8E4M3*>(side.bytes + layout.scales) + first),
                 f_set(outer * e4m3_unit));
  }
  const auto* halves = reinterpret_cast<const Half*>(side.bytes + layout.scales) + first;
  const F scales = n == 16 ? f_load(halves) : f_load_n(halves, n);
  return side.code.format == KvFormat::fp8_e4m3 ? f_mul(scales, f_set(e4m3_unit)) : scales;
}
TM_INLINE F load_mins(const StoredSide& side, const KvSideLayout& layout, int first) {
  const int n = layout.num_scales - first < 16 ? layout.num_scales - first : 16;
  const auto* mins = reinterpret_cast<const Half*>(side.bytes + layout.mins) + first;
  return n == 16 ? f_load(mins) : f_load_n(mins, n);
}

template <bool Min>
TM_INLINE F decoded(F code, F scale, F min) {
  return Min ? f_fma(code, scale, min) : f_mul(code, scale);
}

// Keys of positions first .. first + count - 1 of the block (whole sixteens) to to[d * stride + i].
template <bool Min, typename Codes>
TM_INLINE void decode_keys_by_channel(const StoredSide& side, Codes codes, int first, int count, float* to,
                                      int stride) {
  const KvSideLayout layout = key_layout(side.code, side.dim, side.block_size);
  const int row_bytes = side.block_size * Codes::bits / 8;
  for (int d = 0; d < side.dim; d += 16) {
    alignas(64) float scales[16], mins[16];
    f_store(scales, load_scales(side, layout, d));
    if (Min) f_store(mins, load_mins(side, layout, d));
    for (int i = 0; i < 16 && d + i < side.dim; ++i) {
      const F scale = f_set(scales[i]), min = Min ? f_set(mins[i]) : f_zero();
      const uint8_t* row = side.bytes + static_cast<size_t>(d + i) * row_bytes;
      for (int p = 0; p < count; p += 16) {
        f_store(to + (d + i) * stride + p, decoded<Min>(codes.load(row, first + p), scale, min));
      }
    }
  }
}

template <bool Min, typename Codes>
TM_INLINE void decode_keys_by_token(const StoredSide& side, Codes codes, int first, int count, float* to, int stride) {
  const KvSideLayout layout = key_layout(side.code, side.dim, side.block_size);
  const int row_bytes = side.block_size * Codes::bits / 8, group = values_per_scale(side.code.format, side.dim);
  for (int p = 0; p < count; p += 16) {
    for (int d = 0, g = 0; d < side.dim; d += group, ++g) {
      const int scale_index = g * side.block_size + first + p;
      const F scale = load_scales(side, layout, scale_index);
      const F min = Min ? load_mins(side, layout, scale_index) : f_zero();
      const int end = d + group < side.dim ? d + group : side.dim;
      for (int i = d; i < end; ++i) {
        const F code = codes.load(side.bytes + static_cast<size_t>(i) * row_bytes, first + p);
        f_store(to + i * stride + p, decoded<Min>(code, scale, min));
      }
    }
  }
}

template <typename Codes>
TM_INLINE void decode_keys_with(const StoredSide& side, Codes codes, int first, int count, float* to, int stride) {
  if (side.code.scales == KvScales::per_channel) {
    if (has_min(side.code)) return decode_keys_by_channel<true>(side, codes, first, count, to, stride);
    return decode_keys_by_channel<false>(side, codes, first, count, to, stride);
  }
  if (has_min(side.code)) return decode_keys_by_token<true>(side, codes, first, count, to, stride);
  decode_keys_by_token<false>(side, codes, first, count, to, stride);
}

// Values of positions first .. first + count - 1 (first is a multiple of 16) to to[i * dim + element].
template <bool Min, typename Codes>
TM_INLINE void decode_values_with(const StoredSide& side, Codes codes, int first, int count, float* to) {
  const KvSideLayout layout = value_layout(side.code, side.dim, side.block_size);
  const int row_bytes = value_row(side.code, side.dim) * Codes::bits / 8;
  const int group = values_per_scale(side.code.format, side.dim), num_groups = (side.dim + group - 1) / group;
  for (int p = 0; p < count; p += 16) {
    const int end = count - p < 16 ? count - p : 16;
    alignas(64) float scales[16 * most_value_groups], mins[Min ? 16 * most_value_groups : 1];
    for (int i = 0; i < end * num_groups; i += 16) {
      f_store(scales + i, load_scales(side, layout, (first + p) * num_groups + i));
      if (Min) f_store(mins + i, load_mins(side, layout, (first + p) * num_groups + i));
    }
    for (int i = 0; i < end; ++i) {
      const uint8_t* row = side.bytes + static_cast<size_t>(first + p + i) * row_bytes;
      float* out = to + static_cast<size_t>(p + i) * side.dim;
      for (int g = 0, d = 0; g < num_groups; ++g) {
        const F scale = f_set(scales[i * num_groups + g]), min = Min ? f_set(mins[i * num_groups + g]) : f_zero();
        const int group_end = d + group < side.dim ? d + group : side.dim;
        for (; d + 16 <= group_end; d += 16) f_store(out + d, decoded<Min>(codes.load(row, d), scale, min));
        if (d < group_end) {
          f_store_n(out + d, decoded<Min>(codes.load(row, d), scale, min), group_end - d);
          d = group_end;
        }
      }
    }
  }
}

template <typename Codes>
TM_INLINE void decode_values_as(const StoredSide& side, Codes codes, int first, int count, float* to) {
  if (has_min(side.code)) return decode_values_with<true>(side, codes, first, count, to);
  decode_values_with<false>(side, codes, first, count, to);
}

template <typename T>
TM_INLINE void widen_keys(const StoredSide& side, int first, int count, float* to, int stride) {
  const T* from = reinterpret_cast<const T*>(side.bytes) + first;
  for (int d = 0; d < side.dim; ++d) {
    for (int p = 0; p < count; p += 16) f_store(to + d * stride + p, f_load(from + d * side.block_size + p));
  }
}

template <typename T>
TM_INLINE void widen_values(const StoredSide& side, int first, int count, float* to) {
  const T* value = reinterpret_cast<const T*>(side.bytes) + static_cast<size_t>(first) * side.dim;
  const int total = count * side.dim;
  int i = 0;
  for (; i + 16 <= total; i += 16) f_store(to + i, f_load(value + i));
  if (i < total) f_store_n(to + i, f_load_n(value + i, total - i), total - i);
}

// Positions first .. first + count - 1 of the block, both multiples of 16, as floats [dim][stride].
inline void load_keys(const StoredSide& side, int first, int count, float* to, int stride) {
  switch (side.code.format) {
    case KvFormat::fp32:
      return widen_keys<float>(side, first, count, to, stride);
    case KvFormat::fp16:
      return widen_keys<Half>(side, first, count, to, stride);
    case KvFormat::bf16:
      return widen_keys<BFloat>(side, first, count, to, stride);
    case KvFormat::fp8_e4m3:
      return decode_keys_with(side, ByteCodes<Float8E4M3>{}, first, count, to, stride);
    case KvFormat::fp8_e5m2:
      return decode_keys_with(side, ByteCodes<Float8E5M2>{}, first, count, to, stride);
    case KvFormat::int8:
    case KvFormat::q8_0:
      return decode_keys_with(side, ByteCodes<int8_t>{}, first, count, to, stride);
    case KvFormat::int4:
    case KvFormat::nvfp4:
    case KvFormat::q4_0:
      return decode_keys_with(side, nibble_codes(side.code.format), first, count, to, stride);
  }
}

// Positions first .. first + count - 1 of the block (first is a multiple of 16) as floats [count][dim].
inline void load_values(const StoredSide& side, int first, int count, float* to) {
  switch (side.code.format) {
    case KvFormat::fp32:
      return widen_values<float>(side, first, count, to);
    case KvFormat::fp16:
      return widen_values<Half>(side, first, count, to);
    case KvFormat::bf16:
      return widen_values<BFloat>(side, first, count, to);
    case KvFormat::fp8_e4m3:
      return decode_values_as(side, ByteCodes<Float8E4M3>{}, first, count, to);
    case KvFormat::fp8_e5m2:
      return decode_values_as(side, ByteCodes<Float8E5M2>{}, first, count, to);
    case KvFormat::int8:
    case KvFormat::q8_0:
      return decode_values_as(side, ByteCodes<int8_t>{}, first, count, to);
    case KvFormat::int4:
    case KvFormat::nvfp4:
    case KvFormat::q4_0:
      return decode_values_as(side, nibble_codes(side.code.format), first, count, to);
  }
}

}  // namespace
}  // namespace tidemill::TM_ISA
