// A weight matrix as panels of 16 output rows: one layout for all instruction sets (kernel_types.h has it in bytes).
//
// Immutable after packing, so any thread may read. Every quantized type is represented exactly; for the matrix unit,
// F16 is rounded to BF16, and scales and mins to halves times a power of two per row. Rows of a part that do not fill
// its last panel are padded with zero weights. In a gated matrix the panels of gate and up alternate, so that one
// worker reads both in one stream.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "base/work_claim.h"
#include "compute/backend.h"
#include "compute/cpu/kernel_types.h"
#include "compute/cpu/packed_store.h"
#include "compute/cpu/weight_memory.h"

namespace tidemill::cpu {

// Raised with every change of the bytes of a packed matrix: files of another version are not read.
inline constexpr int packed_layout_version = 3;

// Who packs, and where the result lies. Panels are packed, and so first touched, by the workers of the memory node
// whose workers claim them in a product.
struct PackTarget {
  ThreadPool& threads;
  WorkClaim& claim;
  WeightArena& arena;
  PackedStore* store = nullptr;  // where packed matrices are looked up and noted; null = nowhere
  bool bf16_pairs = false;       // for kernels that multiply pairs of BF16
};

// One part's panels, and where its rows begin among the matrix's outputs.
struct PackedPart {
  Panels panels = {};
  int32_t first_output = 0;
  int32_t num_panels = 0;
  DType type = DType::f32;  // in the file
  bool quantized = false;
  bool pairs = false;  // multiplied as pairs of BF16
};

class PackedMatrix : public Matrix {
 public:
  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  size_t size_bytes() const override { return memory_.size_bytes; }

  MatrixLayout layout() const { return layout_; }
  std::span<const PackedPart> parts() const { return parts_; }
  // Whether any part multiplies int8 blocks, floats, or pairs of BF16.
  bool any_quantized() const;
  bool any_float() const;
  bool any_pairs() const;

  // Pieces of work in a product: panels, numbered through all parts; pairs of panels in a gated matrix.
  int32_t num_pieces() const;

  // Row `row` as floats, [cols].
  void read_row(int64_t row, float* out) const;

 private:
  friend Result<std::unique_ptr<Matrix>> pack_matrix(std::span<const WeightPart>, MatrixLayout, const PackTarget&);

  int64_t rows_ = 0;
  int64_t cols_ = 0;
  MatrixLayout layout_ = MatrixLayout::stacked;
  std::vector<PackedPart> parts_;
  WeightMemory memory_;
};

// Packs on all threads of the pool, or takes what the store has. An Error names the part and the shape that is not
// possible.
Result<std::unique_ptr<Matrix>> pack_matrix(std::span<const WeightPart> parts, MatrixLayout layout,
                                            const PackTarget& target);

}  // namespace tidemill::cpu
