// The product of packed panels with all rows of a step, tile by tile. Include after an instruction set's simd.h.
#pragma once

#include "compute/cpu/generic/matmul.h"

namespace tidemill::TM_ISA {
namespace {

inline void run_panel(const ProductTask& task, int32_t panel) {
  alignas(64) float tile[2][max_tile_rows][panel_rows];
  const int32_t num_rows = task.input.num_rows;
  for (int32_t row = 0; row < num_rows; row += product_tile_rows) {
    const int32_t rows = num_rows - row < product_tile_rows ? num_rows - row : product_tile_rows;
    panel_tile(task.panels, panel, task.input, row, rows, tile[0]);
    if (task.activation == ActivationKind::none) {
      store_tile(task, panel, row, rows, tile[0]);
    } else {
      panel_tile(task.up, panel, task.input, row, rows, tile[1]);
      store_gated_tile(task, panel, row, rows, tile[0], tile[1]);
    }
  }
}

// One row of float weights is a single chain of sums per output, so four panels go together.
template <typename T>
void single_float_row(const ProductTask& task, int32_t first, int32_t end) {
  alignas(64) float tile[4][max_tile_rows][panel_rows];
  int32_t panel = first;
  for (; panel + 4 <= end; panel += 4) {
    float_tile<T, 1, 4>(task.panels.data + panel * task.panels.stride, task.panels.stride, task.input.floats,
                        task.input.cols, tile);
    for (int p = 0; p < 4; ++p) store_tile(task, panel + p, 0, 1, tile[p]);
  }
  for (; panel < end; ++panel) run_panel(task, panel);
}

}  // namespace

void product_panels(const ProductTask& task, int32_t first, int32_t end) {
  if (task.input.num_rows == 1 && task.activation == ActivationKind::none) {
    if (task.panels.kind == PackedKind::f32) return single_float_row<float>(task, first, end);
    if (task.panels.kind == PackedKind::f16) return single_float_row<Half>(task, first, end);
    if (task.panels.kind == PackedKind::bf16) return single_float_row<BFloat>(task, first, end);
  }
  for (int32_t panel = first; panel < end; ++panel) run_panel(task, panel);
}

}  // namespace tidemill::TM_ISA
