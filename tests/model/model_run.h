// Runs a model on a KV cache of the test's own: one arena per layer group, blocks in shuffled slots.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "compute/cpu/kernel_select.h"
#include "compute/cpu/kernels.h"
#include "model/model.h"

namespace tidemill::testing {

inline bool machine_has(std::string_view kernels) {
  return std::ranges::any_of(cpu::available_kernels(), [&](const auto* table) { return table->name == kernels; });
}

// Rows [first_position, first_position + num_rows) of one sequence.
struct RowRange {
  int32_t sequence = 0;
  int32_t first_position = 0;
  int32_t num_rows = 0;
};

class TestKv {
 public:
  TestKv(const KvLayout& layout, KvBlockFormat format, int32_t num_sequences, int32_t max_positions, int32_t block_size)
      : blocks_per_sequence_((max_positions + block_size - 1) / block_size) {
    TM_CHECK(!format.encoded(), "blocks stay where they are");
    for (const KvLayerGroup& group : layout.groups) {
      Group made;
      made.shape = group.shape;
      made.shape.block_size = block_size;
      const size_t layer_bytes = made.shape.layer_bytes(format);
      const size_t slot_bytes = layer_bytes * group.layers.size();
      const int32_t num_slots = blocks_per_sequence_ * num_sequences;
      made.memory.assign(num_slots * slot_bytes + 64, std::byte{0xff});  // NaN until written
      const size_t misaligned = reinterpret_cast<uintptr_t>(made.memory.data()) % 64;
      made.arena = {.base = made.memory.data() + (64 - misaligned) % 64,
                    .slot_bytes = slot_bytes,
                    .layer_bytes = layer_bytes,
                    .format = format};
      for (int32_t block = 0; block < num_slots; ++block) {
        made.places.push_back({.slot = static_cast<uint32_t>(num_slots - 1 - block), .size_class = 0});
      }
      groups_.push_back(std::move(made));
    }
  }

  // Keys and queries are multiplied by Hadamard matrices of this size from now on.
  void rotate(int32_t hadamard) { hadamard_ = hadamard; }
  // What lies in a block of sequence 0, of one layer.
  const std::byte* layer_of_block(size_t group, int32_t layer, int32_t block) const {
    return groups_[group].arena.at(groups_[group].places[static_cast<size_t>(block)].slot, layer);
  }
  const KvShape& shape(size_t group) const { return groups_[group].shape; }

  // Valid until the next call.
  std::span<const KvGroupView> views(std::span<const RowRange> ranges) {
    views_.clear();
    for (Group& group : groups_) {
      group.segments.clear();
      int32_t row = 0;
      for (const RowRange& range : ranges) {
        const int32_t last_position = range.first_position + range.num_rows - 1;
        const int32_t num_blocks = last_position / group.shape.block_size + 1;
        const std::span<const BlockPlace> places(group.places.data() + range.sequence * blocks_per_sequence_,
                                                 num_blocks);
        group.segments.push_back({.first_row = row,
                                  .num_rows = range.num_rows,
                                  .first_position = range.first_position,
                                  .first_block = 0,
                                  .places = places,
                                  .hadamard = hadamard_});
        row += range.num_rows;
      }
      views_.push_back({group.shape, {&group.arena, 1}, group.segments});
    }
    return views_;
  }

 private:
  struct Group {
    KvShape shape;
    std::vector<std::byte> memory;
    KvArena arena;
    std::vector<BlockPlace> places;
    std::vector<KvSegment> segments;
  };
  int32_t blocks_per_sequence_, hadamard_ = 0;
  std::vector<Group> groups_;
  std::vector<KvGroupView> views_;
};

// One step over the given rows; tokens[s] are those of sequence s. Returns the logits of all rows, in their order.
inline std::vector<float> run_step(Model& model, TestKv& kv, std::span<const std::vector<TokenId>> tokens,
                                   std::span<const RowRange> ranges) {
  std::vector<TokenId> row_tokens;
  std::vector<int32_t> positions;
  for (const RowRange& range : ranges) {
    for (int32_t p = range.first_position; p < range.first_position + range.num_rows; ++p) {
      row_tokens.push_back(tokens[range.sequence][p]);
      positions.push_back(p);
    }
  }
  std::vector<int32_t> row_ids(row_tokens.size());
  std::iota(row_ids.begin(), row_ids.end(), 0);
  const auto num_rows = static_cast<int32_t>(row_ids.size());
  model.forward({row_tokens, positions, kv.views(ranges)});
  const Rows rows = model.logits(row_ids);
  return std::vector<float>(rows.data, rows.data + static_cast<size_t>(num_rows) * rows.width);
}

// Logits [tokens, vocab] of one sequence, in chunks of at most chunk_size rows.
inline std::vector<float> run_alone(Model& model, const std::vector<TokenId>& tokens, int32_t chunk_size,
                                    KvFormat format = KvFormat::fp32, int32_t block_size = 32) {
  const auto count = static_cast<int32_t>(tokens.size());
  TestKv kv(model.kv_layout(), format, 1, count, block_size);
  model.reserve(std::min(count, chunk_size), std::min(count, chunk_size));
  std::vector<float> all;
  for (int32_t first = 0; first < count; first += chunk_size) {
    const RowRange range{0, first, std::min(chunk_size, count - first)};
    const std::vector<float> logits = run_step(model, kv, {&tokens, 1}, {&range, 1});
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

inline bool bit_equal(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace tidemill::testing
