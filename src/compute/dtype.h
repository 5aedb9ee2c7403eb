// The number formats that weights come in.
//
// A tensor of a block format is a row-major array whose innermost dimension is a multiple of block_values(); each run
// of that many values is stored in block_bytes() bytes, layouts as ggml's published block structures (scales included).
// Which values the bytes stand for is written in compute/dequantize.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace tidemill {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  mxfp4,
};
inline constexpr int num_dtypes = 15;

// As users know it: "F32", "Q4_1", "Q4_K", "IQ4_NL", "MXFP4".
const char* dtype_name(DType type);

// Values in one block: 1, 32 or 256.
int64_t block_values(DType type);
// Bytes of one block, scales included.
int64_t block_bytes(DType type);
inline bool is_block_format(DType type) {
  return block_values(type) > 1;
}

// Bytes of `count` values that form whole blocks; nullopt where count is negative, does not fill whole blocks, or the
// product does not fit 63 bits.
std::optional<int64_t> bytes_of_values(DType type, int64_t count);

// The type id of a GGUF tensor entry. A type that exists but is not supported is refused by its name ("IQ2_XS"), a
// retired id as retired, and any other by its number.
Result<DType> dtype_from_gguf(uint32_t type_id);

// The dtype text of a safetensors header: "F32", "F16", "BF16". Others are refused by name.
Result<DType> dtype_from_safetensors(std::string_view name);

}  // namespace tidemill
