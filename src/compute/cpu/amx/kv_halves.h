// Encoded keys and values as halves, by AVX512-FP16: code * scale [+ min], rounded once.
//
// Whoever decodes a value gets the same half, however wide the block is. Rows are taken 32 codes at a time; where a row
// ends in the middle of that, what lies behind it (the next row, then scales) is read too, and means nothing.
#pragma once

#include "compute/cpu/amx/simd.h"
#include "compute/cpu/generic/attention_state.h"

namespace tidemill::amx {
namespace {

constexpr int run_positions = 32;  // that are decoded together

// 32 codes as halves. `row` is where a row of codes begins, `index` a multiple of 16.
template <typename T>
struct ByteHalves {
  static constexpr int bits = 8;
  TM_INLINE __m512h load(const uint8_t* row, int index) const {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + index));
    if constexpr (__is_same(T, Float8E4M3)) {  // e4m3_unit times too small, as f_load of it
      const __m512i half = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7);
      return _mm512_castsi512_ph(_mm512_and_si512(half, _mm512_set1_epi16(static_cast<int16_t>(0xBFFF))));
    } else if constexpr (__is_same(T, Float8E5M2)) {
      return _mm512_castsi512_ph(_mm512_slli_epi16(_mm512_cvtepu8_epi16(codes), 8));
    } else {
      return _mm512_cvtepi16_ph(_mm512_cvtepi8_epi16(codes));
    }
  }
};

// Value j of 16 is nibble j / 2 of the 32-bit word j % 2 (compute/kv_format.h): where its 16-bit word is, and how far
// it is to be shifted.
struct NibbleOrder {
  alignas(64) int8_t bytes[64];
  alignas(64) uint16_t shifts[32];
};
constexpr NibbleOrder make_nibble_order() {
  NibbleOrder order = {};
  for (int i = 0; i < 32; ++i) {
    const int j = i % 16, word = i / 16 * 4 + j % 2 * 2 + j / 2 / 4;
    order.bytes[2 * i] = static_cast<int8_t>(2 * word);
    order.bytes[2 * i + 1] = static_cast<int8_t>(2 * word + 1);
    order.shifts[i] = static_cast<uint16_t>(j / 2 % 4 * 4);
  }
  return order;
}
constexpr NibbleOrder nibble_order = make_nibble_order();

struct NibbleHalves {
  static constexpr int bits = 4;
  __m512h values;  // twice the 16: the fifth bit of an index, of the next code, does not matter
  __m512i bytes, shifts;
  TM_INLINE __m512h load(const uint8_t* row, int index) const {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + index / 2));
    const __m512i words = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), bytes);
    const __m512i which = _mm512_srlv_epi16(words, shifts);
    return _mm512_castsi512_ph(_mm512_permutexvar_epi16(which, _mm512_castph_si512(values)));
  }
};

