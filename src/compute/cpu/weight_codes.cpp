#include "compute/cpu/weight_codes.h"

#include <cstring>

#include "base/check.h"
#include "compute/half.h"

namespace tidemill::cpu {
namespace {

// 128 + the values of IQ4_NL, and 16 + the doubled values of E2M1.
constexpr uint8_t iq4_nl_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t e2m1_table[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

uint8_t byte_at(const std::byte* p, int64_t i) {
  return static_cast<uint8_t>(p[i]);
}

float half_at(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return half_to_float(bits);
}

// Byte j holds values j and j + 16.
void read_nibbles(const std::byte* quants, CodeBlock& out) {
  for (int j = 0; j < 16; ++j) {
    out.codes[j] = byte_at(quants, j) & 0xF;
    out.codes[j + 16] = byte_at(quants, j) >> 4;
  }
}

void add_fifth_bits(const std::byte* high, CodeBlock& out) {
  for (int j = 0; j < block_k; ++j) out.codes[j] |= static_cast<uint8_t>(((byte_at(high, j / 8) >> (j % 8)) & 1) << 4);
}

void read_q8_0(const std::byte* src, CodeBlock& out) {
  out.scales[0] = half_at(src);
  for (int j = 0; j < block_k; ++j) out.codes[j] = byte_at(src, 2 + j) ^ 0x80;
}

void read_mxfp4(const std::byte* src, CodeBlock& out) {
  const uint32_t e = byte_at(src, 0);
  out.scales[0] = float_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  read_nibbles(src + 1, out);
}

// `part` is the block of 32 inside the block of 256, here and below.
void read_q2_k(const std::byte* src, int part, CodeBlock& out) {
  const float d = half_at(src + 80), dmin = half_at(src + 82);
  for (int g = 0; g < 2; ++g) {
    const uint8_t packed = byte_at(src, part * 2 + g);
    out.scales[g] = d * static_cast<float>(packed & 0xF);
    out.mins[g] = -(dmin * static_cast<float>(packed >> 4));
  }
  for (int j = 0; j < block_k; ++j) out.codes[j] = (byte_at(src, 16 + part / 4 * 32 + j) >> (2 * (part % 4))) & 3;
}

void read_q3_k(const std::byte* src, int part, CodeBlock& out) {
  const float d = half_at(src + 108);
  const std::byte* packed = src + 96;
  for (int g = 0; g < 2; ++g) {
    const int s = part * 2 + g;
    const int low = s < 8 ? byte_at(packed, s) & 0xF : byte_at(packed, s - 8) >> 4;
    const int high = (byte_at(packed, 8 + s % 4) >> (2 * (s / 4))) & 3;
    out.scales[g] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int j = 0; j < block_k; ++j) {
    const int low = (byte_at(src, 32 + part / 4 * 32 + j) >> (2 * (part % 4))) & 3;
    out.codes[j] = static_cast<uint8_t>(low | ((byte_at(src, j) >> part) & 1) << 2);
  }
}

// q4_k and q5_k: six bits each of scale and min.
void read_scale_min(const std::byte* src, int part, CodeBlock& out) {
  const std::byte* packed = src + 4;
  int scale = byte_at(packed, part) & 63, min = byte_at(packed, part + 4) & 63;
  if (part >= 4) {
    scale = (byte_at(packed, part + 4) & 0xF) | byte_at(packed, part - 4) >> 6 << 4;
    min = byte_at(packed, part + 4) >> 4 | byte_at(packed, part) >> 6 << 4;
  }
  out.scales[0] = half_at(src) * static_cast<float>(scale);
  out.mins[0] = -(half_at(src + 2) * static_cast<float>(min));
}

void read_q4_k(const std::byte* src, int part, CodeBlock& out) {
  read_scale_min(src, part, out);
  for (int j = 0; j < block_k; ++j) out.codes[j] = (byte_at(src, 16 + part / 2 * 32 + j) >> (part % 2 * 4)) & 0xF;
}

void read_q5_k(const std::byte* src, int part, CodeBlock& out) {
  read_scale_min(src, part, out);
  for (int j = 0; j < block_k; ++j) {
    const int low = (byte_at(src, 48 + part / 2 * 32 + j) >> (part % 2 * 4)) & 0xF;
    out.codes[j] = static_cast<uint8_t>(low | ((byte_at(src, 16 + j) >> part) & 1) << 4);
  }
}

void read_q6_k(const std::byte* src, int part, CodeBlock& out) {
  const float d = half_at(src + 208);
  for (int g = 0; g < 2; ++g) {
    out.scales[g] = d * static_cast<float>(static_cast<int8_t>(src[192 + part * 2 + g]));
  }
  const int half = part / 4, plane = part % 4;
  for (int j = 0; j < block_k; ++j) {
    const uint8_t low = byte_at(src, half * 64 + plane % 2 * 32 + j);
    const int high = (byte_at(src, 128 + half * 32 + j) >> (2 * plane)) & 3;
    out.codes[j] = static_cast<uint8_t>((plane < 2 ? low & 0xF : low >> 4) | high << 4);
  }
}

void read_half_scales(DType type, const std::byte* src, CodeBlock& out) {
  out.scales[0] = half_at(src);
  const bool has_min = type == DType::q4_1 || type == DType::q5_1;
  if (has_min) out.mins[0] = half_at(src + 2);
  const std::byte* rest = src + (has_min ? 4 : 2);
  const bool five_bits = type == DType::q5_0 || type == DType::q5_1;
  read_nibbles(rest + (five_bits ? 4 : 0), out);
  if (five_bits) add_fifth_bits(rest, out);
}

}  // namespace

namespace {

WeightKind kind_in_file(DType type) {
  switch (type) {
    case DType::f32:
      return {.kind = PackedKind::f32};
    case DType::f16:
      return {.kind = PackedKind::f16};
    case DType::bf16:
      return {.kind = PackedKind::bf16};
    case DType::q4_0:
      return {.kind = PackedKind::u4_zero_h, .zero_shift = 3, .bits = 4, .half_scales = true};
    case DType::q4_1:
      return {.kind = PackedKind::u4_min_h, .bits = 4, .has_min = true, .half_scales = true};
    case DType::q5_0:
      return {.kind = PackedKind::u8_zero_h, .zero_shift = 4, .bits = 8, .half_scales = true};
    case DType::q5_1:
      return {.kind = PackedKind::u8_min_h, .bits = 8, .has_min = true, .half_scales = true};
    case DType::q8_0:
      return {.kind = PackedKind::u8_zero_h, .zero_shift = 7, .bits = 8, .half_scales = true};
    case DType::q2_k:
      return {.kind = PackedKind::u8x2_min_f, .bits = 8, .num_groups = 2, .has_min = true};
    case DType::q3_k:
      return {.kind = PackedKind::u8x2_zero_f, .zero_shift = 2, .bits = 8, .num_groups = 2};
    case DType::q4_k:
      return {.kind = PackedKind::u4_min_f, .bits = 4, .has_min = true};
    case DType::q5_k:
      return {.kind = PackedKind::u8_min_f, .bits = 8, .has_min = true};
    case DType::q6_k:
      return {.kind = PackedKind::u8x2_zero_f, .zero_shift = 5, .bits = 8, .num_groups = 2};
    case DType::iq4_nl:
      return {.kind = PackedKind::c4_zero_f, .zero_shift = 7, .table = iq4_nl_table, .bits = 4};
    case DType::mxfp4:
      return {.kind = PackedKind::c4_zero_f, .zero_shift = 4, .table = e2m1_table, .bits = 4};
  }
  invariant_broken("every weight type has a packed kind", __FILE__, __LINE__);
}

// Bits that a code needs, 4 at least.
int narrowest_bits(DType type, int bits) {
  switch (type) {
    case DType::q2_k:
    case DType::q3_k:
      return 4;
    case DType::q5_0:
    case DType::q5_1:
    case DType::q5_k:
      return 5;
    case DType::q6_k:
      return 6;
    default:
      return bits;
  }
}

PackedKind unpacked_to_pairs(const WeightKind& kind) {
  if (kind.table) return PackedKind::p4_table;
  if (kind.bits == 8) return PackedKind::p8_zero;
  if (kind.bits == 6) return PackedKind::p6x2_zero;
  if (kind.bits == 5) return kind.has_min ? PackedKind::p5_min : PackedKind::p5_zero;
  if (kind.num_groups == 2) return kind.has_min ? PackedKind::p4x2_min : PackedKind::p4x2_zero;
  return kind.has_min ? PackedKind::p4_min : PackedKind::p4_zero;
}

}  // namespace

WeightKind weight_kind(DType type, bool for_pairs) {
  WeightKind kind = kind_in_file(type);
  if (!for_pairs) return kind;
  if (kind.bits == 0) {
    if (kind.kind != PackedKind::f32) kind.kind = PackedKind::bf16_pairs;
    return kind;
  }
  kind.bits = narrowest_bits(type, kind.bits);
  kind.kind = unpacked_to_pairs(kind);
  kind.unpacks_to_pairs = kind.half_scales = true;
  return kind;
}

void read_codes(DType type, const std::byte* row, int64_t index, CodeBlock& out) {
  const int64_t per_block = block_values(type) / block_k;
  const std::byte* src = row + index / per_block * block_bytes(type);
  const int part = static_cast<int>(index % per_block);
  switch (type) {
    case DType::q8_0:
      return read_q8_0(src, out);
    case DType::q2_k:
      return read_q2_k(src, part, out);
    case DType::q3_k:
      return read_q3_k(src, part, out);
    case DType::q4_k:
      return read_q4_k(src, part, out);
    case DType::q5_k:
      return read_q5_k(src, part, out);
    case DType::q6_k:
      return read_q6_k(src, part, out);
    case DType::mxfp4:
      return read_mxfp4(src, out);
    default:
      return read_half_scales(type, src, out);
  }
}

}  // namespace tidemill::cpu
