// Keys and values of 32 positions (a run) as tiles of BF16 pairs, which the matrix unit multiplies.
//
// A tile of keys is [16 pairs of elements][16 positions][2], one of values [16 pairs of positions][16 elements][2].
// Halves become BF16 as those of weights do (unpack.h): 2^-112 of what they are, and zero below 2^-14, which is less
// than the rounding of a value of 0.03; numbers that are BF16 already stay what they are (the unit takes subnormal ones
// for zero).
//
// Interleaving two vectors of 32 within their lanes gives the rows of two tiles at once, low and high. Column j of the
// low one is 8 * (j / 4) + j % 4 of the 32, that of the high one 4 more. So come positions in scores, and elements in
// sums of values. Both rows lie side by side:
//   keys    [pairs of elements][2: low, high][32]
//   values  [16 pairs of positions][chunks of 32 elements][2: low, high][32]
// make_key_tiles and make_value_tiles call between() now and then, where the matrix unit is to be given something to do
// meanwhile: keys every 32 elements, values twice a run.
#pragma once

#include "compute/cpu/amx/kv_halves.h"
#include "compute/cpu/amx/unpack.h"

namespace tidemill::amx {
namespace {

// The one block, or the two of 16 positions, that hold a run. What is read at a place of them is read there of the run
// that is `ahead` soon; that is fetched meanwhile.
struct RunSides {
  StoredSide first, second;
  const uint8_t *ahead_first, *ahead_second;
  int offset;  // of the run in the first block
  bool two;
};

// Bytes from where something lies to what lies there in another block.
TM_INLINE ptrdiff_t way_to(const uint8_t* ahead, const void* from) {
  return ahead - static_cast<const uint8_t*>(from);
}
// Into the second-level cache: the first has few places for lines that are on their way.
TM_INLINE void fetch(const void* from, ptrdiff_t way) {
  __builtin_prefetch(static_cast<const uint8_t*>(from) + way, 0, 2);
}

template <bool Halves>
TM_INLINE void interleave(__m512i a, __m512i b, uint16_t* to) {
  if constexpr (Halves) {
    a = pairs_of_halves(_mm512_castsi512_ph(a));
    b = pairs_of_halves(_mm512_castsi512_ph(b));
  }
  _mm512_store_si512(to, _mm512_unpacklo_epi16(a, b));
  _mm512_store_si512(to + 32, _mm512_unpackhi_epi16(a, b));
}

// A row of 32 positions, in one piece or in two of 16.
template <bool Two>
TM_INLINE __m512i key_row(const uint16_t* first, const uint16_t* second) {
  if constexpr (!Two) return _mm512_loadu_si512(first);
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second)),
                            1);
}

struct KeyRows {
  const uint16_t *first, *second;  // second: of positions 16 on, where they are in two pieces
  ptrdiff_t way_first, way_second;
  size_t stride;
};

template <bool Halves, bool Two, typename Between>
TM_INLINE void interleave_keys(const KeyRows& rows, int head_dim, uint16_t* tiles, Between&& between) {
  const uint16_t *first = rows.first, *second = rows.second;
  TM_UNROLL_4
  for (int d = 0; d < head_dim; d += 2) {
    if (d % 32 == 0) between();
    const uint16_t *next = first + rows.stride, *next_second = second + rows.stride;
    fetch(first, rows.way_first);
    if (Two) {
      fetch(second, rows.way_second);
    } else {
      fetch(next, rows.way_first);
    }
    interleave<Halves>(key_row<Two>(first, second), key_row<Two>(next, next_second), tiles);
    first = next + rows.stride;
    second = next_second + rows.stride;
    tiles += 64;
  }
}

TM_INLINE bool sixteen_bits(KvFormat format) {
  return format == KvFormat::fp16 || format == KvFormat::bf16;
}

