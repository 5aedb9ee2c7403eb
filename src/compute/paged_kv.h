// How the KV cache looks to a kernel: blocks of positions, found through a table.
//
// A block holds `block_size` positions of every layer of one layer group. Inside a block each layer has, per KV head:
//   keys    [head_dim, block_size]    transposed, so that vector lanes span positions and never the summed dimension
//   values  [block_size, value_dim]   so that lanes span the value's own elements
// keys of all heads first ([num_kv_heads, head_dim, block_size]), then values ([num_kv_heads, block_size, value_dim]).
// Encoded formats have their scales after the codes of each head (compute/kv_format.h).
//
// All blocks of a sequence are of one format, or in its tail precision.
//
// A block that is not full yet lies in a slot of tail precision. Full blocks lie in slots of their storage format. A
// block that this step's rows begin and fill lies in a storage slot from the start: its rows in tail precision, which
// the rows of the block itself read, are the backend's scratch.
//
// Views only: everything here is owned by runtime/kv_storage and valid for one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/block_place.h"
#include "compute/kv_format.h"

namespace tidemill {

// What all layers of one group share.
struct KvShape {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;   // of a key
  int32_t value_dim = 0;  // of a value
  int32_t block_size = 0;

  size_t key_head_bytes(KvBlockFormat format) const { return key_layout(format.keys, head_dim, block_size).bytes; }
  size_t value_head_bytes(KvBlockFormat format) const {
    return value_layout(format.values, value_dim, block_size).bytes;
  }
  // Scales and padding included.
  size_t layer_bytes(KvBlockFormat format) const {
    return static_cast<size_t>(num_kv_heads) * (key_head_bytes(format) + value_head_bytes(format));
  }
};

// A layer's part of a slot.
struct KvLayerPart {
  size_t offset = 0;  // from the slot's first byte
  KvBlockFormat format;
};

// The memory of one size class. Slot s of layer l starts at base + s * slot_bytes + offset(l).
struct KvArena {
  std::byte* base = nullptr;
  size_t slot_bytes = 0;
  size_t layer_bytes = 0;  // bytes of one layer inside a slot, where all layers are alike
  KvBlockFormat format;
  std::span<const KvLayerPart> parts{};  // [num_layers] where layers differ; else empty

  KvBlockFormat layer_format(int32_t layer) const {
    return parts.empty() ? format : parts[static_cast<size_t>(layer)].format;
  }
  std::byte* at(uint32_t slot, int32_t layer) const {
    const auto index = static_cast<size_t>(layer);
    return base + slot * slot_bytes + (parts.empty() ? index * layer_bytes : parts[index].offset);
  }
};

// One sequence's rows of this step, in one layer group. Row first_row + i has position first_position + i.
struct KvSegment {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;
  int32_t first_block = 0;             // index of places[0]; above 0 where a windowed group gave old blocks back
  std::span<const BlockPlace> places;  // blocks first_block .. the block of the last row's position
  // The size class of its full blocks. Below 0: every block is read as it lies, and none is encoded in the step.
  int32_t storage_class = -1;
  // Queries and keys are multiplied by orthonormal Hadamard matrices of this size, which spreads outliers over channels
  // and leaves their products as they are; 0 = not. Divides head_dim.
  int32_t hadamard = 0;
};

// The KV of one layer group in one step.
struct KvGroupView {
  KvShape shape;
  std::span<const KvArena> arenas;  // indexed by BlockPlace::size_class
  std::span<const KvSegment> segments;
};

// Full tails to be encoded into storage slots, all layers of one group.
struct KvSeals {
  struct Pair {
    BlockPlace from;
    BlockPlace to;
  };
  KvShape shape;
  std::span<const KvArena> arenas;  // indexed by BlockPlace::size_class
  int32_t num_layers = 0;
  std::span<const Pair> pairs;
};

}  // namespace tidemill
