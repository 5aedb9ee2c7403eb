// Attention of a few queries over spans of paged keys and values. Include after an instruction set's simd.h.
//
// Work goes by tiles of 64 absolute positions, in ascending order: scores (lanes span positions, the sum over head_dim
// ascends), one rescaling of the online softmax, then values (lanes span value_dim, the sum over positions ascends).
// What a query cannot see never enters a sum, so a block's unwritten positions may hold anything.
#pragma once

#include "compute/cpu/generic/math.h"
#include "compute/cpu/kernels.h"

namespace tidemill::TM_ISA {
namespace {

using cpu::AttentionState;
using cpu::AttentionTask;
using cpu::BlockRef;
using cpu::softmax_tile;
using cpu::ValueFormat;

constexpr int chunk = 8;                   // queries whose scores stay in registers together
constexpr int groups = softmax_tile / 16;  // vectors of positions per tile

TM_INLINE int smaller(int a, int b) {
  return a < b ? a : b;
}
TM_INLINE int larger(int a, int b) {
  return a > b ? a : b;
}
TM_INLINE int value_stride(const AttentionTask& task) {
  return (task.value_dim + 15) / 16 * 16;
}

// The keys and values of one tile by groups of 16 positions, which never cross a block.
template <typename T>
struct TileView {
  const T* keys[groups];    // null where nobody sees the group; [head_dim] rows, key_stride apart
  const T* values[groups];  // [16][value_dim]
  int key_stride;
  int begin, end;  // positions in the tile that some query sees
};

// scores[r][0 .. 63] of R queries; groups nobody sees are left as they are.
template <typename T, int R, int G>
TM_INLINE void score_groups(const TileView<T>& tile, int first, const float* queries, int head_dim,
                            float (*scores)[softmax_tile]) {
  F sums[G][R];
  for (auto& group : sums) {
    for (F& sum : group) sum = f_zero();
  }
  const T* keys[G];
  for (int g = 0; g < G; ++g) keys[g] = tile.keys[first + g];
  for (int d = 0; d < head_dim; ++d) {
    TM_UNROLL
    for (int g = 0; g < G; ++g) {
      const F key = f_load(keys[g] + static_cast<size_t>(d) * tile.key_stride);
      TM_UNROLL
      for (int r = 0; r < R; ++r) sums[g][r] = f_fma(key, f_set(queries[d * chunk + r]), sums[g][r]);
    }
  }
  for (int g = 0; g < G; ++g) {
    for (int r = 0; r < R; ++r) f_store(scores[r] + (first + g) * 16, sums[g][r]);
  }
}

template <typename T, int R>
void score_tile(const TileView<T>& tile, const float* queries, int head_dim, float (*scores)[softmax_tile]) {
  constexpr int together = R <= 2 ? 4 : 2;
  for (int g = 0; g < groups; g += together) {
    bool all = true;
    for (int i = 0; i < together; ++i) all = all && tile.keys[g + i];
    if (all) {
      score_groups<T, R, together>(tile, g, queries, head_dim, scores);
      continue;
    }
    for (int i = 0; i < together; ++i) {
      if (tile.keys[g + i]) score_groups<T, R, 1>(tile, g + i, queries, head_dim, scores);
    }
  }
}

// acc[r] += weights[r] * values for V vectors of the value's elements; n of the last vector's lanes exist.
template <typename T, int R, int V>
TM_INLINE void add_values(const TileView<T>& tile, const float (*weights)[softmax_tile], const float* corrections,
                          int value_dim, int column, int n, float* acc, int acc_stride) {
  F sums[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      sums[r][v] = f_mul(f_load(acc + static_cast<size_t>(r) * acc_stride + column + v * 16), f_set(corrections[r]));
    }
  }
  for (int position = tile.begin; position < tile.end; ++position) {
    const T* value = tile.values[position / 16] + static_cast<size_t>(position % 16) * value_dim + column;
    TM_UNROLL
    for (int v = 0; v < V; ++v) {
      const F x = n == 16 ? f_load(value + v * 16) : f_load_n(value + v * 16, n);
      TM_UNROLL
      for (int r = 0; r < R; ++r) sums[r][v] = f_fma(x, f_set(weights[r][position]), sums[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) f_store(acc + static_cast<size_t>(r) * acc_stride + column + v * 16, sums[r][v]);
  }
}

template <typename T, int R>
void value_tile(const TileView<T>& tile, const float (*weights)[softmax_tile], const float* corrections, int value_dim,
                float* acc, int acc_stride) {
  constexpr int together = R <= 4 ? 4 : 2;
  int column = 0;
  for (; column + together * 16 <= value_dim; column += together * 16) {
    add_values<T, R, together>(tile, weights, corrections, value_dim, column, 16, acc, acc_stride);
  }
  for (; column < value_dim; column += 16) {
    add_values<T, R, 1>(tile, weights, corrections, value_dim, column, smaller(16, value_dim - column), acc,
                        acc_stride);
  }
}

// Turns a query's scores into exp(score - largest); sees positions first .. end - 1 of the tile. Returns the factor for
// what was summed before.
TM_INLINE float softmax_step(float* scores, int first, int end, float softcap, float* largest, float* sums) {
  const F minus_infinity = f_set(-__builtin_inff());
  F s[groups];
  F top = minus_infinity;
  for (int g = 0; g < groups; ++g) {
    s[g] = f_load(scores + g * 16);
    if (softcap > 0) s[g] = f_softcap(s[g], softcap);
    const int lo = smaller(larger(first - g * 16, 0), 16), hi = smaller(larger(end - g * 16, 0), 16);
    s[g] = f_keep(s[g], lo, hi, minus_infinity);
    top = f_max(top, s[g]);
  }
  const float tile_largest = f_largest(top);
  const float next = tile_largest > *largest ? tile_largest : *largest;
  // Nothing seen so far, or nothing but minus infinities: nothing to add.
  const bool empty = !(next > -__builtin_inff());
  const F base = f_set(empty ? 0.0f : next);
  for (int g = 0; g < groups; ++g) {
    s[g] = f_exp(f_sub(s[g], base));
    f_store(scores + g * 16, s[g]);
  }
  float lane[16];
  f_store(lane, f_exp(f_sub(f_set(*largest), base)));
  const float correction = empty ? 1.0f : lane[0];
  f_store(sums, f_fma(f_load(sums), f_set(correction), f_add(f_add(s[0], s[1]), f_add(s[2], s[3]))));
  *largest = next;
  return correction;
}

template <typename T, int R>
void chunk_of_queries(const AttentionTask& task, const TileView<T>& tile, int query, int tile_start,
                      const AttentionState& out) {
  alignas(64) float scores[R][softmax_tile] = {};
  float corrections[R];
  const float* queries = task.packed_queries + static_cast<size_t>(query) * task.head_dim;
  score_tile<T, R>(tile, queries, task.head_dim, scores);
  for (int r = 0; r < R; ++r) {
    const int position = task.first_position + (query + r) / task.group;
    const int first = task.window > 0 ? larger(position - task.window + 1, 0) : 0;
    corrections[r] =
        softmax_step(scores[r], larger(first - tile_start, tile.begin), smaller(position + 1 - tile_start, tile.end),
                     task.softcap, out.largest + query + r, out.sums + (query + r) * 16);
  }
  const int stride = value_stride(task);
  value_tile<T, R>(tile, scores, corrections, task.value_dim, out.acc + static_cast<size_t>(query) * stride, stride);
}

template <typename T>
void queries_of_tile(const AttentionTask& task, const TileView<T>& tile, int tile_start, const AttentionState& out) {
  const int num_queries = task.num_rows * task.group;
  for (int query = 0; query < num_queries; query += chunk) {
    const int count = smaller(chunk, num_queries - query);
    const int last_position = task.first_position + (query + count - 1) / task.group;
    const int first_position = task.first_position + query / task.group;
    if (tile_start + tile.begin > last_position) continue;
    if (task.window > 0 && tile_start + tile.end <= first_position - task.window + 1) continue;
    switch (count) {
      case 1:
        chunk_of_queries<T, 1>(task, tile, query, tile_start, out);
        break;
      case 2:
        chunk_of_queries<T, 2>(task, tile, query, tile_start, out);
        break;
      case 3:
        chunk_of_queries<T, 3>(task, tile, query, tile_start, out);
        break;
      case 4:
        chunk_of_queries<T, 4>(task, tile, query, tile_start, out);
        break;
      case 5:
        chunk_of_queries<T, 5>(task, tile, query, tile_start, out);
        break;
      case 6:
        chunk_of_queries<T, 6>(task, tile, query, tile_start, out);
        break;
      case 7:
        chunk_of_queries<T, 7>(task, tile, query, tile_start, out);
        break;
      default:
        chunk_of_queries<T, 8>(task, tile, query, tile_start, out);
        break;
    }
  }
}

// Position 16 * group of the tile in its block.
struct GroupPlace {
  const BlockRef* block;
  int offset;
};

TM_INLINE GroupPlace place_of(const AttentionTask& task, int position) {
  return {task.blocks + (position / task.block_size - task.first_block), position % task.block_size};
}

template <typename T>
TM_INLINE void view_in_place(const AttentionTask& task, int tile_start, TileView<T>& tile) {
  tile.key_stride = task.block_size;
  for (int g = tile.begin / 16; g * 16 < tile.end; ++g) {
    const GroupPlace place = place_of(task, tile_start + g * 16);
    tile.keys[g] = static_cast<const T*>(place.block->keys) + place.offset;
    tile.values[g] = static_cast<const T*>(place.block->values) + static_cast<size_t>(place.offset) * task.value_dim;
  }
}

template <typename T>
TM_INLINE void widen_group(const AttentionTask& task, const GroupPlace& place, int count, float* keys, float* values) {
  const T* from = static_cast<const T*>(place.block->keys) + place.offset;
  for (int d = 0; d < task.head_dim; ++d) f_store(keys + d * softmax_tile, f_load(from + d * task.block_size));
  const T* value = static_cast<const T*>(place.block->values) + static_cast<size_t>(place.offset) * task.value_dim;
  const int total = count * task.value_dim;
  for (int i = 0; i < total; i += 16)
    f_store_n(values + i, f_load_n(value + i, smaller(16, total - i)), smaller(16, total - i));
}

// Copies the tile as floats: for many queries, which would convert it again and again, and for mixed formats.
inline void view_widened(const AttentionTask& task, int tile_start, TileView<float>& tile) {
  float* all_values = task.tile + static_cast<size_t>(softmax_tile) * task.head_dim;
  tile.key_stride = softmax_tile;
  for (int g = tile.begin / 16; g * 16 < tile.end; ++g) {
    const GroupPlace place = place_of(task, tile_start + g * 16);
    float* keys = task.tile + g * 16;
    float* values = all_values + static_cast<size_t>(g) * 16 * task.value_dim;
    const int count = smaller(16, tile.end - g * 16);
    if (place.block->format == ValueFormat::fp32) widen_group<float>(task, place, count, keys, values);
    if (place.block->format == ValueFormat::fp16) widen_group<Half>(task, place, count, keys, values);
    if (place.block->format == ValueFormat::bf16) widen_group<BFloat>(task, place, count, keys, values);
    tile.keys[g] = keys;
    tile.values[g] = values;
  }
}

template <typename T>
void tile_in_place(const AttentionTask& task, int tile_start, int begin, int end, const AttentionState& out) {
  TileView<T> tile = {};
  tile.begin = begin;
  tile.end = end;
  view_in_place(task, tile_start, tile);
  queries_of_tile(task, tile, tile_start, out);
}

inline bool one_format(const AttentionTask& task, int first_position, int end_position, ValueFormat format) {
  const int last = (end_position - 1) / task.block_size;
  for (int b = first_position / task.block_size; b <= last; ++b) {
    if (task.blocks[b - task.first_block].format != format) return false;
  }
  return true;
}

inline void attend_tile(const AttentionTask& task, int tile_start, int begin, int end, const AttentionState& out) {
  const ValueFormat format = place_of(task, tile_start + begin).block->format;
  const bool many = task.num_rows * task.group > chunk && format != ValueFormat::fp32;
  if (many || !one_format(task, tile_start + begin, tile_start + end, format)) {
    TileView<float> tile = {};
    tile.begin = begin;
    tile.end = end;
    view_widened(task, tile_start, tile);
    return queries_of_tile(task, tile, tile_start, out);
  }
  if (format == ValueFormat::fp32) return tile_in_place<float>(task, tile_start, begin, end, out);
  if (format == ValueFormat::fp16) return tile_in_place<Half>(task, tile_start, begin, end, out);
  return tile_in_place<BFloat>(task, tile_start, begin, end, out);
}

// e^(x - base), 0 for x = minus infinity.
TM_INLINE float weight_of(float x, float base) {
  float lane[16];
  f_store(lane, f_exp(f_set(x - base)));
  return lane[0];
}

}  // namespace

void pack_queries(const AttentionTask& task) {
  const int num_queries = task.num_rows * task.group;
  for (int query = 0; query < num_queries; ++query) {
    const float* from = task.queries + query / task.group * task.row_stride + query % task.group * task.head_dim;
    float* to = task.packed_queries + static_cast<size_t>(query / chunk) * chunk * task.head_dim + query % chunk;
    for (int d = 0; d < task.head_dim; ++d) to[d * chunk] = from[d] * task.scale;
  }
}

void attend(const AttentionTask& task, int32_t begin, int32_t end, const AttentionState& out) {
  const int num_queries = task.num_rows * task.group;
  for (int i = 0; i < num_queries; ++i) out.largest[i] = -__builtin_inff();
  for (int i = 0; i < num_queries * 16; ++i) out.sums[i] = 0;
  for (int i = 0; i < num_queries * value_stride(task); ++i) out.acc[i] = 0;
  const int seen_end = smaller(end, task.first_position + task.num_rows);
  const int seen_begin = task.window > 0 ? larger(begin, task.first_position - task.window + 1) : begin;
  for (int start = seen_begin / softmax_tile * softmax_tile; start < seen_end; start += softmax_tile) {
    attend_tile(task, start, larger(seen_begin - start, 0), smaller(seen_end - start, softmax_tile), out);
  }
}

void merge(const AttentionTask& task, const AttentionState& into, const AttentionState& next) {
  const int stride = value_stride(task);
  for (int query = 0; query < task.num_rows * task.group; ++query) {
    if (!(next.largest[query] > -__builtin_inff())) continue;
    const bool first = !(into.largest[query] > -__builtin_inff());
    const float top = first || next.largest[query] > into.largest[query] ? next.largest[query] : into.largest[query];
    const F old_weight = f_set(weight_of(into.largest[query], top)),
            weight = f_set(weight_of(next.largest[query], top));
    into.largest[query] = top;
    float* sums = into.sums + query * 16;
    f_store(sums, f_fma(f_load(next.sums + query * 16), weight, f_mul(f_load(sums), old_weight)));
    for (int i = query * stride; i < (query + 1) * stride; i += 16) {
      f_store(into.acc + i, f_fma(f_load(next.acc + i), weight, f_mul(f_load(into.acc + i), old_weight)));
    }
  }
}

void finish(const AttentionTask& task, const AttentionState& state) {
  const int stride = value_stride(task);
  for (int query = 0; query < task.num_rows * task.group; ++query) {
    const int head = query % task.group;
    float sum = f_sum(f_load(state.sums + query * 16));
    float weight = 1.0f;
    if (task.sinks) {
      const float sink = task.sinks[head];
      const float top = sink > state.largest[query] ? sink : state.largest[query];
      weight = weight_of(state.largest[query], top);
      sum = sum * weight + weight_of(sink, top);
    }
    const F factor = f_set(weight / sum);
    float* to = task.output + query / task.group * task.output_stride + static_cast<int64_t>(head) * task.value_dim;
    for (int i = 0; i < task.value_dim; i += 16) {
      const int n = smaller(16, task.value_dim - i);
      f_store_n(to + i, f_mul(f_load(state.acc + static_cast<size_t>(query) * stride + i), factor), n);
    }
  }
}

}  // namespace tidemill::TM_ISA