// Encoded keys of one block of at least 32 positions.
template <bool ByChannel, bool Min, typename Codes, typename Between>
TM_INLINE void decode_and_interleave_keys(const RunSides& keys, Codes codes, uint16_t* tiles, Between&& between) {
  const ptrdiff_t way = way_to(keys.ahead_first, keys.first.bytes);
  int row_pair = 0;
  for_key_rows<32, ByChannel, Min>(keys.first, codes, keys.offset, [&](const uint8_t* row, __m512h a, __m512h b) {
    if (row_pair++ % 16 == 0) between();
    fetch(row, way);
    interleave<true>(_mm512_castph_si512(a), _mm512_castph_si512(b), tiles);
    tiles += 64;
  });
}

// scratch: [head_dim][32] halves.
template <typename Between>
TM_INLINE void make_key_tiles(const RunSides& keys, uint16_t* scratch, uint16_t* tiles, Between&& between) {
  const StoredSide &a = keys.first, &b = keys.second;
  if (sixteen_bits(a.code.format) && (!keys.two || sixteen_bits(b.code.format))) {
    const KeyRows rows = {reinterpret_cast<const uint16_t*>(a.bytes) + keys.offset,
                          reinterpret_cast<const uint16_t*>(b.bytes), way_to(keys.ahead_first, a.bytes),
                          way_to(keys.ahead_second, b.bytes), static_cast<size_t>(a.block_size)};
    const bool halves = a.code.format == KvFormat::fp16;
    if (halves && keys.two) interleave_keys<true, true>(rows, a.dim, tiles, between);
    if (halves && !keys.two) interleave_keys<true, false>(rows, a.dim, tiles, between);
    if (!halves && keys.two) interleave_keys<false, true>(rows, a.dim, tiles, between);
    if (!halves && !keys.two) interleave_keys<false, false>(rows, a.dim, tiles, between);
  } else if (!keys.two) {
    with_key_codes(a.code, [&](auto codes, auto by_channel, auto min) {
      decode_and_interleave_keys<by_channel.value, min.value>(keys, codes, tiles, between);
    });
  } else {
    keys_as_halves(a, keys.offset, scratch);
    keys_as_halves(b, 0, scratch + 16);
    interleave_keys<true, false>({scratch, scratch, 0, 0, run_positions}, a.dim, tiles, between);
  }
  for (int d = a.dim / 2; d < (a.dim + 31) / 32 * 16; ++d) {
    _mm512_store_si512(tiles + d * 64, _mm512_setzero_si512());
    _mm512_store_si512(tiles + d * 64 + 32, _mm512_setzero_si512());
  }
}

TM_INLINE __mmask32 elements_from(int d, int dim) {
  return dim - d >= 32 ? ~__mmask32{0} : (__mmask32{1} << (dim - d)) - 1;
}

struct ValueRows {
  const uint16_t *first, *second;  // of positions 0 and 16 of the run
  ptrdiff_t way_first, way_second;
  int stride, dim;
};

// Positions of 16.
template <bool Halves>
TM_INLINE void interleave_half_run(const uint16_t* row, ptrdiff_t way, int stride, int dim, uint16_t* tiles) {
  for (int pair = 0; pair < 8; ++pair, row += 2 * stride) {
    int d = 0;
    for (; d + 32 <= dim; d += 32, tiles += 64) {
      fetch(row + d, way);
      fetch(row + stride + d, way);
      interleave<Halves>(_mm512_loadu_si512(row + d), _mm512_loadu_si512(row + stride + d), tiles);
    }
    if (d < dim) {
      const __mmask32 mask = elements_from(d, dim);
      interleave<Halves>(_mm512_maskz_loadu_epi16(mask, row + d), _mm512_maskz_loadu_epi16(mask, row + stride + d),
                         tiles);
      tiles += 64;
    }
  }
}

// Nobody sees the positions before `begin` and from `end` on. Their weights are zero, but nobody knows what lies there:
// they become zero, too.
template <bool Halves>
void interleave_some_values(const ValueRows& rows, int begin, int end, uint16_t* tiles) {
  for (int position = 0; position < run_positions; position += 2) {
    const uint16_t* row =
        position < 16 ? rows.first + position * rows.stride : rows.second + (position - 16) * rows.stride;
    for (int d = 0; d < rows.dim; d += 32, tiles += 64) {
      const __mmask32 mask = elements_from(d, rows.dim);
      const __mmask32 a = position >= begin && position < end ? mask : 0;
      const __mmask32 b = position + 1 >= begin && position + 1 < end ? mask : 0;
      interleave<Halves>(_mm512_maskz_loadu_epi16(a, row + d), _mm512_maskz_loadu_epi16(b, row + rows.stride + d),
                         tiles);
    }
  }
}

