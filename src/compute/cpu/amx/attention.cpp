// Attention on the matrix unit: queries, keys, weights and values are BF16, sums are floats.
//
// Work goes by tiles of 64 absolute positions in ascending order, as in generic/attention.h; the state it leaves is of
// the same form. A score is one chain of sums over pairs of elements in ascending order, what a query adds up over
// positions is one chain over pairs of positions, in the order in which the matrix unit has them; neither depends on
// how many queries share the tiles. What a query cannot see has a weight of zero.
//
// Keys and values in float32 are asked for when exactness is: they go through avx512's attention. So do spans in which
// one side is BF16 in one block and something else in another, which no sequence has: all its blocks are of one format.
#include "compute/cpu/amx/kv_pairs.h"

namespace tidemill::amx {
namespace {

constexpr int runs = softmax_tile / run_positions;
constexpr int tile_queries = tile_rows;
constexpr size_t key_stride = 128;  // bytes between the rows of a tile of keys

TM_INLINE int up_to_32(int n) {
  return (n + 31) / 32 * 32;
}

// The parts of the task's scratch memory.
struct Scratch {
  uint16_t* queries;     // [tiles of 16 queries][16][elements], times pair_unit
  float* acc;            // [tiles of 16 queries][16][value elements], columns as tiles of values have them
  uint16_t* keys[runs];  // tiles (kv_pairs.h)
  uint16_t* values[runs];
  uint16_t* halves;              // of one run, decoded
  int elements, value_elements;  // multiples of 32
};

struct Span {
  const AttentionTask& task;
  const AttentionState& out;
  Scratch scratch;
  int num_queries;
  float score_scale;  // from sums to exponents of two
  float softcap_scale;
};

// Where weights of one tile of queries are made.
struct Weights {
  alignas(64) float scores[2][tile_queries][softmax_tile];  // of this tile of queries and the next
  alignas(64) uint16_t pairs[runs][tile_queries][run_positions];
};

// Rows of whole tiles; the only tile has as many rows as there are queries.
TM_INLINE int padded_queries(int num_queries) {
  return num_queries < tile_queries ? num_queries : (num_queries + tile_queries - 1) / tile_queries * tile_queries;
}

Scratch scratch_of(const AttentionTask& task) {
  const int rows = padded_queries(task.num_rows * task.group);
  Scratch scratch;
  scratch.elements = up_to_32(task.head_dim);
  scratch.value_elements = up_to_32(task.value_dim);
  float* at = task.scratch;
  scratch.acc = at;
  at += static_cast<size_t>(rows) * scratch.value_elements;
  scratch.queries = reinterpret_cast<uint16_t*>(at);
  uint16_t* next = scratch.queries + static_cast<size_t>(rows) * scratch.elements;
  for (int r = 0; r < runs; ++r) {
    scratch.keys[r] = next;
    scratch.values[r] = next + run_positions * scratch.elements;
    next = scratch.values[r] + run_positions * scratch.value_elements;
  }
  scratch.halves = next;
  return scratch;
}

void take_queries(const Span& span) {
  const Scratch& scratch = span.scratch;
  const F unit = f_set(cpu::pair_unit);
  const int dim = span.task.head_dim;
  for (int q = 0; q < padded_queries(span.num_queries); ++q) {
    uint16_t* to = scratch.queries + static_cast<size_t>(q) * scratch.elements;
    const float* from = q < span.num_queries ? query_elements(span.task, q) : nullptr;
    for (int d = 0; d < scratch.elements; d += 16) {
      const int n = !from ? 0 : dim - d < 16 ? larger(dim - d, 0) : 16;
      const F x = n > 0 ? f_mul(f_load_n(from + d, n), unit) : f_zero();
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + d), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    }
  }
}

// What a tile of positions holds that anybody sees.
struct SeenTile {
  int start, begin, end;
  int first_run, end_run;
};

TM_INLINE const uint16_t* queries_at(const Scratch& scratch, int query_tile) {
  return scratch.queries + static_cast<size_t>(query_tile) * tile_queries * scratch.elements;
}

// Scores of a tile of queries against the runs' keys: [16][64], 256 bytes a row.
template <int First, int End>
TM_INLINE void score_runs(const Scratch& scratch, const uint16_t* queries, float (*scores)[softmax_tile]) {
  const int chunks = scratch.elements / 32;
  constexpr size_t stride = softmax_tile * sizeof(float);
  const uint16_t *first = scratch.keys[0], *second = scratch.keys[1];
  if constexpr (First == 0) {
    tile_zero<0>();
    tile_zero<1>();
  }
  if constexpr (End == 2) {
    tile_zero<2>();
    tile_zero<3>();
  }
  for (int c = 0; c < chunks; ++c, queries += 32) {
    tile_load<4>(queries, static_cast<size_t>(scratch.elements) * 2);
    if constexpr (First == 0) {
      tile_load<6>(first, key_stride);
      tile_dot_pairs<0, 4, 6>();
      tile_load<7>(first + 32, key_stride);
      tile_dot_pairs<1, 4, 7>();
      first += 2 * tile_values;
    }
    if constexpr (End == 2) {
      tile_load<6>(second, key_stride);
      tile_dot_pairs<2, 4, 6>();
      tile_load<7>(second + 32, key_stride);
      tile_dot_pairs<3, 4, 7>();
      second += 2 * tile_values;
    }
  }
  if constexpr (First == 0) {
    tile_store<0>(scores[0], stride);
    tile_store<1>(scores[0] + 16, stride);
  }
  if constexpr (End == 2) {
    tile_store<2>(scores[0] + 32, stride);
    tile_store<3>(scores[0] + 48, stride);
  }
}

void score_tile(const Scratch& scratch, const SeenTile& tile, int query_tile, float (*scores)[softmax_tile]) {
  const uint16_t* queries = queries_at(scratch, query_tile);
  if (tile.first_run == 1) return score_runs<1, 2>(scratch, queries, scores);
  if (tile.end_run == 1) return score_runs<0, 1>(scratch, queries, scores);
  score_runs<0, 2>(scratch, queries, scores);
}

// acc += weights x values, over the runs in ascending order.
template <int Columns>
TM_INLINE void add_columns(const Scratch& scratch, const SeenTile& tile, const Weights& weights, int column,
                           float* acc) {
  const size_t stride = static_cast<size_t>(scratch.value_elements) * sizeof(float);
  acc += column * 16;
  tile_load<0>(acc, stride);
  tile_load<1>(acc + 16, stride);
  if constexpr (Columns == 4) {
    tile_load<2>(acc + 32, stride);
    tile_load<3>(acc + 48, stride);
  }
  for (int r = tile.first_run; r < tile.end_run; ++r) {
    const uint16_t* values = scratch.values[r] + column * 32;
    tile_load<4>(weights.pairs[r], tile_stride);
    tile_load<6>(values, stride);
    tile_dot_pairs<0, 4, 6>();
    tile_load<7>(values + 32, stride);
    tile_dot_pairs<1, 4, 7>();
    if constexpr (Columns == 4) {
      tile_load<6>(values + 64, stride);
      tile_dot_pairs<2, 4, 6>();
      tile_load<7>(values + 96, stride);
      tile_dot_pairs<3, 4, 7>();
    }
  }
  tile_store<0>(acc, stride);
  tile_store<1>(acc + 16, stride);
  if constexpr (Columns == 4) {
    tile_store<2>(acc + 32, stride);
    tile_store<3>(acc + 48, stride);
  }
}

void add_values(const Scratch& scratch, const SeenTile& tile, const Weights& weights, int query_tile) {
  float* acc = scratch.acc + static_cast<size_t>(query_tile) * tile_queries * scratch.value_elements;
  const int columns = scratch.value_elements / 16;
  int column = 0;
  for (; column + 4 <= columns; column += 4) add_columns<4>(scratch, tile, weights, column, acc);
  if (column < columns) add_columns<2>(scratch, tile, weights, column, acc);
}

// Positions of the tile in the order of scores: those of four vectors' lanes.
TM_INLINE __m512i lane_positions(int vector) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  return _mm512_add_epi32(low, _mm512_set1_epi32(vector / 2 * run_positions + vector % 2 * 4));
}

