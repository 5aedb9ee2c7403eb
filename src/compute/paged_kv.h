// How the KV cache looks to a kernel: blocks of positions, found through a table.
//
// A block holds `block_size` positions of every layer of one layer group. Inside a block each layer has, per KV head:
//   keys    [head_dim, block_size]    transposed, so that vector lanes span positions and never the summed dimension
//   values  [block_size, value_dim]   so that lanes span the value's own elements
// keys of all heads first ([num_kv_heads, head_dim, block_size]), then values ([num_kv_heads, block_size, value_dim]).
//
// Views only: everything here is owned by runtime/kv_storage and valid for one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/block_place.h"

namespace tidemill {

// Storage format of a block. The tail of a sequence is kept in fp16, or in the storage format where that is wider.
enum class KvFormat : uint8_t { fp32, fp16, bf16 };

constexpr size_t bytes_per_value(KvFormat format) {
  return format == KvFormat::fp32 ? 4 : 2;
}

// The memory of one size class. Slot s of layer l starts at base + s * slot_bytes + layer_offset(l).
struct KvArena {
  std::byte* base = nullptr;
  size_t slot_bytes = 0;
  size_t layer_bytes = 0;  // bytes of one layer inside a slot
  KvFormat format = KvFormat::fp16;
};

// What all layers of one group share.
struct KvShape {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;   // of a key
  int32_t value_dim = 0;  // of a value
  int32_t block_size = 0;
  size_t layer_bytes(KvFormat format) const {
    return static_cast<size_t>(num_kv_heads) * (head_dim + value_dim) * block_size * bytes_per_value(format);
  }
};

// One sequence's rows of this step, in one layer group. Row first_row + i has position first_position + i.
struct KvSegment {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;
  int32_t first_block = 0;             // index of places[0]; above 0 where a windowed group gave old blocks back
  std::span<const BlockPlace> places;  // blocks first_block .. the block of the last row's position
};

// The KV of one layer group in one step.
struct KvGroupView {
  KvShape shape;
  std::span<const KvArena> arenas;  // indexed by BlockPlace::size_class
  std::span<const KvSegment> segments;
};

}  // namespace tidemill
