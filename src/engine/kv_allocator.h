// The blocks of sequences: pool, prefix cache and tables behind the few operations that the scheduler thinks in.
//
// It knows how many blocks a run of tokens needs in each layer group, finds prefix hits, makes room for the rows of a
// step, seals full tails, shares a prompt among choices, and gives everything back. Every movement of bytes that an
// operation causes is appended to `moves`, in the order in which it has to happen.
//
// Bytes are the only currency: available_bytes() is what can be had by taking idle memory and evicting cached blocks.
// Used by the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine_config.h"
#include "engine/sequence.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"

namespace tidemill {

class KvAllocator {
 public:
  explicit KvAllocator(const EngineConfig& config);

  // The most bytes that a sequence of so many computed tokens holds at a time.
  size_t bytes_for_tokens(int64_t num_tokens) const;
  // The longest sequence (computed tokens) that the whole pool can hold.
  int64_t capacity_tokens() const { return capacity_tokens_; }
  size_t held_bytes(const Sequence& sequence) const;
  int32_t num_unshared_blocks(const Sequence& sequence) const;

  BlockHash root_of(const LiveRequest& request) const;
  // Leading blocks of the sequence that can be had instead of computed, leaving at least its last token to compute.
  int32_t match_prefix(Sequence& sequence) const;
  // The most blocks that a hit of this sequence may cover.
  int32_t most_hit_blocks(const Sequence& sequence) const;
  // Whether `leader`, which runs, has yet to compute the block that follows a hit of num_hit blocks of `follower`.
  bool will_compute_next(const Sequence& leader, const Sequence& follower, int32_t num_hit) const;
  // Leading blocks that have the same content in both, as far as both are hashed.
  static int32_t num_common_blocks(const Sequence& a, const Sequence& b);
  // Of the bytes that a hit of num_blocks covers, those that others hold anyway.
  size_t shared_bytes(const Sequence& sequence, int32_t num_blocks) const;
  // Gives a sequence without blocks its tables, with the blocks of a hit in them.
  void adopt_prefix(Sequence& sequence, int32_t num_blocks);

  // Windowed groups give back what no row from num_computed on reads.
  void trim_windows(Sequence& sequence);
  // Bytes that reserve would claim now.
  size_t bytes_to_reserve(const Sequence& sequence, int32_t end_position) const;
  // Blocks for the rows [num_computed, end_position): full tails are sealed, new blocks appended. False, with part of
  // it done, when the pool has no more.
  [[nodiscard]] bool reserve(Sequence& sequence, int32_t end_position, std::vector<BlockMove>& moves);
  // Gives `child` (without blocks) the computed prompt of `parent`: full blocks are shared, the tail is copied.
  [[nodiscard]] bool fork(Sequence& parent, Sequence& child, std::vector<BlockMove>& moves);
  size_t bytes_to_fork(const Sequence& parent) const;
  // Offers what became full and sealed to the prefix cache.
  void enter_sealed_blocks(Sequence& sequence);
  // Gives all blocks back, tail first. keep: what was sealed stays cached until somebody needs the bytes.
  void release(Sequence& sequence, bool keep);

  const BlockPool& pool() const { return pool_; }
  void check_integrity(std::span<const Sequence* const> holders) const;

 private:
  int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
  bool is_sealed_place(int32_t group, BlockPlace place) const;
  std::optional<BlockPlace> allocate(uint8_t size_class, std::vector<BlockMove>& moves);
  int32_t num_tails_to_seal(const Sequence& sequence, int32_t group, int32_t end_position) const;
  bool seal_full_tails(Sequence& sequence, int32_t group, int32_t end_position, std::vector<BlockMove>& moves);
  uint8_t class_of_new_block(const Sequence& sequence, int32_t group, int32_t block, int32_t end_position) const;
  void note_use(const Sequence& sequence, BlockPlace place, bool hit);
  void extend_hashes(Sequence& sequence, int32_t num_blocks) const;
  int64_t most_blocks(int32_t group, int64_t num_tokens) const;

  std::vector<BlockGroup> groups_;
  int32_t block_size_;
  int32_t longest_chunk_;
  bool recompute_;  // --kv-cache off: rows start at 0 in each step, so windowed groups give nothing back
  bool reserve_full_;
  bool prefix_caching_;
  std::string format_key_;
  HashKey hash_key_;
  BlockPool pool_;
  mutable PrefixCache prefix_cache_;
  int64_t capacity_tokens_ = 0;
  std::vector<BlockPlace> dropped_;
};

}  // namespace tidemill
