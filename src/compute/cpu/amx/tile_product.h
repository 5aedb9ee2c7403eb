// Products of panels with all rows of a step on the matrix unit, which sums products of BF16 pairs in floats.
//
// Every output is one chain of sums over blocks of 32 inputs in ascending order, whatever the number of rows: a chain
// that is interrupted (long rows go in pieces) is stored and taken up again as it is. Quantized weights are unpacked to
// pairs on the way (unpack.h), once for up to group_rows rows: while the first two tiles of rows are multiplied, a
// block ahead, since the vector units have nothing else to do then; the other tiles find them in the cache.
#pragma once

#include "compute/cpu/amx/unpack.h"

namespace tidemill::amx {
namespace {

constexpr int group_rows = 512;   // activation rows that share one unpacking
constexpr int piece_blocks = 48;  // blocks unpacked at once: 48 KiB a panel
constexpr int ring_blocks = 4;    // where rows are so few that a block is read once: a power of two

struct Workspace {
  alignas(64) uint16_t pairs[2][piece_blocks][tile_values];
  alignas(64) float sums[2 * group_rows][panel_rows];  // of up to two panels; of four, where the rows are one tile
};

// P panels whose sums are made together.
template <int P>
struct PanelSet {
  const uint8_t* panels[P];
  const uint8_t* upcoming[P];  // the panels that are likely next, to be fetched
  float (*sums[P])[panel_rows];
  // 1: a row's sums lie at its number; 0: all tiles of rows use the first rows' place, one after the other, which
  // stays in the first-level cache. Rows of more than one piece need the former.
  int row_step;

  float (*sums_of(int p, int row) const)[panel_rows] { return sums[p] + row * row_step; }
};

template <int P, int T>
TM_INLINE void multiply_block(const uint16_t* const (&weights)[P], const uint16_t* const (&acts)[T]) {
  tile_load<4>(acts[0], tile_stride);
  if constexpr (T > 1) tile_load<5>(acts[1], tile_stride);
  tile_load<6>(weights[0], tile_stride);
  tile_dot_pairs<0, 4, 6>();
  if constexpr (T > 1) tile_dot_pairs<1, 5, 6>();
  if constexpr (P > 1) {
    tile_load<7>(weights[1], tile_stride);
    tile_dot_pairs<T, 4, 7>();
    if constexpr (T > 1) tile_dot_pairs<T + 1, 5, 7>();
  }
  if constexpr (P > 2) {
    static_assert(P == 4 && T == 1);
    tile_load<6>(weights[2], tile_stride);
    tile_dot_pairs<2, 4, 6>();
    tile_load<7>(weights[3], tile_stride);
    tile_dot_pairs<3, 4, 7>();
  }
}

template <int P, int T>
TM_INLINE void begin_sums(const PanelSet<P>& set, int row, bool first) {
  if (first) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    return;
  }
  tile_load<0>(set.sums_of(0, row), tile_stride);
  if constexpr (T > 1) tile_load<1>(set.sums_of(0, row) + tile_rows, tile_stride);
  if constexpr (P > 1) tile_load<T>(set.sums_of(1, row), tile_stride);
  if constexpr (P > 1 && T > 1) tile_load<T + 1>(set.sums_of(1, row) + tile_rows, tile_stride);
  if constexpr (P > 2) {
    tile_load<2>(set.sums_of(2, row), tile_stride);
    tile_load<3>(set.sums_of(3, row), tile_stride);
  }
}

template <int P, int T>
TM_INLINE void end_sums(const PanelSet<P>& set, int row) {
  tile_store<0>(set.sums_of(0, row), tile_stride);
  if constexpr (T > 1) tile_store<1>(set.sums_of(0, row) + tile_rows, tile_stride);
  if constexpr (P > 1) tile_store<T>(set.sums_of(1, row), tile_stride);
  if constexpr (P > 1 && T > 1) tile_store<T + 1>(set.sums_of(1, row) + tile_rows, tile_stride);
  if constexpr (P > 2) {
    tile_store<2>(set.sums_of(2, row), tile_stride);
    tile_store<3>(set.sums_of(3, row), tile_stride);
  }
}

// Blocks [first, end) of the panels' rows, as they are unpacked and multiplied together.
struct Piece {
  int first, end;
  int num_blocks;   // of a whole row
  int places_mask;  // block b is unpacked to place (b - first) & places_mask: all places, or a ring of them

