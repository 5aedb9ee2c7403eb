// Products of quantized panels with many rows on the matrix unit.
//
// The unit makes the dot products of a block for 16 rows and 16 outputs at once, in whole numbers and therefore
// exactly; what follows (conversion, scale, min) are the vector operations of generic/matmul.h in their order. So the
// results are bit-equal to those of AVX-512, which takes the steps of a few rows.
//
// A panel's codes are unpacked to signed bytes once for a group of rows, in pieces that stay in the first-level cache.
#pragma once

#include "compute/cpu/amx/simd.h"
#include "compute/cpu/generic/matmul.h"

namespace tidemill::amx {
namespace {

constexpr int avx512_rows = 8;     // up to so many rows, unpacking costs more than the unit saves
constexpr int group_rows = 128;    // activation rows that share one unpacking
constexpr int piece_blocks = 32;   // blocks unpacked at once: 16 KiB
constexpr int sums_in_flight = 4;  // a tile that is stored right after its product stalls the unit

struct Workspace {
  alignas(64) int8_t codes[piece_blocks][block_k / 4][tile_stride];
  alignas(64) int32_t dots[sums_in_flight][tile_rows][panel_rows];
  alignas(64) float sums[2][group_rows][panel_rows];
};

// Consecutive blocks of one panel and one tile of rows.
template <typename Kind>
struct BlockRun {
  const ActBlock* acts;  // of the first block; `stride` of them per block
  int stride;
  const typename Kind::Scale* scales;
  const typename Kind::Scale* mins;
  int count;   // of products: blocks x groups
  bool first;  // of the row: sums begin at zero
  // For the first tile of rows, which unpacks for all: codes as they lie in the panel, and the same blocks' share of
  // the panel that follows in memory. Null for the other tiles.
  const uint8_t* packed;
  const uint8_t* next;
  MB zero, table;
};

constexpr int unpacked_ahead = 2 * sums_in_flight;  // products

// code - zero_point of one block, as the matrix unit wants them. Neither the ports that unpacking needs nor its stores
// are what the sums wait for, so it goes on between them.
template <typename Kind>
TM_INLINE void unpack_block(const BlockRun<Kind>& run, int b, Workspace& work) {
  const auto finish = [&](MB x) {
    if constexpr (Kind::lookup) return b_lookup(run.table, x);
    if constexpr (!Kind::has_min) return _mm512_sub_epi8(x, run.zero);
    return x;
  };
  const uint8_t* codes = run.packed + b * Kind::code_bytes;
  prefetch_block<Kind>(run.next + b * Kind::block_bytes);
  auto* out = reinterpret_cast<__m512i*>(work.codes[b]);
  TM_UNROLL
  for (int j = 0; j < Kind::bits; ++j) {
    const MB x = b_load(codes + j * 64);
    if constexpr (Kind::bits == 8) {
      _mm512_store_si512(out + j, finish(x));
    } else {
      _mm512_store_si512(out + j, finish(b_low(x)));
      _mm512_store_si512(out + j + 4, finish(b_high(x)));
    }
  }
}

// The block of product i, where that is due.
template <typename Kind>
TM_INLINE void unpack_for(const BlockRun<Kind>& run, int i, Workspace& work) {
  if (run.packed && i % Kind::groups == 0 && i < run.count) unpack_block(run, i / Kind::groups, work);
}

template <typename Kind, int T>
TM_INLINE void start_dots(const BlockRun<Kind>& run, int i, const Workspace& work) {
  constexpr int act_bytes = block_k / Kind::groups;
  const ActBlock* act = run.acts + i / Kind::groups * run.stride;
  tile_zero<T>();
  tile_load<4 + T % 2>(act->q + i % Kind::groups * act_bytes, sizeof(ActBlock));
  tile_load<6 + T % 2>(work.codes[0][0] + i * act_bytes * panel_rows, tile_stride);
  tile_dot<T, 4 + T % 2, 6 + T % 2>();
}

// The float operations of add_block in generic/matmul.h.
template <typename Kind, int R>
TM_INLINE void add_dots(const BlockRun<Kind>& run, int i, const int32_t (*dots)[panel_rows], MF (&sums)[R]) {
  const int which = Kind::groups == 1 ? 0 : 1 + i % Kind::groups;
  const ActBlock* act = run.acts + i / Kind::groups * run.stride;
  const MF scale = m_load(run.scales + i * panel_rows);
  TM_UNROLL
  for (int r = 0; r < R; ++r) {
    sums[r] = m_fma(m_from(_mm512_load_si512(dots[r])), m_mul(scale, m_set(act[r].scale)), sums[r]);
  }
  if constexpr (Kind::has_min) {
    const MF min = m_load(run.mins + i * panel_rows);
    TM_UNROLL
    for (int r = 0; r < R; ++r) sums[r] = m_fma(min, m_set(act[r].scaled_sum[which]), sums[r]);
  }
}

// Fetches product i from tile T, starts product `next` there, if there is one, and adds the fetched one.
template <typename Kind, int R, int T>
TM_INLINE void one_product(const BlockRun<Kind>& run, int i, bool more, Workspace& work, MF (&sums)[R]) {
  tile_store<T>(work.dots[T], tile_stride);
  unpack_for(run, i + unpacked_ahead, work);
  if (more) start_dots<Kind, T>(run, i + sums_in_flight, work);
  add_dots<Kind, R>(run, i, work.dots[T], sums);
}

// out[r] += the products of the run, for rows 0 .. R - 1.
template <typename Kind, int R>
void run_blocks(const BlockRun<Kind> run, Workspace& work, float (*out)[panel_rows]) {
  MF sums[R];
  TM_UNROLL
  for (int r = 0; r < R; ++r) sums[r] = m_zero();
  if (!run.first) {
    TM_UNROLL
    for (int r = 0; r < R; ++r) sums[r] = _mm512_load_ps(out[r]);
  }
  const int count = run.count;
  for (int i = 0; i < unpacked_ahead; ++i) unpack_for(run, i, work);
  start_dots<Kind, 0>(run, 0, work);
  if (count > 1) start_dots<Kind, 1>(run, 1, work);
  if (count > 2) start_dots<Kind, 2>(run, 2, work);
  if (count > 3) start_dots<Kind, 3>(run, 3, work);
  int i = 0;
  for (; i + 2 * sums_in_flight <= count; i += sums_in_flight) {
    one_product<Kind, R, 0>(run, i, true, work, sums);
    one_product<Kind, R, 1>(run, i + 1, true, work, sums);
    one_product<Kind, R, 2>(run, i + 2, true, work, sums);
    one_product<Kind, R, 3>(run, i + 3, true, work, sums);
  }
  for (; i < count; i += sums_in_flight) {
    one_product<Kind, R, 0>(run, i, i + 4 < count, work, sums);
    if (i + 1 < count) one_product<Kind, R, 1>(run, i + 1, i + 5 < count, work, sums);
    if (i + 2 < count) one_product<Kind, R, 2>(run, i + 2, i + 6 < count, work, sums);
    if (i + 3 < count) one_product<Kind, R, 3>(run, i + 3, i + 7 < count, work, sums);
  }
  TM_UNROLL
  for (int r = 0; r < R; ++r) _mm512_store_ps(out[r], sums[r]);
}

// sums = panel x rows first .. first + count - 1, count <= group_rows. Rows are taken four at a time: those beyond the
// tile's end are other blocks' data, whose sums nobody reads.
template <typename Kind>
void quantized_group(const Panels& panels, const uint8_t* panel, const Activations& input, int first, int count,
                     Workspace& work, float (*sums)[panel_rows]) {
  using Scale = typename Kind::Scale;
  const int num_blocks = input.cols / block_k;
  const auto* scales = reinterpret_cast<const Scale*>(panel + static_cast<size_t>(num_blocks) * Kind::code_bytes);
  const Scale* mins = scales + static_cast<size_t>(num_blocks) * Kind::scale_count;
  const MB zero = _mm512_set1_epi8(Kind::has_min ? 0 : static_cast<char>(1 << panels.zero_shift));
  const MB table = Kind::lookup ? _mm512_sub_epi8(b_table(panels.table), zero) : zero;
  for (int b = 0; b < num_blocks; b += piece_blocks) {
    const int blocks = num_blocks - b < piece_blocks ? num_blocks - b : piece_blocks;
    for (int row = 0; row < count; row += tile_rows) {
      const int rows = count - row < tile_rows ? count - row : tile_rows;
      const BlockRun<Kind> run = {
          .acts = input.blocks + static_cast<size_t>(first + row) * static_cast<size_t>(num_blocks) + b * rows,
          .stride = rows,
          .scales = scales + static_cast<size_t>(b) * Kind::scale_count,
          .mins = mins + static_cast<size_t>(b) * Kind::scale_count,
          .count = blocks * Kind::groups,
          .first = b == 0,
          .packed = row == 0 ? panel + static_cast<size_t>(b) * Kind::code_bytes : nullptr,
          .next = panel + static_cast<size_t>(num_blocks + b) * Kind::block_bytes,
          .zero = zero,
          .table = table};
      if (rows > 12) {
        run_blocks<Kind, 16>(run, work, sums + row);
      } else if (rows > 8) {
        run_blocks<Kind, 12>(run, work, sums + row);
      } else if (rows > 4) {
        run_blocks<Kind, 8>(run, work, sums + row);
      } else {
        run_blocks<Kind, 4>(run, work, sums + row);
      }
    }
  }
}

template <typename Kind>
TM_INLINE void quantized(const Panels& panels, const uint8_t* panel, const Activations& input, int first, int count,
                         TileScope& tiles, Workspace& work, float (*sums)[panel_rows]) {
  tiles.configure(block_k / Kind::groups);
  quantized_group<Kind>(panels, panel, input, first, count, work, sums);
}

template <typename T>
void float_group(const uint8_t* panel, const Activations& input, int first, int count, float (*sums)[panel_rows]) {
  for (int row = 0; row < count; row += tile_rows) {
    const int rows = count - row < tile_rows ? count - row : tile_rows;
    float_rows<T>(panel, input, first + row, rows, sums + row);
  }
}

// Sums of P panels and T tiles of rows in P * T tile registers, each one chain of products in ascending order of
// inputs.
template <int P, int T>
TM_INLINE void multiply_piece(const uint8_t* const (&panels)[P], const uint16_t* const (&acts)[T], const int (&rows)[T],
                              size_t piece) {
  constexpr size_t panel_bytes = tile_rows * tile_stride;
  tile_load<4>(acts[0] + piece * static_cast<size_t>(rows[0]) * block_k, tile_stride);
  if constexpr (T > 1) tile_load<5>(acts[1] + piece * static_cast<size_t>(rows[1]) * block_k, tile_stride);
  tile_load<6>(panels[0] + piece * panel_bytes, tile_stride);
  tile_dot_pairs<0, 4, 6>();
  if constexpr (T > 1) tile_dot_pairs<1, 5, 6>();
  if constexpr (P > 1) {
    tile_load<7>(panels[1] + piece * panel_bytes, tile_stride);
    tile_dot_pairs<T, 4, 7>();
    if constexpr (T > 1) tile_dot_pairs<T + 1, 5, 7>();
  }
  if constexpr (P > 2) {
    static_assert(P == 4 && T == 1);
    tile_load<6>(panels[2] + piece * panel_bytes, tile_stride);
    tile_dot_pairs<2, 4, 6>();
    tile_load<7>(panels[3] + piece * panel_bytes, tile_stride);
    tile_dot_pairs<3, 4, 7>();
  }
}

// sums[p] = panel p x rows first .. first + rows - 1, rows <= 16 T.
template <int P, int T>
void multiply_pairs(const uint8_t* const (&panels)[P], const Activations& input, int first, int rows,
                    float (*const (&sums)[P])[panel_rows]) {
  const auto pieces = static_cast<size_t>((input.cols + block_k - 1) / block_k);
  const uint16_t* acts[T];
  int tile_heights[T];
  for (int t = 0; t < T; ++t) {
    const int row = t * tile_rows;
    acts[t] = input.pairs + static_cast<size_t>(first + row) * pieces * block_k;
    tile_heights[t] = rows - row < tile_rows ? rows - row : tile_rows;
  }
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  for (size_t piece = 0; piece < pieces; ++piece) multiply_piece<P, T>(panels, acts, tile_heights, piece);
  tile_store<0>(sums[0], tile_stride);
  if constexpr (T > 1) tile_store<1>(sums[0] + tile_rows, tile_stride);
  if constexpr (P > 1) tile_store<T>(sums[1], tile_stride);
  if constexpr (P > 1 && T > 1) tile_store<T + 1>(sums[1] + tile_rows, tile_stride);
  if constexpr (P > 2) {
    tile_store<2>(sums[2], tile_stride);
    tile_store<3>(sums[3], tile_stride);
  }
}

// One panel; room for sums of whole tiles.
void pairs_group(const uint8_t* panel, const Activations& input, int first, int count, TileScope& tiles,
                 float (*sums)[panel_rows]) {
  tiles.configure(tile_stride);
  for (int row = 0; row < count; row += 2 * tile_rows) {
    const int rows = count - row < 2 * tile_rows ? count - row : 2 * tile_rows;
    if (rows > tile_rows) {
      multiply_pairs<1, 2>({panel}, input, first + row, rows, {sums + row});
    } else {
      multiply_pairs<1, 1>({panel}, input, first + row, rows, {sums + row});
    }
  }
}

void panel_group(const Panels& panels, int32_t panel, const Activations& input, int first, int count, TileScope& tiles,
                 Workspace& work, float (*sums)[panel_rows]) {
  const uint8_t* data = panels.data + panel * panels.stride;
  switch (panels.kind) {
    case PackedKind::f32:
      return float_group<float>(data, input, first, count, sums);
    case PackedKind::f16:
    case PackedKind::bf16:
      return;  // packed as pairs
    case PackedKind::bf16_pairs:
      return pairs_group(data, input, first, count, tiles, sums);
    case PackedKind::u4_zero_h:
      return quantized<Quantized<Half, 4, false>>(panels, data, input, first, count, tiles, work, sums);
    case PackedKind::u4_min_h:
      return quantized<Quantized<Half, 4, true>>(panels, data, input, first, count, tiles, work, sums);
    case PackedKind::u4_min_f:
      return quantized<Quantized<float, 4, true>>(panels, data, input, first, count, tiles, work, sums);
    case PackedKind::c4_zero_f:
      return quantized<Quantized<float, 4, false, 1, true>>(panels, data, input, first, count, tiles, work, sums);
    case PackedKind::u8_zero_h:
      return quantized<Quantized<Half, 8, false>>(panels, data, input, first, count, tiles, work, sums);
    case PackedKind::u8_min_h:
      return quantized<Quantized<Half, 8, true>>(panels, data, input, first, count, tiles, work, sums);
    case PackedKind::u8_min_f:
      return quantized<Quantized<float, 8, true>>(panels, data, input, first, count, tiles, work, sums);
    case PackedKind::u8x2_zero_f:
      return quantized<Quantized<float, 8, false, 2>>(panels, data, input, first, count, tiles, work, sums);
    case PackedKind::u8x2_min_f:
      return quantized<Quantized<float, 8, true, 2>>(panels, data, input, first, count, tiles, work, sums);
  }
}

// P panels of pairs and up to 16 T rows, with the epilogue. Of a gated product: gate and up of P / 2 panels.
template <int P, int T>
void pairs_tile(const ProductTask& task, int32_t panel, int row, int rows, Workspace& work) {
  const bool gated = P > 1 && task.activation != ActivationKind::none;
  const uint8_t* panels[P];
  float(*sums[P])[panel_rows];
  for (int p = 0; p < P; ++p) {
    const Panels& from = gated && p % 2 == 1 ? task.up : task.panels;
    panels[p] = from.data + static_cast<size_t>(gated ? panel + p / 2 : panel + p) * from.stride;
    sums[p] = work.sums[0] + p * T * tile_rows;
  }
  multiply_pairs<P, T>(panels, task.input, row, rows, sums);
  for (int p = 0; p < P; p += gated ? 2 : 1) {
    if (gated) {
      store_gated_tile(task, panel + p / 2, row, rows, sums[p], sums[p + 1]);
    } else {
      store_tile(task, panel + p, row, rows, sums[p]);
    }
  }
}

// Two tiles of rows stay in the first-level cache while all panels pass.
void pairs_panels(const ProductTask& task, int32_t first, int32_t end, Workspace& work) {
  const bool gated = task.activation != ActivationKind::none;
  const int32_t num_rows = task.input.num_rows, two = gated ? 1 : 2;  // panels whose sums are two tiles
  for (int32_t row = 0; row < num_rows; row += 2 * tile_rows) {
    const int32_t rows = num_rows - row < 2 * tile_rows ? num_rows - row : 2 * tile_rows;
    int32_t panel = first;
    if (rows > tile_rows) {
      for (; panel + two <= end; panel += two) pairs_tile<2, 2>(task, panel, row, rows, work);
      for (; panel < end; ++panel) pairs_tile<1, 2>(task, panel, row, rows, work);
      continue;
    }
    for (; panel + 2 * two <= end; panel += 2 * two) pairs_tile<4, 1>(task, panel, row, rows, work);
    for (; panel + two <= end; panel += two) pairs_tile<2, 1>(task, panel, row, rows, work);
    for (; panel < end; ++panel) pairs_tile<1, 1>(task, panel, row, rows, work);
  }
}

}  // namespace

void product_panels(const ProductTask& task, int32_t first, int32_t end) {
  const int32_t num_rows = task.input.num_rows;
  const bool gated = task.activation != ActivationKind::none;
  const bool pairs = task.panels.kind == PackedKind::bf16_pairs;
  const bool up_pairs = gated ? task.up.kind == PackedKind::bf16_pairs : pairs;
  if (!pairs && !up_pairs && num_rows <= avx512_rows) return avx512::product_panels(task, first, end);
  TileScope tiles;
  Workspace work;
  if (pairs && up_pairs) {
    tiles.configure(tile_stride);
    return pairs_panels(task, first, end, work);
  }
  for (int32_t panel = first; panel < end; ++panel) {
    for (int32_t row = 0; row < num_rows; row += group_rows) {
      const int32_t rows = num_rows - row < group_rows ? num_rows - row : group_rows;
      panel_group(task.panels, panel, task.input, row, rows, tiles, work, work.sums[0]);
      if (task.activation == ActivationKind::none) {
        store_tile(task, panel, row, rows, work.sums[0]);
        continue;
      }
      panel_group(task.up, panel, task.input, row, rows, tiles, work, work.sums[1]);
      store_gated_tile(task, panel, row, rows, work.sums[0], work.sums[1]);
    }
  }
}

}  // namespace tidemill::amx