// 2^x to within 9e-5, which BF16 does not show; 0 for minus infinity. The polynomial is the best one of degree 3 in
// relative error on [0, 1] that is 1 at 0.
TM_INLINE F exp2_of_weight(F x) {
  const F r = f_fraction(x);
  F p = f_set(7.706706e-2f);
  p = f_fma(p, r, f_set(0.22764498f));
  p = f_fma(p, r, f_set(0.69511679f));
  p = f_fma(p, r, f_set(1.0f));
  return _mm512_scalef_ps(p, x);
}

TM_INLINE __m512i pairs_of_floats(F low, F high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

constexpr float unit_exponent = 64;  // pair_unit is 2^64

// Scores of a query that sees positions first .. end - 1 of the tile become weights 2^(score - base) * pair_unit.
template <bool All>
TM_INLINE void weigh(const Span& span, const float* scores, int query, int first, int end, uint16_t* low_run,
                     uint16_t* high_run) {
  F s[4];
  __mmask16 seen[4];
  for (int v = 0; v < 4; ++v) s[v] = f_load(scores + v * 16);
  if (span.task.softcap > 0) {
    for (F& x : s) x = f_softcap(f_mul(x, f_set(span.softcap_scale)), span.task.softcap);
  }
  if (!All) {
    for (int v = 0; v < 4; ++v) {
      const __m512i position = lane_positions(v);
      seen[v] = _mm512_cmplt_epi32_mask(position, _mm512_set1_epi32(end)) &
                _mm512_cmpge_epi32_mask(position, _mm512_set1_epi32(first));
      s[v] = _mm512_mask_mov_ps(f_set(-__builtin_inff()), seen[v], s[v]);
    }
  }
  const F scale = f_set(span.score_scale);
  float* base = span.out.bases + query;
  float* sums = span.out.sums + query * 16;
  const F top = f_mul(f_max(f_max(s[0], s[1]), f_max(s[2], s[3])), scale);
  if (f_any_above(top, f_set(*base))) {
    rescale(f_largest(top), base, sums, span.scratch.acc + static_cast<size_t>(query) * span.scratch.value_elements,
            span.scratch.value_elements);
  }
  const F minus_base = f_set(unit_exponent - *base);
  for (int v = 0; v < 4; ++v) {
    s[v] = exp2_of_weight(f_fma(s[v], scale, minus_base));
    if (!All) s[v] = _mm512_maskz_mov_ps(seen[v], s[v]);
  }
  const __m512i low = pairs_of_floats(s[0], s[1]), high = pairs_of_floats(s[2], s[3]);
  // Positions in ascending order, as those of values are.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  _mm512_store_si512(low_run, _mm512_permutexvar_epi64(order, low));
  _mm512_store_si512(high_run, _mm512_permutexvar_epi64(order, high));
  // Sums of what was rounded: where one weight outweighs the others, its rounding does not show.
  const auto one = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F80));
  f_store(sums, _mm512_dpbf16_ps(_mm512_dpbf16_ps(f_load(sums), reinterpret_cast<__m512bh>(low), one),
                                 reinterpret_cast<__m512bh>(high), one));
}

