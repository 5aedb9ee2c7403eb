// The values that stored weights stand for: the reference for every kernel and the way small tensors are read.
//
// Block layouts as ggml's published structures; exact in float32: each value is computed with the same operations, in
// the same order, as ggml's own reference, so results are equal bit for bit. No alignment is asked of `src`.
// Formats: ggml-common.h and ggml-quants.c of ggml; MXFP4: OCP Microscaling Formats (MX) 1.0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/dtype.h"

namespace tidemill {

// count must fill whole blocks of the type (checked); dst has room for count values.
void dequantize_row(DType type, const std::byte* src, float* dst, int64_t count);

// The other way, for quantizing while loading: to the nearest, as ggml does it (q8_0: scale = largest / 127; q4_0:
// scale = value of largest magnitude / -8). A non-finite value gives a block of zeros and is not an error here. count
// fills whole blocks (checked); dst has room for count / 32 blocks.
void quantize_row_q8_0(const float* src, std::byte* dst, int64_t count);
void quantize_row_q4_0(const float* src, std::byte* dst, int64_t count);

}  // namespace tidemill