template <bool Halves, typename Between>
TM_INLINE void interleave_values(const ValueRows& rows, int begin, int end, uint16_t* tiles, Between&& between) {
  between();
  if (begin > 0 || end < run_positions) {
    interleave_some_values<Halves>(rows, begin, end, tiles);
    return between();
  }
  interleave_half_run<Halves>(rows.first, rows.way_first, rows.stride, rows.dim, tiles);
  tiles += (rows.dim + 31) / 32 * 8 * 64;
  between();
  interleave_half_run<Halves>(rows.second, rows.way_second, rows.stride, rows.dim, tiles);
}

// Encoded values of a whole run of one block.
template <bool Min, typename Codes, typename Between>
TM_INLINE void decode_and_interleave_values(const RunSides& values, Codes codes, uint16_t* tiles, Between&& between) {
  const StoredSide& side = values.first;
  const ptrdiff_t way = way_to(values.ahead_first, side.bytes);
  const ValueScales<Min> scales(side, values.offset, run_positions);
  const auto row_bytes = static_cast<size_t>(value_row(side.code, side.dim) * Codes::bits / 8);
  const uint8_t* row = side.bytes + static_cast<size_t>(values.offset) * row_bytes;
  for (int i = 0; i < run_positions; i += 2, row += 2 * row_bytes) {
    if (i % 16 == 0) between();
    for (size_t line = 0; line < 2 * row_bytes; line += 64) fetch(row + line, way);
    for (int d = 0; d < side.dim; d += 32, tiles += 64) {
      interleave<true>(_mm512_castph_si512(scales.decode(codes, row, i, d, side.dim)),
                       _mm512_castph_si512(scales.decode(codes, row + row_bytes, i + 1, d, side.dim)), tiles);
    }
  }
}

// scratch: [32][dim rounded up to 32] halves.
template <typename Between>
TM_INLINE void make_value_tiles(const RunSides& values, int begin, int end, uint16_t* scratch, uint16_t* tiles,
                                Between&& between) {
  const StoredSide &a = values.first, &b = values.second;
  const int dim = a.dim, offset = values.offset;
  if (sixteen_bits(a.code.format) && (!values.two || sixteen_bits(b.code.format))) {
    const uint16_t* first = reinterpret_cast<const uint16_t*>(a.bytes) + offset * dim;
    const ptrdiff_t way = way_to(values.ahead_first, a.bytes);
    ValueRows rows = {first, first + 16 * dim, way, way, dim, dim};
    if (values.two) {
      rows.second = reinterpret_cast<const uint16_t*>(b.bytes);
      rows.way_second = way_to(values.ahead_second, b.bytes);
    }
    if (a.code.format == KvFormat::fp16) return interleave_values<true>(rows, begin, end, tiles, between);
    return interleave_values<false>(rows, begin, end, tiles, between);
  }
  if (!values.two && begin == 0 && end == run_positions) {
    return with_value_codes(
        a.code, [&](auto codes, auto min) { decode_and_interleave_values<min.value>(values, codes, tiles, between); });
  }
  const int stride = (dim + 31) / 32 * 32;
  uint16_t* second = scratch + 16 * stride;
  const int in_first = values.two && end > 16 ? 16 : end;
  if (begin < in_first) values_as_halves(a, offset, offset + begin, offset + in_first, stride, scratch);
  if (values.two && end > 16) values_as_halves(b, 0, begin > 16 ? begin - 16 : 0, end - 16, stride, second);
  interleave_values<true>({scratch, second, 0, 0, stride, dim}, begin, end, tiles, between);
}

}  // namespace
}  // namespace tidemill::amx