void weigh_queries(const Span& span, const SeenTile& tile, int query_tile, const float (*scores)[softmax_tile],
                   Weights& weights) {
  const AttentionTask& task = span.task;
  const int first_query = query_tile * tile_queries, end_query = smaller(first_query + tile_queries, span.num_queries);
  int row = first_query / task.group, head = first_query % task.group;
  for (int query = first_query; query < end_query; ++query) {
    const int i = query - first_query, position = task.first_position + row - tile.start;
    const int first = larger(tile.begin, task.window > 0 ? position - task.window + 1 : 0);
    const int end = smaller(tile.end, position + 1);
    uint16_t *low = weights.pairs[0][i], *high = weights.pairs[1][i];
    if (first <= 0 && end == softmax_tile) {
      weigh<true>(span, scores[i], query, first, end, low, high);
    } else if (first < end) {
      weigh<false>(span, scores[i], query, first, end, low, high);
    } else {
      _mm512_store_si512(low, _mm512_setzero_si512());
      _mm512_store_si512(high, _mm512_setzero_si512());
    }
    if (++head == task.group) {
      head = 0;
      ++row;
    }
  }
}

// Where a run's keys and values lie, and those that are read 64 positions later.
struct RunPlace {
  RunSides keys, values;
};

RunPlace place_run(const AttentionTask& task, const SeenTile& tile, int run, int span_end) {
  const int run_start = tile.start + run * run_positions;
  const int first_seen = larger(run_start, tile.start + tile.begin);
  const int last_seen = smaller(run_start + run_positions, tile.start + tile.end) - 1;
  const bool two = task.block_size < run_positions;
  const BlockRef *blocks[2], *ahead[2];
  for (int b = 0; b < 2; ++b) {
    const int position = two ? run_start + b * task.block_size : run_start;
    // Where nobody sees anything of a block, the other one's.
    blocks[b] = place_of(task, smaller(larger(position, first_seen), last_seen)).block;
    ahead[b] = block_ahead(task, position, tile.start, span_end);
    // Where nothing is known to follow, what is there already: fetching that costs little.
    if (!ahead[b]) ahead[b] = blocks[b];
  }
  const auto bytes_of = [](const void* p) { return static_cast<const uint8_t*>(p); };
  const int offset = run_start % task.block_size;
  return {{keys_of(task, *blocks[0]), keys_of(task, *blocks[1]), bytes_of(ahead[0]->keys), bytes_of(ahead[1]->keys),
           offset, two},
          {values_of(task, *blocks[0]), values_of(task, *blocks[1]), bytes_of(ahead[0]->values),
           bytes_of(ahead[1]->values), offset, two}};
}

