// Attention of a few queries over spans of paged keys and values. Include after an instruction set's simd.h.
//
// Work goes by tiles of 64 absolute positions, in ascending order: scores (lanes span positions, the sum over head_dim
// ascends), one step of the online softmax, then values (lanes span value_dim, the sum over positions ascends). Scores
// are exponents of two. What a query cannot see never enters a sum, so a block's unwritten positions may hold anything.
//
// A few queries (decode) read blocks of a plain format where they lie, and fetch the next tile while they compute. More
// of them (prompts) share a copy of the tile as floats, as do all that read encoded blocks. Both make the same sums in
// the same order.
#pragma once

#include "compute/cpu/generic/attention_state.h"

namespace tidemill::TM_ISA {
namespace {

constexpr int chunk = 6;                   // queries whose sums stay in registers together
constexpr int groups = softmax_tile / 16;  // vectors of positions per tile

// Sums of `queries` queries by so many vectors, the vectors and a query's element fit into the registers.
constexpr int vectors_together(int queries) {
  const int fit = (float_registers - 1) / (queries + 1);
  return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

// The keys and values of one tile by groups of 16 positions, which never cross a block.
template <typename T>
struct TileView {
  const T* keys[groups];    // null where nobody sees the group; [head_dim] rows, key_stride apart
  const T* values[groups];  // [16][value_dim]
  int key_stride;
  int begin, end;                // positions in the tile that some query sees
  const T* next_keys[groups];    // the tile that this thread reads next, where that is known: to be fetched
  const T* next_values[groups];  // ahead of time
};

// Queries of one chunk, where they lie.
template <int R>
struct Queries {
  const float* elements[R];  // [head_dim] each
  int position[R];
};

// Lines of 64 bytes that begin in 16 values: every vector of floats, every other one of halves.
template <typename T>
constexpr int vectors_per_line = sizeof(T) == 4 ? 1 : 2;

// Asks for a line, into the second-level cache: the first has few places for lines that are on their way.
TM_INLINE void fetch(const void* line) {
  __builtin_prefetch(line, 0, 2);
}

// scores[r][0 .. 63] of R queries, for the G groups from `first` on.
template <typename T, bool Fetch, int R, int G>
TM_INLINE void score_groups(const TileView<T>& tile, int first, const Queries<R>& queries, int head_dim,
                            float (*scores)[softmax_tile]) {
  F sums[R][G];
  for (auto& query : sums) {
    for (F& sum : query) sum = f_zero();
  }
  const T* keys[G];
  for (int g = 0; g < G; ++g) keys[g] = tile.keys[first + g];
  const size_t stride = static_cast<size_t>(Fetch ? tile.key_stride : softmax_tile);
  TM_UNROLL_4
  for (int d = 0; d < head_dim; ++d) {
    F key[G];
    TM_UNROLL
    for (int g = 0; g < G; ++g) key[g] = f_load(keys[g] + d * stride);
    if (Fetch && first == 0) {
      TM_UNROLL
      for (int g = 0; g < groups; g += vectors_per_line<T>) fetch(tile.next_keys[g] + d * stride);
    }
    TM_UNROLL
    for (int r = 0; r < R; ++r) {
      const F element = f_set(queries.elements[r][d]);
      TM_UNROLL
      for (int g = 0; g < G; ++g) sums[r][g] = f_fma(key[g], element, sums[r][g]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) f_store(scores[r] + (first + g) * 16, sums[r][g]);
  }
}

template <typename T, bool Fetch, int R>
TM_INLINE void score_tile(const TileView<T>& tile, const Queries<R>& queries, int head_dim,
                          float (*scores)[softmax_tile]) {
  constexpr int together = vectors_together(R);
  for (int g = 0; g < groups; g += together) {
    bool all = true;
    for (int i = 0; i < together; ++i) all = all && tile.keys[g + i];
    if (all) {
      score_groups<T, Fetch, R, together>(tile, g, queries, head_dim, scores);
      continue;
    }
    for (int i = 0; i < together; ++i) {
      if (tile.keys[g + i]) {
        score_groups<T, Fetch, R, 1>(tile, g + i, queries, head_dim, scores);
      } else {
        for (int r = 0; r < R; ++r) f_store(scores[r] + (g + i) * 16, f_zero());
      }
    }
  }
}

// acc[r] += weights[r] * values for V vectors of the value's elements; n of the last vector's lanes exist.
template <typename T, bool Fetch, int R, int V>
TM_INLINE void add_values(const TileView<T>& tile, const float (*weights)[softmax_tile], int value_dim, int column,
                          int n, float* acc, int acc_stride) {
  F sums[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sums[r][v] = f_load(acc + static_cast<size_t>(r) * acc_stride + column + v * 16);
  }
  for (int position = tile.begin; position < tile.end;) {
    const int group = position / 16;
    const size_t offset = static_cast<size_t>(position % 16) * value_dim + column;
    const T* value = tile.values[group] + offset;
    const T* next = Fetch ? tile.next_values[group] + offset : nullptr;
    const int group_end = smaller(group * 16 + 16, tile.end);
    for (; position < group_end; ++position, value += value_dim) {
      F x[V];
      TM_UNROLL
      for (int v = 0; v < V; ++v) x[v] = n == 16 ? f_load(value + v * 16) : f_load_n(value + v * 16, n);
      if (Fetch) {
        TM_UNROLL
        for (int v = 0; v < V; v += vectors_per_line<T>) fetch(next + v * 16);
        next += value_dim;
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

template <typename T, bool Fetch, int R>
TM_INLINE void value_tile(const TileView<T>& tile, const float (*weights)[softmax_tile], int value_dim, float* acc,
                          int acc_stride) {
  constexpr int together = vectors_together(R);
  int column = 0;
  for (; column + together * 16 <= value_dim; column += together * 16) {
    add_values<T, Fetch, R, together>(tile, weights, value_dim, column, 16, acc, acc_stride);
  }
  for (; column + 16 <= value_dim; column += 16) {
    add_values<T, Fetch, R, 1>(tile, weights, value_dim, column, 16, acc, acc_stride);
  }
  if (column < value_dim) {
    add_values<T, Fetch, R, 1>(tile, weights, value_dim, column, value_dim - column, acc, acc_stride);
  }
}

// Turns the scores of a query that sees positions first .. end - 1 of the tile into weights 2^(scale * score - base),
// and adds them to its sums.
TM_INLINE void softmax_step(float* scores, int first, int end, const AttentionTask& task, float* base, float* sums,
                            float* acc) {
  F s[groups];
  for (int g = 0; g < groups; ++g) s[g] = f_load(scores + g * 16);
  if (task.softcap > 0) {
    for (int g = 0; g < groups; ++g) s[g] = f_softcap(f_mul(s[g], f_set(task.scale)), task.softcap);
  }
  if (first > 0 || end < softmax_tile) {
    for (int g = 0; g < groups; ++g) {
      const int lo = smaller(larger(first - g * 16, 0), 16), hi = smaller(larger(end - g * 16, 0), 16);
      s[g] = f_keep(s[g], lo, hi, f_set(-__builtin_inff()));
    }
  }
  const F scale = f_set(task.softcap > 0 ? log2_e : task.scale * log2_e);
  const F top = f_mul(f_max(f_max(s[0], s[1]), f_max(s[2], s[3])), scale);
  if (f_any_above(top, f_set(*base))) rescale(f_largest(top), base, sums, acc, value_stride(task));
  const F minus_base = f_set(-*base);
  for (int g = 0; g < groups; ++g) {
    s[g] = f_exp2(f_fma(s[g], scale, minus_base));
    f_store(scores + g * 16, s[g]);
  }
  f_store(sums, f_add(f_load(sums), f_add(f_add(s[0], s[1]), f_add(s[2], s[3]))));
}

template <int R>
TM_INLINE Queries<R> queries_of(const AttentionTask& task, int query) {
  Queries<R> out;
  int row = query / task.group, head = query % task.group;
  for (int r = 0; r < R; ++r) {
    out.elements[r] = task.queries + row * task.row_stride + static_cast<int64_t>(head) * task.head_dim;
    out.position[r] = task.first_position + row;
    if (++head == task.group) {
      head = 0;
      ++row;
    }
  }
  return out;
}

// The query's scores become weights.
template <int R>
TM_INLINE void softmax_of_queries(const AttentionTask& task, const Queries<R>& queries, int query, int tile_start,
                                  int tile_begin, int tile_end, float (*scores)[softmax_tile],
                                  const AttentionState& out) {
  const int stride = value_stride(task);
  float* acc = out.acc + static_cast<size_t>(query) * stride;
  for (int r = 0; r < R; ++r) {
    const int first = task.window > 0 ? larger(queries.position[r] - task.window + 1 - tile_start, tile_begin) : 0;
    softmax_step(scores[r], larger(first, tile_begin), smaller(queries.position[r] + 1 - tile_start, tile_end), task,
                 out.bases + query + r, out.sums + (query + r) * 16, acc + static_cast<size_t>(r) * stride);
  }
}

template <typename T, bool Fetch, int R>
void chunk_of_queries(const AttentionTask& task, const TileView<T>& tile, int query, int tile_start,
                      const AttentionState& out) {
  alignas(64) float scores[R][softmax_tile];
  const Queries<R> queries = queries_of<R>(task, query);
  const int stride = value_stride(task);
  float* acc = out.acc + static_cast<size_t>(query) * stride;
  score_tile<T, Fetch, R>(tile, queries, task.head_dim, scores);
  softmax_of_queries<R>(task, queries, query, tile_start, tile.begin, tile.end, scores, out);
  value_tile<T, Fetch, R>(tile, scores, task.value_dim, acc, stride);
}

}  // namespace
}  // namespace tidemill::TM_ISA

#include "compute/cpu/generic/attention_encoded.h"

namespace tidemill::TM_ISA {
namespace {

template <int R>
void encoded_queries(const AttentionTask& task, const EncodedTile& tile, int tile_start, const AttentionState& out) {
  alignas(64) float scores[R][softmax_tile];
  const Queries<R> queries = queries_of<R>(task, 0);
  score_encoded<R>(tile, queries, task.head_dim, scores);
  softmax_of_queries<R>(task, queries, 0, tile_start, tile.begin, tile.end, scores, out);
  add_encoded<R>(tile, scores, out.acc, value_stride(task));
}

template <typename T, bool Fetch>
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
        chunk_of_queries<T, Fetch, 1>(task, tile, query, tile_start, out);
        break;
      case 2:
        chunk_of_queries<T, Fetch, 2>(task, tile, query, tile_start, out);
        break;
      case 3:
        chunk_of_queries<T, Fetch, 3>(task, tile, query, tile_start, out);
        break;
      case 4:
        chunk_of_queries<T, Fetch, 4>(task, tile, query, tile_start, out);
        break;
      case 5:
        chunk_of_queries<T, Fetch, 5>(task, tile, query, tile_start, out);
        break;
      default:
        chunk_of_queries<T, Fetch, 6>(task, tile, query, tile_start, out);
        break;
    }
  }
}

template <typename T>
TM_INLINE const T* keys_at(const GroupPlace& place) {
  return static_cast<const T*>(place.block->keys) + place.offset;
}
template <typename T>
TM_INLINE const T* values_at(const GroupPlace& place, int value_dim) {
  return static_cast<const T*>(place.block->values) + static_cast<size_t>(place.offset) * value_dim;
}

// Where the thread reads next: the following tile of this span, of which positions before span_end are seen, or what
// the task says comes after the span. With neither, the tile that it has: fetching what is there costs little.
template <typename T>
TM_INLINE void look_ahead(const AttentionTask& task, int tile_start, int span_end, TileView<T>& tile) {
  const int next_start = tile_start + softmax_tile;
  GroupPlace place = place_of(task, tile_start + tile.begin);
  for (int g = 0; g < groups; ++g) {
    const int position = next_start + g * 16;
    if (position < span_end) {
      place = place_of(task, position);
    } else if (next_start >= span_end && task.upcoming) {
      place = {task.upcoming + g * 16 / task.block_size, g * 16 % task.block_size};
    }
    tile.next_keys[g] = keys_at<T>(place);
    tile.next_values[g] = values_at<T>(place, task.value_dim);
  }
}

// Makes floats of the tile: for many queries, which would convert it again and again, and for encoded or mixed formats.
inline void view_widened(const AttentionTask& task, int tile_start, TileView<float>& tile) {
  float* all_values = task.scratch + static_cast<size_t>(softmax_tile) * task.head_dim;
  const int first_group = tile.begin / 16, end_group = (tile.end + 15) / 16;
  for (int g = first_group; g < end_group;) {
    const GroupPlace place = place_of(task, tile_start + g * 16);
    const BlockRef& block = *place.block;
    const int in_block = smaller((task.block_size - place.offset) / 16, end_group - g);
    const StoredSide keys = {static_cast<const uint8_t*>(block.keys), block.key_code, task.head_dim, task.block_size};
    const StoredSide values = {static_cast<const uint8_t*>(block.values), block.value_code, task.value_dim,
                               task.block_size};
    load_keys(keys, place.offset, in_block * 16, task.scratch + g * 16, softmax_tile);
    float* tile_values = all_values + static_cast<size_t>(g) * 16 * task.value_dim;
    load_values(values, place.offset, smaller(in_block * 16, tile.end - g * 16), tile_values);
    for (const int end = g + in_block; g < end; ++g) {
      tile.keys[g] = task.scratch + g * 16;
      tile.values[g] = all_values + static_cast<size_t>(g) * 16 * task.value_dim;
    }
  }
}

template <typename T>
void tile_in_place(const AttentionTask& task, int tile_start, int begin, int end, int span_end,
                   const AttentionState& out) {
  TileView<T> tile = {};
  tile.begin = begin;
  tile.end = end;
  tile.key_stride = task.block_size;
  for (int g = begin / 16; g * 16 < end; ++g) {
    const GroupPlace place = place_of(task, tile_start + g * 16);
    tile.keys[g] = keys_at<T>(place);
    tile.values[g] = values_at<T>(place, task.value_dim);
  }
  look_ahead(task, tile_start, span_end, tile);
  queries_of_tile<T, true>(task, tile, tile_start, out);
}

// Reads codes where they lie, and fetches the blocks that come 64 positions later.
inline void tile_encoded(const AttentionTask& task, int tile_start, int begin, int end, int span_end,
                         const AttentionState& out) {
  EncodedTile tile;
  tile.begin = begin;
  tile.end = end;
  const int first_group = begin / 16, end_group = (end + 15) / 16;
  for (int g = 0; g < groups; ++g) {
    const int seen = smaller(larger(g, first_group), end_group - 1);
    const GroupPlace place = place_of(task, tile_start + seen * 16);
    tile.keys[g] = keys_of(task, *place.block);
    tile.values[g] = values_of(task, *place.block);
    tile.offset[g] = place.offset;
  }
  // Where nothing is known to follow, what is there already: fetching that costs little.
  const uint8_t *next_keys[groups], *next_values[groups];
  const int num_blocks = softmax_tile / task.block_size;
  for (int b = 0; b < num_blocks; ++b) {
    const BlockRef* next = block_ahead(task, tile_start + b * task.block_size, tile_start, span_end);
    const int g = b * task.block_size / 16;
    next_keys[b] = next ? static_cast<const uint8_t*>(next->keys) : tile.keys[g].bytes;
    next_values[b] = next ? static_cast<const uint8_t*>(next->values) : tile.values[g].bytes;
  }
  tile.next_keys = ahead_of(next_keys, num_blocks, key_layout(tile.keys[0].code, task.head_dim, task.block_size).bytes,
                            task.head_dim);
  tile.next_values = ahead_of(next_values, num_blocks,
                              value_layout(tile.values[0].code, task.value_dim, task.block_size).bytes, end - begin);
  switch (task.num_rows * task.group) {
    case 1:
      return encoded_queries<1>(task, tile, tile_start, out);
    case 2:
      return encoded_queries<2>(task, tile, tile_start, out);
    case 3:
      return encoded_queries<3>(task, tile, tile_start, out);
    case 4:
      return encoded_queries<4>(task, tile, tile_start, out);
    case 5:
      return encoded_queries<5>(task, tile, tile_start, out);
    default:
      return encoded_queries<6>(task, tile, tile_start, out);
  }
}

// Whether all blocks have the codes of this one.
inline bool one_format(const AttentionTask& task, int first_position, int end_position, const BlockRef& block) {
  const auto same = [](KvCode a, KvCode b) { return a.format == b.format && a.scales == b.scales; };
  const int last = (end_position - 1) / task.block_size;
  for (int b = first_position / task.block_size; b <= last; ++b) {
    const BlockRef& other = task.blocks[b - task.first_block];
    if (!same(other.key_code, block.key_code) || !same(other.value_code, block.value_code)) return false;
  }
  return true;
}

inline void attend_tile(const AttentionTask& task, int tile_start, int begin, int end, int span_end,
                        const AttentionState& out) {
  const BlockRef& block = *place_of(task, tile_start + begin).block;
  const KvFormat format = block.key_code.format;
  const bool many = task.num_rows * task.group > chunk;
  if (!many && one_format(task, tile_start + begin, tile_start + end, block)) {
    if (format == KvFormat::fp16 && block.value_code.format == format) {
      return tile_in_place<Half>(task, tile_start, begin, end, span_end, out);
    }
    if (format == KvFormat::bf16 && block.value_code.format == format) {
      return tile_in_place<BFloat>(task, tile_start, begin, end, span_end, out);
    }
    if (format == KvFormat::fp32 && block.value_code.format == format) {
      return tile_in_place<float>(task, tile_start, begin, end, span_end, out);
    }
    if (in_registers(block.key_code, task.head_dim) && in_registers(block.value_code, task.value_dim)) {
      return tile_encoded(task, tile_start, begin, end, span_end, out);
    }
  }
  TileView<float> tile = {};
  tile.begin = begin;
  tile.end = end;
  view_widened(task, tile_start, tile);
  queries_of_tile<float, false>(task, tile, tile_start, out);
}

}  // namespace

void attend(const AttentionTask& task, int32_t begin, int32_t end, const AttentionState& out) {
  const int num_queries = task.num_rows * task.group;
  for (int i = 0; i < num_queries; ++i) out.bases[i] = -__builtin_inff();
  for (int i = 0; i < num_queries * 16; i += 16) f_store(out.sums + i, f_zero());
  for (int i = 0; i < num_queries * value_stride(task); i += 16) f_store(out.acc + i, f_zero());
  const int seen_end = smaller(end, task.first_position + task.num_rows);
  const int seen_begin = task.window > 0 ? larger(begin, task.first_position - task.window + 1) : begin;
  for (int start = seen_begin / softmax_tile * softmax_tile; start < seen_end; start += softmax_tile) {
    attend_tile(task, start, larger(seen_begin - start, 0), smaller(seen_end - start, softmax_tile), seen_end, out);
  }
}

void merge(const AttentionTask& task, const AttentionState& into, const AttentionState& next) {
  const int stride = value_stride(task);
  for (int query = 0; query < task.num_rows * task.group; ++query) {
    if (!(next.bases[query] > -__builtin_inff())) continue;
    const bool first = !(into.bases[query] > -__builtin_inff());
    const float top = first || next.bases[query] > into.bases[query] ? next.bases[query] : into.bases[query];
    const F old_weight = f_set(weight_of(into.bases[query], top)), weight = f_set(weight_of(next.bases[query], top));
    into.bases[query] = top;
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
      const float sink = task.sinks[head] * log2_e;
      const float top = sink > state.bases[query] ? sink : state.bases[query];
      weight = weight_of(state.bases[query], top);
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
