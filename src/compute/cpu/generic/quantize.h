// Norm of a row and its layout for products. Include after an instruction set's simd.h.
#pragma once

#include "compute/cpu/generic/math.h"
#include "compute/cpu/kernels.h"

namespace tidemill::TM_ISA {
namespace {

using cpu::ActBlock;
using cpu::block_k;
using cpu::PrepareRow;

// x[0 .. 31] as int8 with scale = largest magnitude / 127.
TM_INLINE void quantize_block(const float* x, ActBlock* out) {
  const F low = f_load(x), high = f_load(x + 16);
  const float largest = f_largest(f_max(f_abs(low), f_abs(high)));
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  const F limit = f_set(127.0f), factor = f_set(inverse);
  const F q_low = f_max(f_min(f_round(f_mul(low, factor)), limit), f_sub(f_zero(), limit));
  const F q_high = f_max(f_min(f_round(f_mul(high, factor)), limit), f_sub(f_zero(), limit));
  f_store_i8(out->q, q_low);
  f_store_i8(out->q + 16, q_high);
  const float scale = largest / 127.0f;
  out->scale = scale;
  const float low_sum = f_sum(q_low), high_sum = f_sum(q_high);  // whole numbers: exact in any order
  const float sums[3] = {low_sum + high_sum, low_sum, high_sum};
  for (int i = 0; i < 3; ++i) {
    out->scaled_sum[i] = scale * sums[i];
    out->negative_sum[i] = sums[i] == sums[i] ? -static_cast<int32_t>(sums[i]) : 0;
  }
}

// Inputs times pair_unit as bfloats, 32 by 32 to out + i * step; what is missing of the last 32 is zeros.
inline void round_row(const float* x, int cols, uint16_t* out, int64_t step) {
  const F unit = f_set(cpu::pair_unit);
  int k = 0;
  for (; k + block_k <= cols; k += block_k, out += step) {
    f_store_as(reinterpret_cast<BFloat*>(out), f_mul(unit, f_load(x + k)));
    f_store_as(reinterpret_cast<BFloat*>(out + 16), f_mul(unit, f_load(x + k + 16)));
  }
  if (k == cols) return;
  const int low = cols - k < 16 ? cols - k : 16;
  f_store_as(reinterpret_cast<BFloat*>(out), f_mul(unit, f_load_n(x + k, low)));
  f_store_as(reinterpret_cast<BFloat*>(out + 16), f_mul(unit, f_load_n(x + k + low, cols - k - low)));
}

}  // namespace

void prepare_row(const PrepareRow& args) {
  const float* x = args.x;
  if (args.norm_weight) {
    const F inverse = f_set(inverse_rms(x, args.cols, args.epsilon));
    int i = 0;
    for (; i + 16 <= args.cols; i += 16) {
      f_store(args.scratch + i, f_mul(f_mul(f_load(x + i), inverse), f_load(args.norm_weight + i)));
    }
    const int rest = args.cols - i;
    if (rest > 0) {
      const F value = f_mul(f_mul(f_load_n(x + i, rest), inverse), f_load_n(args.norm_weight + i, rest));
      f_store_n(args.scratch + i, value, rest);
    }
    x = args.scratch;
  }
  if (args.blocks) {
    ActBlock* out = args.blocks + args.row;
    int k = 0;
#ifdef TM_QUANTIZE_FOUR  // where the instruction set has it, with the same results
    for (; k + 4 * block_k <= args.cols; k += 4 * block_k, out += 4 * args.rows) quantize_four(x + k, out, args.rows);
#endif
    for (; k + block_k <= args.cols; k += block_k, out += args.rows) quantize_block(x + k, out);
  }
  if (args.floats) {
    float* out = args.floats + args.row;
    for (int k = 0; k < args.cols; ++k, out += args.rows) *out = x[k];
  }
  if (args.pairs) round_row(x, args.cols, args.pairs + args.row * block_k, args.rows * block_k);
}

}  // namespace tidemill::TM_ISA