// Queries of several tiles: tile by tile, those which some position of the tile is seen by.
void attend_many(const Span& span, const SeenTile& tile, Weights& weights) {
  const AttentionTask& task = span.task;
  const Scratch& scratch = span.scratch;
  const int first_row = larger(tile.start + tile.begin - task.first_position, 0);
  const int rows_before_window = tile.start + tile.end - 1 + task.window - task.first_position;
  const int end_row = task.window > 0 ? smaller(rows_before_window, task.num_rows) : task.num_rows;
  if (first_row >= end_row) return;
  const int first = first_row * task.group / tile_queries, last = (end_row * task.group - 1) / tile_queries;
  score_tile(scratch, tile, first, weights.scores[first % 2]);
  for (int t = first; t <= last; ++t) {
    // Ahead: the matrix unit works on the next scores while the vectors weigh these.
    if (t < last) score_tile(scratch, tile, t + 1, weights.scores[(t + 1) % 2]);
    weigh_queries(span, tile, t, weights.scores[t % 2], weights);
    add_values(scratch, tile, weights, t);
  }
}

SeenTile seen_tile(int start, int seen_begin, int seen_end) {
  SeenTile tile = {start, larger(seen_begin - start, 0), smaller(seen_end - start, softmax_tile), 0, runs};
  tile.first_run = tile.begin / run_positions;
  tile.end_run = (tile.end + run_positions - 1) / run_positions;
  return tile;
}

// A quarter of a tile's scores: 16 positions of a run.
void score_quarter(const Scratch& scratch, int quarter, float (*scores)[softmax_tile]) {
  const uint16_t *queries = scratch.queries, *keys = scratch.keys[quarter / 2] + quarter % 2 * 32;
  tile_zero<0>();
  for (int c = 0; c < scratch.elements / 32; ++c, queries += 32, keys += 2 * tile_values) {
    tile_load<4>(queries, static_cast<size_t>(scratch.elements) * 2);
    tile_load<6>(keys, key_stride);
    tile_dot_pairs<0, 4, 6>();
  }
  tile_store<0>(scores[0] + quarter * 16, softmax_tile * sizeof(float));
}

// With one tile of queries the matrix unit works piece by piece while keys and values become tiles: on the scores of
// this tile of positions, and on the sums of the one before.
struct OneTile {
  const Span& span;
  Weights& weights;
  SeenTile before;
  int next_column;   // of the sums
  int next_quarter;  // of the scores

  TM_INLINE void add_before() {
    if (next_column * 16 >= span.scratch.value_elements || before.end_run == 0) return;
    add_columns<2>(span.scratch, before, weights, next_column, span.scratch.acc);
    next_column += 2;
  }
  TM_INLINE void score(int end_quarter) {
    if (next_quarter < end_quarter) score_quarter(span.scratch, next_quarter++, weights.scores[0]);
  }
};

void one_tile_of_queries(const Span& span, int seen_begin, int seen_end, Weights& weights) {
  const Scratch& scratch = span.scratch;
  OneTile one = {span, weights, {}, 0, 0};
  for (int start = seen_begin / softmax_tile * softmax_tile; start < seen_end; start += softmax_tile) {
    const SeenTile tile = seen_tile(start, seen_begin, seen_end);
    RunPlace places[runs];
    for (int r = tile.first_run; r < tile.end_run; ++r) {
      places[r] = place_run(span.task, tile, r, seen_end);
      make_key_tiles(places[r].keys, scratch.halves, scratch.keys[r], [&] { one.add_before(); });
    }
    while (one.before.end_run > 0 && one.next_column * 16 < scratch.value_elements) one.add_before();
    one.next_quarter = 2 * tile.first_run;
    for (int r = tile.first_run; r < tile.end_run; ++r) {
      const int run_start = r * run_positions;
      make_value_tiles(places[r].values, larger(tile.begin - run_start, 0),
                       smaller(tile.end - run_start, run_positions), scratch.halves, scratch.values[r],
                       [&] { one.score(2 * tile.end_run); });
    }
    weigh_queries(span, tile, 0, weights.scores[0], weights);
    one.before = tile;
    one.next_column = 0;
  }
  if (one.before.end_run > 0) add_values(scratch, one.before, weights, 0);
}

