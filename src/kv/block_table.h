// The blocks of one sequence in one layer group: block i holds positions [i * block_size, (i + 1) * block_size).
//
// Move-only owner of one reference per block; what it holds it gives back, tail first, so that of a chain kept in the
// pool the heads survive longest. A windowed group gives leading blocks back while it grows (drop_leading); the table
// then starts at first_block() > 0. The pool must outlive the table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/block_place.h"
#include "kv/block_pool.h"

namespace tidemill {

class BlockTable {
 public:
  explicit BlockTable(BlockPool& pool, int32_t first_block = 0) : pool_(&pool), first_block_(first_block) {}
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  int32_t first_block() const { return first_block_; }
  int32_t end_block() const { return first_block_ + static_cast<int32_t>(places_.size()); }
  int32_t num_blocks() const { return static_cast<int32_t>(places_.size()); }
  std::span<const BlockPlace> places() const { return places_; }  // [num_blocks], valid until the next change
  BlockPlace place(int32_t block) const;

  // Takes over one reference.
  void append(BlockPlace place) { places_.push_back(place); }
  // Takes over one reference to the new place and gives back the one to the old.
  void replace(int32_t block, BlockPlace place);
  // Gives back the blocks before new_first.
  void drop_leading(int32_t new_first);
  // A table of the blocks before end_block, each with a reference of its own.
  BlockTable share(int32_t end_block) const;
  // Gives everything back, tail first; the table starts at block 0 again.
  void clear();

 private:
  BlockPool* pool_;
  int32_t first_block_;
  std::vector<BlockPlace> places_;
};

}  // namespace tidemill
