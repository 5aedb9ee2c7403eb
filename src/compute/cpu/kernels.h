// The kernels of every instruction set, by name. Each namespace has the same functions; their contract is here.
//
// A kernel is a pure function of its arguments: no allocation, no threads, no state. A row's result never depends on
// the other rows of the call. Instruction sets agree within rounding, not bit for bit.
#pragma once

#include "compute/cpu/kernel_types.h"

#define TM_DECLARE_KERNELS(isa, rows)                                                                              \
  namespace tidemill::isa {                                                                                        \
  /* Activation rows that product_panels takes at once. */                                                         \
  constexpr int product_tile_rows = rows;                                                                          \
  /* Panels first .. end - 1 for all rows, with the product's epilogue. */                                         \
  void product_panels(const cpu::ProductTask& task, int32_t first, int32_t end);                                   \
  /* Norm, then quantization and / or tile layout of one row. */                                                   \
  void prepare_row(const cpu::PrepareRow& args);                                                                   \
  void norm_row(const cpu::NormRow& args);                                                                         \
  /* Norms and rotates the query and key heads of a row in place, stores key and value in the block. */            \
  void rotate_and_store_row(const cpu::StoreRow& args);                                                            \
  /* A full block's keys [dim][block_size] or values [block_size][dim] to codes and scales, and back to floats. */ \
  void encode_keys(const cpu::CodeSide& side);                                                                     \
  void encode_values(const cpu::CodeSide& side);                                                                   \
  void decode_keys(const cpu::CodeSide& side);                                                                     \
  void decode_values(const cpu::CodeSide& side);                                                                   \
  /* The contribution of positions begin .. end - 1 to every query. */                                             \
  void attend(const cpu::AttentionTask& task, int32_t begin, int32_t end, const cpu::AttentionState& out);         \
  /* into = into followed by next. */                                                                              \
  void merge(const cpu::AttentionTask& task, const cpu::AttentionState& into, const cpu::AttentionState& next);    \
  /* Divides by the sum (sinks included) and writes the output rows. */                                            \
  void finish(const cpu::AttentionTask& task, const cpu::AttentionState& state);                                   \
  }

TM_DECLARE_KERNELS(scalar, 2)
TM_DECLARE_KERNELS(avx2, 4)
// A row needs one integer and one float accumulator: 24 of 32 registers, and 12 chains of sums, where the latency of
// a dot product (5 cycles, two per cycle) asks for 10.
TM_DECLARE_KERNELS(avx512, 12)
// Has products, their inputs' layout and attention of its own; the rest of its table is avx512's.
TM_DECLARE_KERNELS(amx, 16)

namespace tidemill::cpu {

struct KernelTable {
  const char* name;
  int32_t tile_rows;  // product_tile_rows
  bool bf16_pairs;    // weights, but for F32, are packed for products of BF16 pairs
  void (*product_panels)(const ProductTask&, int32_t, int32_t);
  void (*prepare_row)(const PrepareRow&);
  void (*norm_row)(const NormRow&);
  void (*rotate_and_store_row)(const StoreRow&);
  void (*encode_keys)(const CodeSide&);
  void (*encode_values)(const CodeSide&);
  void (*decode_keys)(const CodeSide&);
  void (*decode_values)(const CodeSide&);
  void (*attend)(const AttentionTask&, int32_t, int32_t, const AttentionState&);
  void (*merge)(const AttentionTask&, const AttentionState&, const AttentionState&);
  void (*finish)(const AttentionTask&, const AttentionState&);
};

}  // namespace tidemill::cpu
