// A few queries over a tile whose blocks have one encoded format: codes become floats in registers, the same floats
// that generic/kv_decode.h makes, and enter the same sums. Part of generic/attention.h, which includes it in its
// middle.
#pragma once

#include "compute/cpu/generic/kv_decode.h"

namespace tidemill::TM_ISA {
namespace {

// What is read next, in four runs of bytes which are fetched bit by bit while something else is computed.
struct Ahead {
  const uint8_t* at[groups];
  size_t step;  // bytes of a run for each of the steps
};

// The runs of up to four blocks' keys or values, `bytes` each.
TM_INLINE Ahead ahead_of(const uint8_t* const* blocks, int num_blocks, size_t bytes, int num_steps) {
  Ahead ahead;
  const int parts = groups / num_blocks;
  const size_t part = bytes / static_cast<size_t>(parts) + 1;
  for (int i = 0; i < groups; ++i) ahead.at[i] = blocks[i / parts] + static_cast<size_t>(i % parts) * part;
  ahead.step = part / static_cast<size_t>(num_steps) + 1;
  return ahead;
}

// Into the first-level cache: a tile of codes is small, and the loads of codes wait for it (measured: a quarter less
// time over long contexts than from the second level).
TM_INLINE void fetch_ahead(const Ahead& ahead, int step) {
  for (int i = 0; i < groups; ++i) __builtin_prefetch(ahead.at[i] + ahead.step * static_cast<size_t>(step), 0, 3);
}

// One KV head of the blocks of a tile, all of one format.
struct EncodedTile {
  StoredSide keys[groups], values[groups];  // of the group's block; a group that nobody sees has another's
  int offset[groups];                       // of the group in its block
  int begin, end;
  Ahead next_keys, next_values;
};

// Of keys: scales by position or by channel, with or without mins.
template <bool ByChannel, bool Min, typename Codes, int R, int G>
TM_INLINE void score_encoded_groups(const EncodedTile& tile, int first, Codes codes, const Queries<R>& queries,
                                    int head_dim, float (*scores)[softmax_tile]) {
  F sums[R][G];
  for (auto& query : sums) {
    for (F& sum : query) sum = f_zero();
  }
  const StoredSide* sides = tile.keys + first;
  const KvSideLayout layout = key_layout(sides[0].code, head_dim, sides[0].block_size);
  const int block_size = sides[0].block_size, row_bytes = block_size * Codes::bits / 8;
  const int group = ByChannel ? 16 : values_per_scale(sides[0].code.format, head_dim);
  const uint8_t* rows[G];
  for (int g = 0; g < G; ++g) rows[g] = sides[g].bytes + tile.offset[first + g] * Codes::bits / 8;
  alignas(64) float scales[G][16], mins[G][16];
  F scale[G], min[G];
  const Ahead next = tile.next_keys;
  for (int begin = 0, index = 0; begin < head_dim; begin += group, ++index) {
    const int end = begin + group < head_dim ? begin + group : head_dim;
    for (int g = 0; g < G; ++g) {
      const int at = ByChannel ? begin : index * block_size + tile.offset[first + g];
      scale[g] = load_scales(sides[g], layout, at);
      min[g] = Min ? load_mins(sides[g], layout, at) : f_zero();
      if (ByChannel) {
        f_store(scales[g], scale[g]);
        if (Min) f_store(mins[g], min[g]);
      }
    }
    for (int d = begin; d < end; ++d) {
      if (first == 0) fetch_ahead(next, d);
      F key[G];
      TM_UNROLL
      for (int g = 0; g < G; ++g) {
        const F code = codes.load(rows[g], 0);
        rows[g] += row_bytes;
        if (ByChannel) {
          key[g] = decoded<Min>(code, f_set(scales[g][d - begin]), Min ? f_set(mins[g][d - begin]) : f_zero());
        } else {
          key[g] = decoded<Min>(code, scale[g], min[g]);
        }
      }
      TM_UNROLL
      for (int r = 0; r < R; ++r) {
        const F element = f_set(queries.elements[r][d]);
        TM_UNROLL
        for (int g = 0; g < G; ++g) sums[r][g] = f_fma(key[g], element, sums[r][g]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) f_store(scores[r] + (first + g) * 16, sums[r][g]);
  }
}

template <bool ByChannel, bool Min, int R, typename Codes>
TM_INLINE void score_encoded_tile(const EncodedTile& tile, Codes codes, const Queries<R>& queries, int head_dim,
                                  float (*scores)[softmax_tile]) {
  constexpr int together = vectors_together(R);
  for (int g = 0; g < groups; g += together) {
    score_encoded_groups<ByChannel, Min, Codes, R, together>(tile, g, codes, queries, head_dim, scores);
  }
}

template <int R>
void score_encoded(const EncodedTile& tile, const Queries<R>& queries, int head_dim, float (*scores)[softmax_tile]) {
  const KvCode code = tile.keys[0].code;
  const bool by_channel = code.scales == KvScales::per_channel;
  if (code.format == KvFormat::fp8_e4m3) {
    return score_encoded_tile<false, false, R>(tile, ByteCodes<Float8E4M3>{}, queries, head_dim, scores);
  }
  if (code.format == KvFormat::int8 || code.format == KvFormat::q8_0) {
    if (by_channel) return score_encoded_tile<true, true, R>(tile, ByteCodes<int8_t>{}, queries, head_dim, scores);
    return score_encoded_tile<false, false, R>(tile, ByteCodes<int8_t>{}, queries, head_dim, scores);
  }
  const NibbleCodes codes = nibble_codes(code.format);
  if (by_channel) return score_encoded_tile<true, true, R>(tile, codes, queries, head_dim, scores);
  if (has_min(code)) return score_encoded_tile<false, true, R>(tile, codes, queries, head_dim, scores);
  score_encoded_tile<false, false, R>(tile, codes, queries, head_dim, scores);
}

// acc[r] += weights[r] * values for V vectors of the values' elements. scales and mins are [64][num_groups].
template <bool Min, typename Codes, int R, int V>
TM_INLINE void add_encoded_values(const EncodedTile& tile, Codes codes, const float* scales, const float* mins,
                                  const float (*weights)[softmax_tile], int column, float* acc, int acc_stride) {
  F sums[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sums[r][v] = f_load(acc + static_cast<size_t>(r) * acc_stride + column + v * 16);
  }
  const StoredSide& any = tile.values[0];
  const int row_bytes = value_row(any.code, any.dim) * Codes::bits / 8;
  const int group = values_per_scale(any.code.format, any.dim), num_groups = (any.dim + group - 1) / group;
  int scale_of[V];
  for (int v = 0; v < V; ++v) scale_of[v] = (column + v * 16) / group;
  const Ahead next = tile.next_values;
  for (int position = tile.begin; position < tile.end;) {
    const int g = position / 16;
    const uint8_t* row = tile.values[g].bytes + static_cast<size_t>(tile.offset[g] + position % 16) * row_bytes;
    const int group_end = smaller(g * 16 + 16, tile.end);
    for (; position < group_end; ++position, row += row_bytes) {
      if (column == 0) fetch_ahead(next, position - tile.begin);
      F x[V];
      TM_UNROLL
      for (int v = 0; v < V; ++v) {
        const int at = position * num_groups + scale_of[v];
        x[v] = decoded<Min>(codes.load(row, column + v * 16), f_set(scales[at]), Min ? f_set(mins[at]) : f_zero());
      }
      TM_UNROLL
      for (int r = 0; r < R; ++r) {
        const F weight = f_set(weights[r][position]);
        TM_UNROLL
        for (int v = 0; v < V; ++v) sums[r][v] = f_fma(x[v], weight, sums[r][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) f_store(acc + static_cast<size_t>(r) * acc_stride + column + v * 16, sums[r][v]);
  }
}

constexpr int most_tile_scales = softmax_tile * 16;

template <bool Min, int R, typename Codes>
TM_INLINE void add_encoded_tile(const EncodedTile& tile, Codes codes, const float (*weights)[softmax_tile], float* acc,
                                int acc_stride) {
  const StoredSide& any = tile.values[0];
  const KvSideLayout layout = value_layout(any.code, any.dim, any.block_size);
  const int group = values_per_scale(any.code.format, any.dim), num_groups = (any.dim + group - 1) / group;
  alignas(64) float scales[most_tile_scales], mins[Min ? most_tile_scales : 16];
  for (int g = tile.begin / 16; g * 16 < tile.end; ++g) {
    for (int i = 0; i < 16 * num_groups; i += 16) {
      const int from = tile.offset[g] * num_groups + i, to = g * 16 * num_groups + i;
      f_store(scales + to, load_scales(tile.values[g], layout, from));
      if (Min) f_store(mins + to, load_mins(tile.values[g], layout, from));
    }
  }
  constexpr int together = vectors_together(R);
  int column = 0;
  for (; column + together * 16 <= acc_stride; column += together * 16) {
    add_encoded_values<Min, Codes, R, together>(tile, codes, scales, mins, weights, column, acc, acc_stride);
  }
  for (; column < acc_stride; column += 16) {
    add_encoded_values<Min, Codes, R, 1>(tile, codes, scales, mins, weights, column, acc, acc_stride);
  }
}

template <int R>
void add_encoded(const EncodedTile& tile, const float (*weights)[softmax_tile], float* acc, int acc_stride) {
  const KvCode code = tile.values[0].code;
  if (code.format == KvFormat::fp8_e4m3) {
    return add_encoded_tile<false, R>(tile, ByteCodes<Float8E4M3>{}, weights, acc, acc_stride);
  }
  if (code.format == KvFormat::int8 || code.format == KvFormat::q8_0) {
    return add_encoded_tile<false, R>(tile, ByteCodes<int8_t>{}, weights, acc, acc_stride);
  }
  const NibbleCodes codes = nibble_codes(code.format);
  if (has_min(code)) return add_encoded_tile<true, R>(tile, codes, weights, acc, acc_stride);
  add_encoded_tile<false, R>(tile, codes, weights, acc, acc_stride);
}

// Whether codes of the format become floats in registers; the others' are copied as floats first.
inline bool in_registers(KvCode code, int dim) {
  switch (code.format) {
    case KvFormat::int8:
    case KvFormat::q8_0:
    case KvFormat::int4:
    case KvFormat::nvfp4:
    case KvFormat::q4_0:
      break;
    case KvFormat::fp8_e4m3:
      if (code.scales == KvScales::per_channel) return false;
      break;
    default:
      return false;
  }
  return (dim + values_per_scale(code.format, dim) - 1) / values_per_scale(code.format, dim) <=
         most_tile_scales / softmax_tile;
}

}  // namespace
}  // namespace tidemill::TM_ISA