inline NibbleHalves nibble_halves(KvFormat format) {
  const F sixteen = nibble_codes(format).table.values;
  const __m256i halves = _mm512_cvtps_ph(sixteen, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return {_mm512_castsi512_ph(_mm512_broadcast_i64x4(halves)), _mm512_load_si512(nibble_order.bytes),
          _mm512_load_si512(nibble_order.shifts)};
}

// Scales first .. first + count - 1 of a side, count <= 32, in the lower lanes.
TM_INLINE __m512h half_scales(const StoredSide& side, const KvSideLayout& layout, int first, int count) {
  if (side.code.format == KvFormat::nvfp4) {  // whole sixteens
    const auto half = [&](int at) {
      return _mm512_cvtps_ph(load_scales(side, layout, at), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    };
    const __m512i low = _mm512_castsi256_si512(half(first));
    return _mm512_castsi512_ph(count > 16 ? _mm512_inserti64x4(low, half(first + 16), 1) : low);
  }
  const auto lanes_of = static_cast<__mmask32>((uint64_t{1} << count) - 1);
  const __m512h scales = _mm512_castsi512_ph(
      _mm512_maskz_loadu_epi16(lanes_of, side.bytes + layout.scales + static_cast<size_t>(first) * 2));
  if (side.code.format != KvFormat::fp8_e4m3) return scales;
  return _mm512_mul_ph(scales, _mm512_set1_ph(static_cast<_Float16>(e4m3_unit)));
}
TM_INLINE __m512h half_mins(const StoredSide& side, const KvSideLayout& layout, int first, int count) {
  const auto lanes_of = static_cast<__mmask32>((uint64_t{1} << count) - 1);
  return _mm512_castsi512_ph(
      _mm512_maskz_loadu_epi16(lanes_of, side.bytes + layout.mins + static_cast<size_t>(first) * 2));
}
// Twice in 32 bits, which the loading of one to all lanes takes for nothing.
TM_INLINE void store_scales(uint32_t* to, __m512h x) {
  const __m512i bits = _mm512_castph_si512(x);
  for (int i = 0; i < 2; ++i) {
    const __m512i words =
        _mm512_cvtepu16_epi32(i == 0 ? _mm512_castsi512_si256(bits) : _mm512_extracti64x4_epi64(bits, 1));
    _mm512_storeu_si512(to + 16 * i, _mm512_or_si512(words, _mm512_slli_epi32(words, 16)));
  }
}
TM_INLINE __m512h scale_everywhere(const uint32_t* twice) {
  return _mm512_castsi512_ph(_mm512_set1_epi32(static_cast<int32_t>(*twice)));
}

template <bool Min>
TM_INLINE __m512h half_of(__m512h code, __m512h scale, __m512h min) {
  return Min ? _mm512_fmadd_ph(code, scale, min) : _mm512_mul_ph(code, scale);
}

// Calls row_pair(codes of the first, first, second) for the elements' rows, two by two, of positions first .. first +
// Width - 1 (16 or 32) of a block's keys.
template <int Width, bool ByChannel, bool Min, typename Codes, typename RowPair>
TM_INLINE void for_key_rows(const StoredSide& side, Codes codes, int first, RowPair&& row_pair) {
  const KvSideLayout layout = key_layout(side.code, side.dim, side.block_size);
  const auto row_bytes = static_cast<size_t>(side.block_size * Codes::bits / 8);
  const int group = ByChannel ? 32 : values_per_scale(side.code.format, side.dim);
  alignas(64) uint32_t channel_scales[32], channel_mins[32];
  const uint8_t* row = side.bytes;
  for (int begin = 0, index = 0; begin < side.dim; begin += group, ++index) {
    const int end = begin + group < side.dim ? begin + group : side.dim;
    const int at = ByChannel ? begin : index * side.block_size + first, count = ByChannel ? end - begin : Width;
    const __m512h scale = half_scales(side, layout, at, count);
    const __m512h min = Min ? half_mins(side, layout, at, count) : scale;
    if (ByChannel) {
      store_scales(channel_scales, scale);
      if (Min) store_scales(channel_mins, min);
    }
    const auto decoded_row = [&](const uint8_t* from, int d) {
      if constexpr (!ByChannel) return half_of<Min>(codes.load(from, first), scale, min);
      const __m512h of_channel = scale_everywhere(channel_scales + d);
      return half_of<Min>(codes.load(from, first), of_channel, Min ? scale_everywhere(channel_mins + d) : of_channel);
    };
    TM_UNROLL_4
    for (int d = begin; d < end; d += 2, row += 2 * row_bytes) {
      row_pair(row + first * Codes::bits / 8, decoded_row(row, d - begin), decoded_row(row + row_bytes, d + 1 - begin));
    }
  }
}

template <bool Value>
struct Known {
  static constexpr bool value = Value;
};

// Calls work(codes, by channel, with mins) with what an encoded format's keys are made of.
template <typename Work>
TM_INLINE void with_key_codes(KvCode code, Work&& work) {
  const auto with_scales = [&](auto codes) {
    const bool by_channel = code.scales == KvScales::per_channel, min = has_min(code);
    if (by_channel && min) return work(codes, Known<true>(), Known<true>());
    if (by_channel) return work(codes, Known<true>(), Known<false>());
    if (min) return work(codes, Known<false>(), Known<true>());
    work(codes, Known<false>(), Known<false>());
  };
  if (code.format == KvFormat::fp8_e4m3) return with_scales(ByteHalves<Float8E4M3>());
  if (code.format == KvFormat::fp8_e5m2) return with_scales(ByteHalves<Float8E5M2>());
  if (code.format == KvFormat::int8 || code.format == KvFormat::q8_0) return with_scales(ByteHalves<int8_t>());
  with_scales(nibble_halves(code.format));
}

// 16 positions of a block's keys, from `first` on, to to[d * run_positions + i]; halves, of whatever format.
inline void keys_as_halves(const StoredSide& side, int first, uint16_t* to) {
  const auto store = [&](__m512h x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(_mm512_castph_si512(x)));
    to += run_positions;
  };
  if (is_plain(side.code.format)) {
    const auto* from = reinterpret_cast<const uint16_t*>(side.bytes) + first;
    for (int d = 0; d < side.dim; ++d, from += side.block_size, to += run_positions) __builtin_memcpy(to, from, 32);
    return;
  }
  with_key_codes(side.code, [&](auto codes, auto by_channel, auto min) {
    for_key_rows<16, by_channel.value, min.value>(side, codes, first, [&](const uint8_t*, __m512h a, __m512h b) {
      store(a);
      store(b);
    });
  });
}

// Scales (and mins) of `count` positions' values, from `first` on, as decode needs them.
template <bool Min>
struct ValueScales {
  alignas(64) uint32_t scales[run_positions * most_value_groups + 32];
  alignas(64) uint32_t mins[Min ? run_positions * most_value_groups + 32 : 1];
  int group, num_groups;

  TM_INLINE ValueScales(const StoredSide& side, int first, int count) {
    const KvSideLayout layout = value_layout(side.code, side.dim, side.block_size);
    group = values_per_scale(side.code.format, side.dim);
    num_groups = (side.dim + group - 1) / group;
    for (int i = 0; i < count * num_groups; i += 32) {
      const int at = first * num_groups + i, n = layout.num_scales - at < 32 ? layout.num_scales - at : 32;
      store_scales(scales + i, half_scales(side, layout, at, n));
      if (Min) store_scales(mins + i, half_mins(side, layout, at, n));
    }
  }
  // Elements d .. d + 31 of position first + i, whose codes are in `row`.
  template <typename Codes>
  TM_INLINE __m512h decode(Codes codes, const uint8_t* row, int i, int d, int dim) const {
    const int at = i * num_groups + (group < dim ? d / group : 0);
    __m512h scale = scale_everywhere(scales + at);
    if (group == 16 && d + 16 < dim) {
      scale = _mm512_castsi512_ph(_mm512_mask_mov_epi32(_mm512_castph_si512(scale), 0xFF00,
                                                        _mm512_castph_si512(scale_everywhere(scales + at + 1))));
    }
    return half_of<Min>(codes.load(row, d), scale, Min ? scale_everywhere(mins + at) : scale);
  }
};

// Calls work(codes, with mins) with what an encoded format's values are made of.
template <typename Work>
TM_INLINE void with_value_codes(KvCode code, Work&& work) {
  if (code.format == KvFormat::fp8_e4m3) return work(ByteHalves<Float8E4M3>(), Known<false>());
  if (code.format == KvFormat::fp8_e5m2) return work(ByteHalves<Float8E5M2>(), Known<false>());
  if (code.format == KvFormat::int8 || code.format == KvFormat::q8_0) {
    return work(ByteHalves<int8_t>(), Known<false>());
  }
  if (has_min(code)) return work(nibble_halves(code.format), Known<true>());
  work(nibble_halves(code.format), Known<false>());
}

// Positions begin .. end - 1 of a block's values to to[(i - first) * row_values + element]; halves, of whatever format.
// What lies behind a row's elements means nothing. row_values is a multiple of 32; first, a multiple of 16, is at most
// `begin`.
inline void values_as_halves(const StoredSide& side, int first, int begin, int end, int row_values, uint16_t* to) {
  if (is_plain(side.code.format)) {
    const auto* from = reinterpret_cast<const uint16_t*>(side.bytes) + static_cast<size_t>(begin) * side.dim;
    for (int position = begin; position < end; ++position, from += side.dim) {
      __builtin_memcpy(to + (position - first) * row_values, from, static_cast<size_t>(side.dim) * sizeof(uint16_t));
    }
    return;
  }
  with_value_codes(side.code, [&](auto codes, auto min) {
    const ValueScales<min.value> scales(side, first, end - first);
    const auto row_bytes = static_cast<size_t>(value_row(side.code, side.dim) * codes.bits / 8);
    for (int position = begin; position < end; ++position) {
      const uint8_t* row = side.bytes + static_cast<size_t>(position) * row_bytes;
      uint16_t* out = to + (position - first) * row_values;
      for (int d = 0; d < side.dim; d += 32) {
        const __m512h x = scales.decode(codes, row, position - first, d, side.dim);
        _mm512_storeu_si512(out + d, _mm512_castph_si512(x));
      }
    }
  });
}

}  // namespace
}  // namespace tidemill::amx
