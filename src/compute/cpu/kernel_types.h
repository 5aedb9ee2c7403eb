// The plain values that cross between the backend and the kernels of one instruction set.
//
// No functions, no standard library: kernel sources are compiled with flags of their own and must not lend the linker
// any shared code. All pointers are borrowed for the time of one call.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compute/kv_format.h"

namespace tidemill::cpu {

inline constexpr int panel_rows = 16;       // weight rows (outputs) of a panel; the width of every tile
inline constexpr int block_k = 32;          // inputs per quantized block
inline constexpr int max_tile_rows = 16;    // activation rows of a tile, at most
inline constexpr int softmax_tile = 64;     // positions between two rescalings of the online softmax
inline constexpr int attention_span = 512;  // positions of one partial attention result, at absolute multiples
inline constexpr int max_queries = 240;     // queries that share one pass over the keys

// How the weights of a panel are packed. A quantized panel is, for its blocks b of 32 inputs,
//   codes   [num_blocks][256 or 512 bytes]  64-byte vectors of 16 rows x 4 inputs; vector j of an 8-bit block holds
//           inputs 4j..4j+3; of a 4-bit block low nibbles hold inputs 4j.., high nibbles 16 + 4j..
//   scales  [num_blocks][num_groups][16 rows]
//   mins    [num_blocks][num_groups][16 rows], where the kind has them
// and stands for scale * (code - zero_point) + min. A float panel is [cols][16 rows];
// bf16_pairs is [ceil(cols / 32)][16 pairs of inputs][16 rows][2 inputs], padded with zeros.
//
// The kinds that are unpacked to such pairs (p4 to p8) have, for their blocks,
//   codes   [num_blocks][256 to 512 bytes]  64-byte vectors of 16 rows x 2 words; nibble n of word s of vector j holds
//           input 8j + 2n + s, byte n of an 8-bit block input 4j + 2n + s. Behind the 4 vectors of nibbles are the
//           fifth (and sixth) bits, all those of the first (and second) half of the inputs in one vector: those of
//           input 8j + 2n + s are bit (or pair of bits) 4j + n of word s, in the second half of 6-bit blocks 4j + n - 8
//   scales  [num_blocks][num_groups][16 rows]  halves
//   mins    [num_blocks][num_groups][16 rows]  halves, where the kind has them
//   factors [16 rows]  floats, powers of two
// and stand for factor * pair_unit / half_unit * bfloat(half(scale * (code - zero_point) + min)), where no such half
// reaches 1 in magnitude. The scales of p4 to p6, but for p4_table, are stored code_unit times as large.
enum class PackedKind : uint8_t {
  f32,
  f16,
  bf16,
  bf16_pairs,  // of F16 and BF16 weights, for the matrix unit
  u4_zero_h,   // 4-bit codes, zero point, half scales
  u4_min_h,    // 4-bit codes, half scales and mins
  u4_min_f,    // the same with float scales and mins
  c4_zero_f,   // 4-bit codes into a table of 16 values, zero point, float scales
  u8_zero_h,   // 8-bit codes
  u8_min_h,
  u8_min_f,
  u8x2_zero_f,  // 8-bit codes, groups of 16 inputs
  u8x2_min_f,
  p4_zero,  // for the matrix unit: 4-bit codes, zero point
  p4_min,
  p4_table,   // into a table of 16 values, zero point
  p4x2_zero,  // groups of 16 inputs
  p4x2_min,
  p5_zero,
  p5_min,
  p6x2_zero,
  p8_zero,
};
// One over what a code of 4 to 6 bits is as the upper bits of a half's mantissa.
constexpr float code_unit(int bits) {
  return bits == 6 ? 524288.0f : 262144.0f;
}
inline constexpr float pair_unit = 0x1p64f;   // activations are so many times as large in pairs
inline constexpr float half_unit = 0x1p112f;  // a half's bits read as a BF16 are so many times smaller

// Panels of one kind, `stride` bytes apart.
struct Panels {
  const uint8_t* data;
  size_t stride;
  PackedKind kind;
  uint8_t zero_shift;    // zero point = 1 << zero_shift, for the kinds that have one
  const uint8_t* table;  // [16], c4 and p4_table
  int32_t num_outputs;   // rows that the panels stand for; the last panel may be partly padding
};

// One quantized block of one activation row: 32 inputs and their sums over all, the first 16 and the last 16.
struct alignas(64) ActBlock {
  int8_t q[block_k];
  float scale;
  float scaled_sum[3];  // scale * sum
  int32_t negative_sum[3];
  int32_t padding;
};

// Activations of a step. Tiles of the kernels' tile_rows rows (the last one smaller); inside a tile of R rows, block b
// of row r is blocks[(tile_start * num_blocks) + b * R + r], and input k is floats[tile_start * cols + k * R + r].
// Pairs are rows of bfloats in pieces of 32 inputs: piece p of row r begins at pairs[32 * (tile_start * num_pieces +
// p * R + r)], num_pieces = ceil(cols / 32), the last one padded with zeros; their values are times pair_unit.
struct Activations {
  const ActBlock* blocks;  // where any panel is quantized
  const float* floats;     // where any panel is float
  const uint16_t* pairs;   // where any panel is bf16_pairs or unpacked to them
  int32_t num_rows;
  int32_t cols;
  int32_t tile_rows;
};

enum class ActivationKind : uint8_t { none, silu, gelu_tanh, gelu_erf, relu };

struct ProductTask {
  Activations input;
  Panels panels;              // of a gated product: the gate
  Panels up;                  // gated only
  ActivationKind activation;  // none: a stacked product
  const float* bias;          // [num_outputs] or null
  const float* up_bias;
  float scale;
  float softcap;  // 0 = none; stacked products only
  bool accumulate;
  float* output;  // column 0 of these panels
  int64_t output_stride;
  // Of a gated product on the matrix unit: outputs become the next product's activations, as pairs, and nothing goes to
  // `output`; or null.
  uint16_t* output_pairs;
};

// Normalizes (weight may be null: no norm) one row and lays it out for products, as row `row` of a tile of `rows`.
struct PrepareRow {
  const float* x;  // [cols]
  int32_t cols;
  const float* norm_weight;
  float epsilon;
  float* scratch;    // [cols + 16]
  ActBlock* blocks;  // first block of the tile, or null
  float* floats;     // first input of the tile, or null
  uint16_t* pairs;   // first piece of the tile, or null
  int32_t row;
  int32_t rows;
};

struct NormRow {
  const float* x;  // [width]
  int32_t width;
  const float* weight;  // null: copy
  float epsilon;
  float scale;
  bool accumulate;
  float* output;  // may be x
};

// Where one position of one block of one layer goes.
struct StoreRow {
  float* qkv;  // normalized and rotated in place
  int32_t num_heads, num_kv_heads, head_dim, value_dim;
  const float* query_weight;  // null: no norm
  const float* key_weight;
  float query_epsilon, key_epsilon;
  bool norm_whole_row;
  int32_t rotary_dim;
  bool interleaved;
  const float* cos;  // [rotary_dim / 2]
  const float* sin;
  int32_t hadamard;  // queries and keys are multiplied by orthonormal Hadamard matrices of this size; 0 = not
  uint8_t* keys;     // of the layer in the block, all heads
  uint8_t* values;
  KvFormat key_format, value_format;  // plain
  int32_t block_size;
  int32_t slot;  // position inside the block
};

// One block as one KV head sees it.
struct BlockRef {
  const void* keys;    // [head_dim][block_size], then scales where encoded
  const void* values;  // [block_size][value_dim], then scales where encoded
  KvCode key_code, value_code;
};

// The keys or the values of one KV head of a full block, to or from their encoded form. Plain formats are copied.
struct CodeSide {
  const void* from;  // encoding: in from_format
  KvFormat from_format;
  void* to;  // decoding: floats
  KvCode code;
  int32_t dim, block_size;
};

// Floats that a kernel needs for so many queries: a tile of positions, and of padded queries what they are and add up.
static constexpr size_t attention_scratch(size_t num_queries, size_t head_dim, size_t value_dim) {
  const size_t keys = (head_dim + 31) / 32 * 32, values = (value_dim + 31) / 32 * 32;
  return softmax_tile * (keys + values) + (num_queries + 15) / 16 * 16 * (keys / 2 + values);
}

// Queries of consecutive rows of one sequence that share a KV head: query q is head q % group of row q / group.
struct AttentionTask {
  const float* queries;  // head 0 of row 0
  int64_t row_stride;
  int32_t num_rows, group, head_dim, value_dim, block_size;
  int32_t first_position;  // of row 0
  int32_t window;          // 0 = none
  float scale, softcap;    // scale > 0
  const BlockRef* blocks;  // blocks[i] is block first_block + i
  int32_t first_block;
  const float* sinks;        // [group] or null
  const BlockRef* upcoming;  // the blocks of a tile that the thread reads after this span, to be fetched; or null
  float* scratch;            // [attention_scratch]
  float* output;             // head 0 of row 0
  int64_t output_stride;
};

// What a span of positions contributes to one query: 16 partial sums of 2^(log2(e) * score - base), and the values
// weighted so. The base is a whole number that no exponent exceeds; minus infinity where nothing was seen. `acc`
// [value_stride] per query, value_stride = value_dim rounded up to 16.
struct AttentionState {
  float* bases;  // [queries]
  float* sums;   // [queries][16]
  float* acc;    // [queries][value_stride]
};

}  // namespace tidemill::cpu
