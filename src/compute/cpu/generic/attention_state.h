// What attention shares on every instruction set: where blocks lie, and how the base of a query's exponents moves.
// Include after an instruction set's simd.h.
#pragma once

#include "compute/cpu/generic/kv_decode.h"
#include "compute/cpu/generic/math.h"
#include "compute/cpu/kernels.h"

#ifdef TM_NO_UNROLL
#define TM_UNROLL_4
#else
#define TM_UNROLL_4 _Pragma("GCC unroll 4")
#endif

namespace tidemill::TM_ISA {
namespace {

using cpu::AttentionState;
using cpu::AttentionTask;
using cpu::BlockRef;
using cpu::softmax_tile;

constexpr float log2_e = 1.44269504f;

TM_INLINE int smaller(int a, int b) {
  return a < b ? a : b;
}
TM_INLINE int larger(int a, int b) {
  return a > b ? a : b;
}
TM_INLINE int value_stride(const AttentionTask& task) {
  return (task.value_dim + 15) / 16 * 16;
}

// [head_dim]
TM_INLINE const float* query_elements(const AttentionTask& task, int query) {
  return task.queries + query / task.group * task.row_stride + static_cast<int64_t>(query % task.group) * task.head_dim;
}

// Position 16 * group of the tile in its block.
struct GroupPlace {
  const BlockRef* block;
  int offset;
};

TM_INLINE GroupPlace place_of(const AttentionTask& task, int position) {
  return {task.blocks + (position / task.block_size - task.first_block), position % task.block_size};
}

// The block that lies as far behind `position` as the next tile does behind this one; null where nobody reads it.
TM_INLINE const BlockRef* block_ahead(const AttentionTask& task, int position, int tile_start, int span_end) {
  const int ahead = position + softmax_tile;
  if (ahead < span_end) return place_of(task, ahead).block;
  if (tile_start + softmax_tile < span_end || !task.upcoming) return nullptr;
  return task.upcoming + (position - tile_start) / task.block_size;
}

TM_INLINE StoredSide keys_of(const AttentionTask& task, const BlockRef& block) {
  return {static_cast<const uint8_t*>(block.keys), block.key_code, task.head_dim, task.block_size};
}
TM_INLINE StoredSide values_of(const AttentionTask& task, const BlockRef& block) {
  return {static_cast<const uint8_t*>(block.values), block.value_code, task.value_dim, task.block_size};
}

// 2^(x - base), 0 for x = minus infinity.
TM_INLINE float weight_of(float x, float base) {
  float lane[16];
  f_store(lane, f_exp2(f_set(x - base)));
  return lane[0];
}

// Moves the base of a query's exponents above `largest`, with some room: so few tiles have to do it again. Bases are
// whole numbers, and what was summed so far is scaled exactly.
__attribute__((noinline)) void rescale(float largest, float* base, float* sums, float* acc, int stride) {
  constexpr float room = 8;
  const float next = ceilf(largest) + room, before = *base;
  *base = next;
  if (before == -__builtin_inff()) return;  // nothing was summed so far
  const F correction = f_set(weight_of(before, next));
  f_store(sums, f_mul(f_load(sums), correction));
  for (int i = 0; i < stride; i += 16) f_store(acc + i, f_mul(f_load(acc + i), correction));
}

}  // namespace
}  // namespace tidemill::TM_ISA
