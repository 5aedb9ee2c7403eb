// Blocks of quantized file weights as small unsigned codes with scales: what a packed panel is made of.
//
// Exact: scale * (code - zero_point) + min is the value that dequantize_row gives, up to the rounding of that product
// and sum. Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/cpu/kernel_types.h"
#include "compute/dtype.h"

namespace tidemill::cpu {

struct WeightKind {
  PackedKind kind;
  uint8_t zero_shift = 0;          // zero point 1 << zero_shift, for kinds that have one
  const uint8_t* table = nullptr;  // [16], for c4 kinds
  int bits = 0;                    // of a code; 0 = a float kind
  int num_groups = 1;              // scales (and mins) per block of 32
  bool has_min = false;
  bool half_scales = false;
  bool unpacks_to_pairs = false;  // a kind of the matrix unit
};

// How weights of this file type are packed. for_pairs: for kernels that multiply pairs of BF16, which take everything
// but F32 so.
WeightKind weight_kind(DType type, bool for_pairs);

// 32 weights of one row. Codes are those that a panel stores: before the table lookup, for kinds that have one.
struct CodeBlock {
  uint8_t codes[block_k];
  float scales[2];
  float mins[2];
};

// Block `index` (of 32 weights) of a row of a block format, as it lies in the file.
void read_codes(DType type, const std::byte* row, int64_t index, CodeBlock& out);

}  // namespace tidemill::cpu