void several_tiles_of_queries(const Span& span, int seen_begin, int seen_end, Weights& weights) {
  const Scratch& scratch = span.scratch;
  for (int start = seen_begin / softmax_tile * softmax_tile; start < seen_end; start += softmax_tile) {
    const SeenTile tile = seen_tile(start, seen_begin, seen_end);
    for (int r = tile.first_run; r < tile.end_run; ++r) {
      const int run_start = r * run_positions;
      const RunPlace place = place_run(span.task, tile, r, seen_end);
      make_key_tiles(place.keys, scratch.halves, scratch.keys[r], [] {});
      make_value_tiles(place.values, larger(tile.begin - run_start, 0), smaller(tile.end - run_start, run_positions),
                       scratch.halves, scratch.values[r], [] {});
    }
    attend_many(span, tile, weights);
  }
}

// Columns in order, and without the units.
void give_out(const Span& span, float acc_factor) {
  const Scratch& scratch = span.scratch;
  const int stride = value_stride(span.task);
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const F factor = f_set(acc_factor), sum_factor = f_set(1 / cpu::pair_unit);
  for (int q = 0; q < span.num_queries; ++q) {
    float* sums = span.out.sums + q * 16;
    f_store(sums, f_mul(f_load(sums), sum_factor));
    const float* from = scratch.acc + static_cast<size_t>(q) * scratch.value_elements;
    float* to = span.out.acc + static_cast<size_t>(q) * stride;
    for (int d = 0; d < stride; d += 32) {
      const F low = f_mul(f_load(from + d), factor), high = f_mul(f_load(from + d + 16), factor);
      f_store(to + d, _mm512_permutex2var_ps(low, first, high));
      if (d + 16 < stride) f_store(to + d + 16, _mm512_permutex2var_ps(low, second, high));
    }
  }
}

// Whether all blocks of a side become pairs in the same way.
bool takes_pairs(const AttentionTask& task, int begin, int end) {
  const auto way = [](KvFormat format) { return format == KvFormat::fp32 ? 0 : format == KvFormat::bf16 ? 1 : 2; };
  const BlockRef& any = *place_of(task, begin).block;
  const int keys = way(any.key_code.format), values = way(any.value_code.format);
  for (int b = begin / task.block_size; b <= (end - 1) / task.block_size; ++b) {
    const BlockRef& block = task.blocks[b - task.first_block];
    if (way(block.key_code.format) != keys || way(block.value_code.format) != values) return false;
  }
  return keys != 0 && values != 0;
}

}  // namespace

void attend(const AttentionTask& task, int32_t begin, int32_t end, const AttentionState& out) {
  const int seen_end = smaller(end, task.first_position + task.num_rows);
  const int seen_begin = task.window > 0 ? larger(begin, task.first_position - task.window + 1) : begin;
  if (seen_begin >= seen_end || !takes_pairs(task, seen_begin, seen_end)) return avx512::attend(task, begin, end, out);
  const int num_queries = task.num_rows * task.group;
  const BlockRef& any = *place_of(task, seen_begin).block;
  const float key_unit = any.key_code.format == KvFormat::bf16 ? 1.0f : 1 / cpu::half_unit;
  const float value_unit = any.value_code.format == KvFormat::bf16 ? 1.0f : 1 / cpu::half_unit;
  const float softcap_scale = task.scale / (cpu::pair_unit * key_unit);
  const Span span = {
      task, out, scratch_of(task), num_queries, task.softcap > 0 ? log2_e : softcap_scale * log2_e, softcap_scale};
  for (int i = 0; i < num_queries; ++i) out.bases[i] = -__builtin_inff();
  for (int i = 0; i < num_queries * 16; i += 16) f_store(out.sums + i, f_zero());
  for (int i = 0; i < padded_queries(num_queries) * span.scratch.value_elements; i += 16)
    f_store(span.scratch.acc + i, f_zero());
  take_queries(span);
  {
    const TileScope tiles(smaller(num_queries, tile_queries));
    Weights weights;
    if (num_queries <= tile_queries) {
      one_tile_of_queries(span, seen_begin, seen_end, weights);
    } else {
      several_tiles_of_queries(span, seen_begin, seen_end, weights);
    }
  }
  give_out(span, 1 / (cpu::pair_unit * value_unit));
}

}  // namespace tidemill::amx
