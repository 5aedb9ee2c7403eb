// The storage formats of KV blocks: which number formats there are, and how the keys or the values of one KV head lie
// in a block.
//
// A plain format stores every value by itself. An encoded one stores codes, and scales beside them, in the same block:
//   codes   keys [head_dim][block_size], values [block_size][value_dim rounded up to 16]
//   scales  of so many values each, see values_per_scale: of keys [groups of head_dim][block_size], of values
//           [block_size][groups of value_dim]; or, per channel (keys only), [head_dim], each for the whole block
//   mins    in the same order, where the format has them
//   outer   one float that multiplies all scales (nvfp4)
// and a value stands for code * scale [+ min]. Scales and mins are fp16, those of nvfp4 are fp8_e4m3. Codes of 4 bits
// come in runs of 16 values in 8 bytes: value j is nibble j / 2 of the 32-bit word j % 2, which two vector instructions
// take apart. The whole is padded to 16 bytes.
//
// Functions are static so that a file compiled for one instruction set never lends its copy to another.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tidemill {

enum class KvFormat : uint8_t { fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int4, nvfp4, q8_0, q4_0 };

// What one scale of the keys covers: some values of one position, or one channel of all of the block's positions.
enum class KvScales : uint8_t { per_token, per_channel };

static constexpr bool is_plain(KvFormat format) {
  return format == KvFormat::fp32 || format == KvFormat::fp16 || format == KvFormat::bf16;
}

static constexpr int code_bits(KvFormat format) {
  switch (format) {
    case KvFormat::fp32:
      return 32;
    case KvFormat::fp16:
    case KvFormat::bf16:
      return 16;
    case KvFormat::fp8_e4m3:
    case KvFormat::fp8_e5m2:
    case KvFormat::int8:
    case KvFormat::q8_0:
      return 8;
    case KvFormat::int4:
    case KvFormat::nvfp4:
    case KvFormat::q4_0:
      return 4;
  }
  return 32;
}

// Keys or values in storage.
struct KvCode {
  KvFormat format = KvFormat::fp16;
  KvScales scales = KvScales::per_token;
  bool operator==(const KvCode&) const = default;
};

// Neighbours in one position that share a scale, of `dim` values.
static constexpr int values_per_scale(KvFormat format, int dim) {
  switch (format) {
    case KvFormat::int4:
      return dim < 64 ? dim : 64;
    case KvFormat::q8_0:
    case KvFormat::q4_0:
      return 32;
    case KvFormat::nvfp4:
      return 16;
    default:
      return dim;
  }
}

// Whole ranges are coded, not magnitudes: codes begin at a minimum (int8: at the middle of the range).
static constexpr bool has_min(KvCode code) {
  return code.format == KvFormat::int4 || (code.format == KvFormat::int8 && code.scales == KvScales::per_channel);
}

static constexpr bool takes_channel_scales(KvFormat format) {
  return format == KvFormat::int8 || format == KvFormat::int4 || format == KvFormat::fp8_e4m3 ||
         format == KvFormat::fp8_e5m2;
}

// Where the parts of one KV head's keys or values lie, in bytes from its first.
struct KvSideLayout {
  int num_scales = 0;
  size_t scales = 0;
  size_t mins = 0;
  size_t outer = 0;
  size_t bytes = 0;
};

static constexpr KvSideLayout side_layout(KvCode code, size_t num_codes, int num_scales) {
  KvSideLayout layout;
  layout.scales = num_codes * static_cast<size_t>(code_bits(code.format)) / 8;
  layout.bytes = layout.scales;
  if (is_plain(code.format)) return layout;
  layout.num_scales = num_scales;
  const bool fine = code.format == KvFormat::nvfp4;
  const size_t scale_bytes = static_cast<size_t>(num_scales) * (fine ? 1 : 2);
  layout.mins = layout.scales + scale_bytes;
  layout.outer = (layout.mins + (has_min(code) ? scale_bytes : 0) + 3) / 4 * 4;
  layout.bytes = (layout.outer + (fine ? sizeof(float) : 0) + 15) / 16 * 16;
  return layout;
}

static constexpr KvSideLayout key_layout(KvCode code, int head_dim, int block_size) {
  const int group = values_per_scale(code.format, head_dim);
  const int num_scales = code.scales == KvScales::per_channel ? head_dim : (head_dim + group - 1) / group * block_size;
  return side_layout(code, static_cast<size_t>(head_dim) * static_cast<size_t>(block_size), num_scales);
}

// Codes of one position's values: whole vectors of 16, where they are encoded.
static constexpr int value_row(KvCode code, int value_dim) {
  return is_plain(code.format) ? value_dim : (value_dim + 15) / 16 * 16;
}

static constexpr KvSideLayout value_layout(KvCode code, int value_dim, int block_size) {
  const int group = values_per_scale(code.format, value_dim);
  return side_layout(code, static_cast<size_t>(value_row(code, value_dim)) * static_cast<size_t>(block_size),
                     (value_dim + group - 1) / group * block_size);
}

// What rows are kept in until their block is full.
static constexpr KvFormat tail_format(KvFormat format) {
  return is_plain(format) ? format : KvFormat::fp16;
}

// Where nobody says otherwise: the layout that measured better.
static constexpr KvScales usual_key_scales(KvFormat format) {
  return format == KvFormat::int4 ? KvScales::per_channel : KvScales::per_token;
}

// The format of a layer's part of a block.
struct KvBlockFormat {
  KvCode keys, values;

  constexpr KvBlockFormat(KvFormat both = KvFormat::fp16) : KvBlockFormat(both, both) {}
  constexpr KvBlockFormat(KvFormat key_format, KvFormat value_format)
      : KvBlockFormat(key_format, usual_key_scales(key_format), value_format) {}
  constexpr KvBlockFormat(KvFormat key_format, KvScales key_scales, KvFormat value_format)
      : keys{key_format, key_scales}, values{value_format, KvScales::per_token} {}

  bool operator==(const KvBlockFormat&) const = default;
  // A full block is another string of bytes than its tail was.
  constexpr bool encoded() const { return !is_plain(keys.format) || !is_plain(values.format); }
  constexpr KvBlockFormat tail() const { return {tail_format(keys.format), tail_format(values.format)}; }
};

}  // namespace tidemill
