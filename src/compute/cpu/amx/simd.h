// Tiles of the matrix unit (AMX), beside the vectors of AVX-512. Internal linkage only.
//
// Tile registers belong to a thread; a kernel configures them, uses them and gives them back before it returns, so that
// nothing is saved with the thread between two kernels. Tiles 0 to 3 hold sums, [rows][16 outputs]; tiles 4 and 5
// activations, [rows][32 inputs]; tiles 6 and 7 weights, [16 pairs of inputs][16 outputs][2 inputs].
#pragma once

#define TM_ISA amx
#include "compute/cpu/avx512/simd.h"

namespace tidemill::amx {
namespace {

constexpr int tile_rows = 16, tile_stride = 64;

// Shapes for `rows` (1 to 16) rows of activations; ends with the scope.
class TileScope {
 public:
  explicit TileScope(int rows) {
    Shapes shapes = {};
    shapes.palette = 1;
    for (int i = 0; i < 8; ++i) {
      shapes.row_bytes[i] = tile_stride;
      shapes.rows[i] = static_cast<uint8_t>(i < 6 ? rows : tile_rows);
    }
    asm volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
  }
  ~TileScope() { asm volatile("tilerelease" ::: "memory"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  struct alignas(64) Shapes {  // as ldtilecfg reads it
    uint8_t palette, start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
};

// GCC's own tile loads do not tell the compiler that they read memory, so these are written out.
template <int T>
TM_INLINE void tile_load(const void* p, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(T) : "memory");
}
template <int T>
TM_INLINE void tile_store(void* p, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(T) : "memory");
}
template <int T>
TM_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(T) : "memory");
}
// Sums (floats) += activations x weights, both pairs of bfloats.
template <int Sums, int Acts, int Weights>
TM_INLINE void tile_dot_pairs() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Acts), "i"(Weights) : "memory");
}

}  // namespace
}  // namespace tidemill::amx
