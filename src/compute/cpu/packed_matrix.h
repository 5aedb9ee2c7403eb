// A weight matrix as panels of 16 output rows: one layout for all instruction sets (kernel_types.h has it in bytes).
//
// Immutable after packing, so any thread may read. Every quantized type is represented exactly; F16
// is rounded to BF16 for the matrix unit. Rows of a part that do
// not fill its last panel are padded with zero weights. In a gated matrix the panels of gate and up alternate, so that
// one worker reads both in one stream.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "compute/backend.h"
#include "compute/cpu/aligned_memory.h"
#include "compute/cpu/kernel_types.h"

namespace tidemill::cpu {

// One part's panels, and where its rows begin among the matrix's outputs.
struct PackedPart {
  Panels panels = {};
  int32_t first_output = 0;
  int32_t num_panels = 0;
  DType type = DType::f32;  // in the file
  bool quantized = false;
};

// Where matrices lie: many are smaller than a huge page, so they share larger pieces of memory. With small pages only,
// a step of one row spends as long on translating addresses as on reading. One thread.
class WeightMemory {
 public:
  struct Share {
    std::shared_ptr<AlignedMemory> piece;  // keeps the bytes
    std::byte* data = nullptr;             // null: no memory
  };
  Share take(size_t size_bytes);

 private:
  std::shared_ptr<AlignedMemory> newest_;
  size_t used_bytes_ = 0;  // of the newest piece
};

class PackedMatrix : public Matrix {
 public:
  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  size_t size_bytes() const override { return size_bytes_; }

  MatrixLayout layout() const { return layout_; }
  std::span<const PackedPart> parts() const { return parts_; }
  bool any_quantized() const;
  bool any_float() const;  // of the kinds that multiply floats
  bool any_pairs() const;

  // Row `row` as floats, [cols].
  void read_row(int64_t row, float* out) const;

 private:
  friend Result<std::unique_ptr<Matrix>> pack_matrix(std::span<const WeightPart>, MatrixLayout, bool, ThreadPool&,
                                                     WeightMemory&);

  int64_t rows_ = 0;
  int64_t cols_ = 0;
  MatrixLayout layout_ = MatrixLayout::stacked;
  std::vector<PackedPart> parts_;
  std::shared_ptr<AlignedMemory> memory_;
  size_t size_bytes_ = 0;
};

// Packs on all threads of the pool, 16-bit floats as bf16_pairs where the kernels want them so. An Error names the part
// and the shape that is not possible.
Result<std::unique_ptr<Matrix>> pack_matrix(std::span<const WeightPart> parts, MatrixLayout layout, bool bf16_pairs,
                                            ThreadPool& threads, WeightMemory& memory);

}  // namespace tidemill::cpu
