// One panel times a tile of activation rows, and what follows the sums. Include after an instruction set's simd.h.
//
// Every output is one chain of float operations in ascending order of blocks (or inputs), the same for every number of
// rows: vector lanes span outputs.
#pragma once

#include "compute/cpu/generic/math.h"
#include "compute/cpu/kernels.h"

namespace tidemill::TM_ISA {
namespace {

using cpu::ActBlock;
using cpu::ActivationKind;
using cpu::Activations;
using cpu::block_k;
using cpu::max_tile_rows;
using cpu::PackedKind;
using cpu::panel_rows;
using cpu::Panels;
using cpu::ProductTask;

constexpr int parts = panel_rows / lanes;  // vectors per panel
static_assert(product_tile_rows <= max_tile_rows);

template <typename ScaleType, int Bits, bool HasMin, int Groups = 1, bool Lookup = false>
struct Quantized {
  using Scale = ScaleType;
  static constexpr int bits = Bits, groups = Groups;
  static constexpr bool has_min = HasMin, lookup = Lookup;
  // Codes above 128, which the 16-bit products of AVX2 cannot take, occur only around a zero point.
  static constexpr bool wide = !HasMin && Groups == 1 && (Bits == 8 || Lookup);
  static constexpr int code_bytes = panel_rows * block_k * Bits / 8;
  static constexpr int scale_count = panel_rows * Groups;
  // Of a block's codes, scales and mins together.
  static constexpr int block_bytes = code_bytes + scale_count * static_cast<int>(sizeof(Scale)) * (HasMin ? 2 : 1);
};

// dots[r] += codes (inputs 4j .. 4j + 3 of 16 outputs) times the activations of row r.
template <typename Kind, int R>
TM_INLINE void add_dots(MI (&dots)[R], MB codes, MB table, const ActBlock* act, int j) {
  if constexpr (Kind::lookup) codes = b_lookup(table, codes);
  TM_UNROLL
  for (int r = 0; r < R; ++r) dots[r] = i_dot<Kind::wide>(dots[r], codes, act[r].q + 4 * j);
}

// sums[r] += the share of one block in row r, for one vector of outputs. Rows take turns, so that their chains of
// integer sums overlap.
template <typename Kind, int R>
TM_INLINE void add_block(MF (&sums)[R], const uint8_t* codes, MB table, const typename Kind::Scale* scales,
                         const typename Kind::Scale* mins, const ActBlock* act, int zero_shift) {
  constexpr int vectors = 8 / Kind::groups;
  TM_UNROLL
  for (int g = 0; g < Kind::groups; ++g) {
    const int which = Kind::groups == 1 ? 0 : 1 + g;
    MI dots[R];
    TM_UNROLL
    for (int r = 0; r < R; ++r) {
      dots[r] = Kind::has_min ? i_set(0) : i_shift(i_set(act[r].negative_sum[which]), zero_shift);
    }
    if constexpr (Kind::bits == 8) {
      TM_UNROLL
      for (int j = g * vectors; j < (g + 1) * vectors; ++j)
        add_dots<Kind, R>(dots, b_load(codes + j * 64), table, act, j);
    } else {
      TM_UNROLL
      for (int j = 0; j < 4; ++j) {
        const MB both = b_load(codes + j * 64);
        add_dots<Kind, R>(dots, b_low(both), table, act, j);
        add_dots<Kind, R>(dots, b_high(both), table, act, j + 4);
      }
    }
    const MF scale = m_load(scales + g * panel_rows);
    TM_UNROLL
    for (int r = 0; r < R; ++r) sums[r] = m_fma(m_from(dots[r]), m_mul(scale, m_set(act[r].scale)), sums[r]);
    if constexpr (Kind::has_min) {
      const MF min = m_load(mins + g * panel_rows);
      TM_UNROLL
      for (int r = 0; r < R; ++r) sums[r] = m_fma(min, m_set(act[r].scaled_sum[which]), sums[r]);
    }
  }
}

// Fetches one block's share of the panel that follows in memory: between two panels, the processor's own fetching ahead
// loses the track.
template <typename Kind>
TM_INLINE void prefetch_block(const uint8_t* next) {
  TM_UNROLL
  for (int line = 0; line < Kind::block_bytes; line += 64) __builtin_prefetch(next + line, 0, 2);
}

// out[r] = panel * activation row r.
template <typename Kind, int R>
void quantized_tile(const Panels& panels, const uint8_t* panel, const ActBlock* act, int cols,
                    float (*out)[panel_rows]) {
  using Scale = typename Kind::Scale;
  const int num_blocks = cols / block_k;
  const MB table = Kind::lookup ? b_table(panels.table) : b_load(panel);
  for (int part = 0; part < parts; ++part) {
    const uint8_t* code = panel + part * lanes * 4;
    const Scale* scale = reinterpret_cast<const Scale*>(panel + static_cast<size_t>(num_blocks) * Kind::code_bytes);
    const Scale* min = scale + static_cast<size_t>(num_blocks) * Kind::scale_count;
    const ActBlock* block_act = act;
    const uint8_t* next = panel + static_cast<size_t>(num_blocks) * Kind::block_bytes;
    scale += part * lanes;
    min += part * lanes;
    MF sums[R];
    for (MF& sum : sums) sum = m_zero();
    for (int b = 0; b < num_blocks; ++b, next += Kind::block_bytes) {
      if (part == 0) prefetch_block<Kind>(next);
      add_block<Kind, R>(sums, code, table, scale, min, block_act, panels.zero_shift);
      code += Kind::code_bytes;
      scale += Kind::scale_count;
      min += Kind::scale_count;
      block_act += R;
    }
    for (int r = 0; r < R; ++r) m_store(out[r] + part * lanes, sums[r]);
  }
}

// out[p][r] = panel p * activation row r, for P adjacent panels: enough independent chains where rows are few.
template <typename T, int R, int P>
void float_tile(const uint8_t* panel, size_t stride, const float* act, int cols,
                float (*out)[max_tile_rows][panel_rows]) {
  for (int part = 0; part < parts; ++part) {
    MF sums[P][R];
    for (auto& row : sums) {
      for (MF& sum : row) sum = m_zero();
    }
    const T* weights[P];
    for (int p = 0; p < P; ++p) weights[p] = reinterpret_cast<const T*>(panel + p * stride) + part * lanes;
    for (int k = 0; k < cols; ++k) {
      TM_UNROLL
      for (int p = 0; p < P; ++p) {
        const MF w = m_load(weights[p] + static_cast<size_t>(k) * panel_rows);
        TM_UNROLL
        for (int r = 0; r < R; ++r) sums[p][r] = m_fma(w, m_set(act[static_cast<size_t>(k) * R + r]), sums[p][r]);
      }
    }
    for (int p = 0; p < P; ++p) {
      for (int r = 0; r < R; ++r) m_store(out[p][r] + part * lanes, sums[p][r]);
    }
  }
}

template <ActivationKind kind>
TM_INLINE F activate(F x) {
  if constexpr (kind == ActivationKind::silu) return f_silu(x);
  if constexpr (kind == ActivationKind::gelu_tanh) return f_gelu_tanh(x);
  if constexpr (kind == ActivationKind::gelu_erf) return f_gelu_erf(x);
  if constexpr (kind == ActivationKind::relu) return f_max(x, f_zero());
  return x;
}

// Calls work.template operator()<kind>().
template <typename Work>
TM_INLINE void with_activation(ActivationKind kind, Work&& work) {
  switch (kind) {
    case ActivationKind::silu:
      return work.template operator()<ActivationKind::silu>();
    case ActivationKind::gelu_tanh:
      return work.template operator()<ActivationKind::gelu_tanh>();
    case ActivationKind::gelu_erf:
      return work.template operator()<ActivationKind::gelu_erf>();
    case ActivationKind::relu:
      return work.template operator()<ActivationKind::relu>();
    case ActivationKind::none:
      return work.template operator()<ActivationKind::none>();
  }
}

// The epilogue of a stacked product's tile. Scaled: its sums are to be multiplied by `factor` first.
template <bool Scaled = false>
inline void store_tile(const ProductTask& task, int32_t panel, int row, int rows, const float (*tile)[panel_rows],
                       F factor = f_zero()) {
  const int first = panel * panel_rows;
  const int n = task.panels.num_outputs - first < panel_rows ? task.panels.num_outputs - first : panel_rows;
  const F bias = task.bias ? f_load_n(task.bias + first, n) : f_zero();
  const F scale = f_set(task.scale);
  // Copies: for all that the compiler knows, the outputs could overlap the task.
  const int64_t stride = task.output_stride;
  const float softcap = task.softcap;
  const bool accumulate = task.accumulate;
  float* out = task.output + row * stride + first;
  for (int r = 0; r < rows; ++r, out += stride) {
    const F sum = Scaled ? f_mul(factor, f_load(tile[r])) : f_load(tile[r]);
    F value = f_mul(scale, f_add(sum, bias));
    if (softcap > 0) value = f_softcap(value, softcap);
    if (accumulate) value = f_add(f_load_n(out, n), value);
    f_store_n(out, value, n);
  }
}

// The epilogue of a gated product's tile.
template <bool Scaled = false>
inline void store_gated_tile(const ProductTask& task, int32_t panel, int row, int rows, const float (*gate)[panel_rows],
                             const float (*up)[panel_rows], F gate_factor = f_zero(), F up_factor = f_zero()) {
  const int first = panel * panel_rows;
  const int n = task.panels.num_outputs - first < panel_rows ? task.panels.num_outputs - first : panel_rows;
  const F gate_bias = task.bias ? f_load_n(task.bias + first, n) : f_zero();
  const F up_bias = task.up_bias ? f_load_n(task.up_bias + first, n) : f_zero();
  const F scale = f_set(task.scale);
  const int64_t stride = task.output_stride;
  const bool accumulate = task.accumulate;
  float* const begin = task.output + row * stride + first;
  with_activation(task.activation, [&]<ActivationKind kind>() {
    float* out = begin;
    for (int r = 0; r < rows; ++r, out += stride) {
      const F gate_sum = Scaled ? f_mul(gate_factor, f_load(gate[r])) : f_load(gate[r]);
      const F up_sum = Scaled ? f_mul(up_factor, f_load(up[r])) : f_load(up[r]);
      const F g = activate<kind>(f_add(gate_sum, gate_bias));
      F value = f_mul(scale, f_mul(g, f_add(up_sum, up_bias)));
      if (accumulate) value = f_add(f_load_n(out, n), value);
      f_store_n(out, value, n);
    }
  });
}

// Picks the tile of exactly `rows` rows.
template <typename Kind, int R = product_tile_rows>
TM_INLINE void quantized_rows(const Panels& panels, const uint8_t* panel, const Activations& input, int row, int rows,
                              float (*out)[panel_rows]) {
  if constexpr (R > 1) {
    if (rows < R) return quantized_rows<Kind, R - 1>(panels, panel, input, row, rows, out);
  }
  const ActBlock* act = input.blocks + static_cast<size_t>(row) * (input.cols / block_k);
  quantized_tile<Kind, R>(panels, panel, act, input.cols, out);
}

template <typename T, int R = product_tile_rows>
TM_INLINE void float_rows(const uint8_t* panel, const Activations& input, int row, int rows, float (*out)[panel_rows]) {
  if constexpr (R > 1) {
    if (rows < R) return float_rows<T, R - 1>(panel, input, row, rows, out);
  }
  const float* act = input.floats + static_cast<size_t>(row) * input.cols;
  float_tile<T, R, 1>(panel, 0, act, input.cols, reinterpret_cast<float(*)[max_tile_rows][panel_rows]>(out));
}

inline void panel_tile(const Panels& panels, int32_t panel, const Activations& input, int row, int rows,
                       float (*out)[panel_rows]) {
  const uint8_t* data = panels.data + panel * panels.stride;
  switch (panels.kind) {
    case PackedKind::f32:
      return float_rows<float>(data, input, row, rows, out);
    case PackedKind::f16:
      return float_rows<Half>(data, input, row, rows, out);
    case PackedKind::bf16:
      return float_rows<BFloat>(data, input, row, rows, out);
    case PackedKind::bf16_pairs:
    case PackedKind::p4_zero:
    case PackedKind::p4_min:
    case PackedKind::p4_table:
    case PackedKind::p4x2_zero:
    case PackedKind::p4x2_min:
    case PackedKind::p5_zero:
    case PackedKind::p5_min:
    case PackedKind::p6x2_zero:
    case PackedKind::p8_zero:
      return;  // for kernels that multiply pairs
    case PackedKind::u4_zero_h:
      return quantized_rows<Quantized<Half, 4, false>>(panels, data, input, row, rows, out);
    case PackedKind::u4_min_h:
      return quantized_rows<Quantized<Half, 4, true>>(panels, data, input, row, rows, out);
    case PackedKind::u4_min_f:
      return quantized_rows<Quantized<float, 4, true>>(panels, data, input, row, rows, out);
    case PackedKind::c4_zero_f:
      return quantized_rows<Quantized<float, 4, false, 1, true>>(panels, data, input, row, rows, out);
    case PackedKind::u8_zero_h:
      return quantized_rows<Quantized<Half, 8, false>>(panels, data, input, row, rows, out);
    case PackedKind::u8_min_h:
      return quantized_rows<Quantized<Half, 8, true>>(panels, data, input, row, rows, out);
    case PackedKind::u8_min_f:
      return quantized_rows<Quantized<float, 8, true>>(panels, data, input, row, rows, out);
    case PackedKind::u8x2_zero_f:
      return quantized_rows<Quantized<float, 8, false, 2>>(panels, data, input, row, rows, out);
    case PackedKind::u8x2_min_f:
      return quantized_rows<Quantized<float, 8, true, 2>>(panels, data, input, row, rows, out);
  }
}

}  // namespace
}  // namespace tidemill::TM_ISA