  int place(int b) const { return (b - first) & places_mask; }
};

template <typename Kind, int P>
TM_INLINE void make_block(const PanelSet<P>& set, const Piece& piece, int b, const UnpackConstants& constants,
                          Workspace& work) {
  TM_UNROLL
  for (int p = 0; p < P; ++p) {
    const uint8_t* upcoming = set.upcoming[p] + static_cast<size_t>(b) * Kind::block_bytes;
    TM_UNROLL
    for (int line = 0; line < Kind::block_bytes; line += 64) __builtin_prefetch(upcoming + line, 0, 2);
    if constexpr (Kind::packed) {
      unpack_pairs<Kind>(set.panels[p], piece.num_blocks, b, constants, work.pairs[p][piece.place(b)]);
    }
  }
}

// Adds one piece's products with T tiles of rows to their sums. Make: unpacks, or fetches ahead, for all tiles.
template <typename Kind, int P, int T, bool Make>
void multiply_piece(const PanelSet<P>& set, const Piece& piece, const Activations& input, int first_row, int row,
                    int rows, const UnpackConstants& constants, Workspace& work) {
  const uint16_t* acts[T];
  size_t act_step[T];
  for (int t = 0; t < T; ++t) {
    const int begin = row + t * tile_rows;
    const int height = rows - t * tile_rows < tile_rows ? rows - t * tile_rows : tile_rows;
    act_step[t] = static_cast<size_t>(height) * block_k;
    acts[t] = input.pairs + static_cast<size_t>(first_row + begin) * static_cast<size_t>(piece.num_blocks) * block_k +
              static_cast<size_t>(piece.first) * act_step[t];
  }
  const uint16_t* weights[P];
  for (int p = 0; p < P; ++p) {
    weights[p] = Kind::packed ? work.pairs[Kind::packed ? p : 0][0]
                              : reinterpret_cast<const uint16_t*>(set.panels[p]) + piece.first * tile_values;
  }
  begin_sums<P, T>(set, row, piece.first == 0);
  if constexpr (Make) make_block<Kind, P>(set, piece, piece.first, constants, work);
  for (int b = piece.first; b < piece.end; ++b) {
    if (Make && b + 1 < piece.end) make_block<Kind, P>(set, piece, b + 1, constants, work);
    multiply_block<P, T>(weights, acts);
    for (int p = 0; p < P; ++p) {
      weights[p] = Kind::packed ? work.pairs[Kind::packed ? p : 0][piece.place(b + 1)] : weights[p] + tile_values;
    }
    for (int t = 0; t < T; ++t) acts[t] += act_step[t];
  }
  end_sums<P, T>(set, row);
}

// sums = panels x rows first_row .. first_row + count - 1, count <= group_rows (<= tile_rows for four panels). Calls
// done(row, rows) when the sums of rows row .. row + rows - 1 are complete: soon, while they are in the first-level
// cache and the next products can go on.
template <typename Kind, int P, typename Done>
TM_INLINE void multiply_group(const PanelSet<P>& set, const Activations& input, int first_row, int count,
                              const UnpackConstants& constants, Workspace& work, Done&& done) {
  const int num_blocks = (input.cols + block_k - 1) / block_k;
  // Of one or two tiles of rows: every block is read once, soon after it was unpacked.
  const bool once = Kind::packed && count <= 2 * tile_rows;
  const int longest = !Kind::packed || once ? num_blocks : piece_blocks;
  const int places_mask = once ? ring_blocks - 1 : -1;
  for (int b = 0; b < num_blocks; b += longest) {
    const Piece piece = {b, num_blocks - b < longest ? num_blocks : b + longest, num_blocks, places_mask};
    for (int row = 0; row < count; row += 2 * tile_rows) {
      const int rows = count - row < 2 * tile_rows ? count - row : 2 * tile_rows;
      bool multiplied = false;
      if constexpr (P <= 2) {
        multiplied = rows > tile_rows;
        if (multiplied && row == 0) {
          multiply_piece<Kind, P, 2, true>(set, piece, input, first_row, row, rows, constants, work);
        } else if (multiplied) {
          multiply_piece<Kind, P, 2, false>(set, piece, input, first_row, row, rows, constants, work);
        }
      }
      if (!multiplied && row == 0) {
        multiply_piece<Kind, P, 1, true>(set, piece, input, first_row, row, rows, constants, work);
      } else if (!multiplied) {
        multiply_piece<Kind, P, 1, false>(set, piece, input, first_row, row, rows, constants, work);
      }
      if (piece.end == num_blocks) done(row, rows);
    }
  }
}

// The epilogue of a gated product whose outputs are the next one's activations: rows row .. row + rows - 1 of one
// panel, row = 0 modulo tile_rows.
template <ActivationKind kind>
void store_gated_pairs(const ProductTask& task, int32_t panel, int row, int rows, const float (*gate)[panel_rows],
                       const float (*up)[panel_rows], F gate_factor, F up_factor) {
  const int first = panel * panel_rows, num_outputs = task.panels.num_outputs, num_rows = task.input.num_rows;
  const int n = num_outputs - first < panel_rows ? num_outputs - first : panel_rows;
  const F gate_bias = task.bias ? f_load_n(task.bias + first, n) : f_zero();
  const F up_bias = task.up_bias ? f_load_n(task.up_bias + first, n) : f_zero();
  const F scale = f_set(task.scale), unit = f_set(cpu::pair_unit);
  const size_t num_pieces = static_cast<size_t>((num_outputs + block_k - 1) / block_k);
  const int piece = first / block_k, half = first % block_k;
  const bool last_of_half = half == 0 && first + panel_rows >= num_outputs;  // the other half is padding
  for (int tile = 0; tile < rows; tile += tile_rows) {
    const int tile_start = row + tile;
    const int height = num_rows - tile_start < tile_rows ? num_rows - tile_start : tile_rows;
    const int end = rows - tile < tile_rows ? rows - tile : tile_rows;
    uint16_t* out = task.output_pairs + static_cast<size_t>(block_k) * (static_cast<size_t>(tile_start) * num_pieces +
                                                                        static_cast<size_t>(piece * height));
    for (int r = 0; r < end; ++r, out += block_k) {
      const F g = activate<kind>(f_add(f_mul(gate_factor, f_load(gate[tile + r])), gate_bias));
      const F value = f_mul(scale, f_mul(g, f_add(f_mul(up_factor, f_load(up[tile + r])), up_bias)));
      f_store_as(reinterpret_cast<BFloat*>(out + half), f_mul(unit, f_keep(value, 0, n, f_zero())));
      if (last_of_half) f_store_as(reinterpret_cast<BFloat*>(out + panel_rows), f_zero());
    }
  }
}

inline void store_gated(const ProductTask& task, int32_t panel, int row, int rows, const float (*gate)[panel_rows],
                        const float (*up)[panel_rows], F gate_factor, F up_factor) {
  if (task.output_pairs) {
    return with_activation(task.activation, [&]<ActivationKind kind>() {
      store_gated_pairs<kind>(task, panel, row, rows, gate, up, gate_factor, up_factor);
    });
  }
  store_gated_tile<true>(task, panel, row, rows, gate, up, gate_factor, up_factor);
}

// From sums of scaled weights and activations to what they stand for.
template <typename Kind>
TM_INLINE F sum_factors(const uint8_t* panel, int num_blocks) {
  if constexpr (!Kind::packed) return f_set(1 / cpu::pair_unit);
  return f_load(reinterpret_cast<const float*>(panel + static_cast<size_t>(num_blocks) * Kind::block_bytes));
}

// P panels from `panel` on (of a gated product gate and up of P / 2) for one group of rows, with the epilogue.
template <typename Kind, int P>
void panels_and_rows(const ProductTask& task, int32_t panel, int first_row, int count, const UnpackConstants& constants,
                     Workspace& work) {
  const bool gated = P > 1 && task.activation != ActivationKind::none;
  PanelSet<P> set;
  for (int p = 0; p < P; ++p) {
    const Panels& from = gated && p % 2 == 1 ? task.up : task.panels;
    set.panels[p] = from.data + static_cast<size_t>(gated ? panel + p / 2 : panel + p) * from.stride;
    set.upcoming[p] = set.panels[p] + static_cast<size_t>(gated ? P / 2 : P) * from.stride;
    set.sums[p] = work.sums + p * (P > 2 ? tile_rows : group_rows);
  }
  set.row_step = Kind::packed && count > 2 * tile_rows && task.input.cols > piece_blocks * block_k ? 1 : 0;
  F factors[P];
  for (int p = 0; p < P; ++p) factors[p] = sum_factors<Kind>(set.panels[p], task.input.cols / block_k);
  multiply_group<Kind, P>(set, task.input, first_row, count, constants, work, [&](int row, int rows) {
    if constexpr (P > 1) {
      for (int p = 0; gated && p < P; p += 2) {
        store_gated(task, panel + p / 2, first_row + row, rows, set.sums_of(p, row), set.sums_of(p + 1, row),
                    factors[p], factors[p + 1]);
      }
    }
    for (int p = 0; !gated && p < P; ++p) {
      store_tile<true>(task, panel + p, first_row + row, rows, set.sums_of(p, row), factors[p]);
    }
  });
}

template <typename Kind>
void all_panels(const ProductTask& task, int32_t first, int32_t end, Workspace& work) {
  const UnpackConstants constants = unpack_constants<Kind>(task.panels);
  const bool gated = task.activation != ActivationKind::none;
  const int32_t two = gated ? 1 : 2;  // panels that are two of a set
  const int32_t num_rows = task.input.num_rows;
  int32_t panel = first;
  if constexpr (!Kind::packed) {
    if (num_rows <= tile_rows) {
      for (; panel + 2 * two <= end; panel += 2 * two) {
        panels_and_rows<Kind, 4>(task, panel, 0, num_rows, constants, work);
      }
    }
  }
  for (; panel + two <= end; panel += two) {
    for (int row = 0; row < num_rows; row += group_rows) {
      const int count = num_rows - row < group_rows ? num_rows - row : group_rows;
      panels_and_rows<Kind, 2>(task, panel, row, count, constants, work);
    }
  }
  for (; panel < end; ++panel) {
    for (int row = 0; row < num_rows; row += group_rows) {
      const int count = num_rows - row < group_rows ? num_rows - row : group_rows;
      panels_and_rows<Kind, 1>(task, panel, row, count, constants, work);
    }
  }
}

// Calls work(Kind()) with the kind of panels that the matrix unit takes; false for the others.
template <typename Work>
TM_INLINE bool with_pairs(PackedKind kind, Work&& work) {
  switch (kind) {
    case PackedKind::bf16_pairs:
      return work(PairsAsTheyAre()), true;
    case PackedKind::p4_zero:
      return work(PairsOf<4, false>()), true;
    case PackedKind::p4_min:
      return work(PairsOf<4, true>()), true;
    case PackedKind::p4_table:
      return work(PairsOf<4, false, 1, true>()), true;
    case PackedKind::p4x2_zero:
      return work(PairsOf<4, false, 2>()), true;
    case PackedKind::p4x2_min:
      return work(PairsOf<4, true, 2>()), true;
    case PackedKind::p5_zero:
      return work(PairsOf<5, false>()), true;
    case PackedKind::p5_min:
      return work(PairsOf<5, true>()), true;
    case PackedKind::p6x2_zero:
      return work(PairsOf<6, false, 2>()), true;
    case PackedKind::p8_zero:
      return work(PairsOf<8, false>()), true;
    default:
      return false;
  }
}

void one_panel(const Panels& panels, int32_t panel, const Activations& input, int first_row, int count, Workspace& work,
               float (*sums)[panel_rows]) {
  const uint8_t* data = panels.data + static_cast<size_t>(panel) * panels.stride;
  const bool done = with_pairs(panels.kind, [&](auto kind) {
    using Kind = decltype(kind);
    const PanelSet<1> set = {{data}, {data + panels.stride}, {sums}, 1};
    const F factor = sum_factors<Kind>(data, input.cols / block_k);
    multiply_group<Kind, 1>(set, input, first_row, count, unpack_constants<Kind>(panels), work, [&](int row, int rows) {
      for (int r = row; r < row + rows; ++r) f_store(sums[r], f_mul(factor, f_load(sums[r])));
    });
  });
  for (int row = 0; !done && row < count; row += tile_rows) {
    const int rows = count - row < tile_rows ? count - row : tile_rows;
    float_rows<float>(data, input, first_row + row, rows, sums + row);
  }
}

// Products of F32 weights, and those whose gate and up differ in kind.
void single_panels(const ProductTask& task, int32_t first, int32_t end, Workspace& work) {
  const int32_t num_rows = task.input.num_rows;
  for (int32_t panel = first; panel < end; ++panel) {
    for (int row = 0; row < num_rows; row += group_rows) {
      const int count = num_rows - row < group_rows ? num_rows - row : group_rows;
      one_panel(task.panels, panel, task.input, row, count, work, work.sums);
      if (task.activation == ActivationKind::none) {
        store_tile(task, panel, row, count, work.sums);
        continue;
      }
      one_panel(task.up, panel, task.input, row, count, work, work.sums + group_rows);
      store_gated(task, panel, row, count, work.sums, work.sums + group_rows, f_set(1.0f), f_set(1.0f));
    }
  }
}

}  // namespace

void product_panels(const ProductTask& task, int32_t first, int32_t end) {
  const bool gated = task.activation != ActivationKind::none;
  const bool alike = !gated || (task.panels.kind == task.up.kind && task.panels.zero_shift == task.up.zero_shift &&
                                task.panels.table == task.up.table);
  const bool floats = task.panels.kind == PackedKind::f32 && (!gated || task.up.kind == PackedKind::f32);
  if (floats && task.input.num_rows <= avx512::product_tile_rows) return avx512::product_panels(task, first, end);
  const TileScope tiles(task.input.num_rows < tile_rows ? task.input.num_rows : tile_rows);
  Workspace work;
  if (floats || !alike) return single_panels(task, first, end, work);
  with_pairs(task.panels.kind, [&](auto kind) { all_panels<decltype(kind)>(task, first, end, work); });
}

}  // namespace tidemill::amx
