// The blocks of sequences: pool, prefix cache and tables behind the few operations that the scheduler thinks in.
//
// It knows how many blocks a run of tokens needs in each layer group, finds prefix hits, makes room for the rows of a
// step, seals full tails, shares a prompt among choices, and gives everything back. Every movement of bytes that an
// operation causes is appended to `moves`, in the order in which it has to happen.
//
// Bytes are the only currency: available_bytes() is what can be had by taking idle memory and evicting cached blocks.
// Used by the engine thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/block_formats.h"
#include "engine/cache_map.h"
#include "engine/disk_planner.h"
#include "engine/engine_config.h"
#include "engine/pins.h"
#include "engine/sequence.h"
#include "kv/block_pool.h"
#include "kv/lower_tier.h"
#include "kv/prefix_cache.h"

namespace tidemill {

class KvAllocator {
 public:
  explicit KvAllocator(const EngineConfig& config);

  // The most bytes that a sequence of so many computed tokens holds at a time.
  size_t bytes_for_tokens(int64_t num_tokens, KvFormatId format) const;
  // The longest sequence (computed tokens) that the whole pool can hold.
  int64_t capacity_tokens(KvFormatId format) const { return capacity_tokens_[format]; }  // any thread
  const BlockFormats& formats() const { return formats_; }
  size_t held_bytes(const Sequence& sequence) const;
  size_t unshared_bytes(const Sequence& sequence) const;  // held by it alone

  BlockHash root_of(const LiveRequest& request) const;
  // The same for requests that may share blocks but for their salts; 0 where no tenant is named.
  uint32_t owner_of(const LiveRequest& request) const;
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
  // Gives a sequence without blocks its tables, with the blocks of a hit in them; those that lie in the host tier are
  // fetched. The bytes that the hit covers, less what is shared, must be available. Says how many blocks of positions
  // had to be fetched in some group.
  int32_t adopt_prefix(Sequence& sequence, int32_t num_blocks, std::vector<BlockMove>& moves);

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

  // Loads what the disk tier has of the sequence's prefix beyond a hit of num_blocks, into at most spare_bytes of the
  // pool; true when the sequence should wait until loads_ended. A sequence asks once.
  bool load_prefix(Sequence& sequence, int32_t num_blocks, size_t spare_bytes, std::vector<BlockMove>& moves);
  bool loads_ended(const Sequence& sequence) const;
  DiskPlanner* disk() { return disk_.get(); }  // nullptr = no disk tier
  const DiskPlanner* disk() const { return disk_.get(); }
  // Bytes of the pool are held by what is on its way to or from the disk, and will be free without anybody's doing.
  bool waits_for_disk() const { return disk_ && disk_->in_flight(); }
  // A step is made, which will compute so many rows. It encodes no more cold blocks anew than make room for the blocks
  // that its rows fill, which takes a small part of their time; others that must go do so without a copy.
  void begin_step() {
    num_reencodes_ = 0;
    expect_rows(1);
  }
  void expect_rows(int64_t num_rows) {
    most_reencodes_ = copies_per_block * num_groups() * ((num_rows + block_size_ - 1) / block_size_);
  }
  // What a byte moved between tiers and a token computed take, as measured; 0 = not known yet. Blocks whose way out and
  // back would take longer than computing them again are dropped instead.
  void set_costs(double move_s_per_byte, double compute_s_per_token);
  // Of taking the sequence's own blocks out and in again, in tokens that could be computed meanwhile; endless where no
  // tier takes them.
  double tokens_worth_of_moving(const Sequence& sequence) const;
  const LowerTier* host() const { return host_.get(); }
  uint64_t num_dropped_blocks() const { return num_dropped_blocks_; }  // evicted, and kept nowhere
  // A pin of the entered blocks of a sequence's prompt; without tables where there are none.
  Pins::Pin make_pin(const Sequence& sequence);
  // The most bytes that it will have when all of them are there, and the name of the last; 0 where there is none to
  // pin.
  size_t pin_bytes(const Sequence& sequence) const;
  const BlockHash& pin_name(Sequence& sequence) const;

  // The budget, at most config.kv_largest_budget_bytes. `capacity_bytes` is what a single sequence may count on.
  void set_budget(size_t bytes, size_t capacity_bytes);
  // Gives back up to about max_bytes of memory beyond the budget.
  void shrink(size_t max_bytes, std::vector<BlockMove>& moves);
  // Bytes of the holders' blocks that hold nothing: rows not computed yet, and rows that a window has left.
  size_t unused_bytes(std::span<const Sequence* const> holders) const;

  const BlockPool& pool() const { return pool_; }
  BlockPool& pool() { return pool_; }
  // For who watches. In memory, what is not entered has no owner here.
  CacheBlock describe(CacheTier tier, BlockPlace place) const;
  LowerTier* lower(CacheTier tier);  // nullptr = there is none
  const LowerTier* lower(CacheTier tier) const;
  void check_integrity(std::span<const Sequence* const> holders, const Pins& pins) const;

 private:
  int32_t num_groups() const { return formats_.num_groups(); }
  int32_t window_of(int32_t group) const { return formats_.group(0, group).window_tokens; }
  static KvFormatId format_of(const Sequence& sequence) { return sequence.request->request.kv_format; }
  const BlockGroup& blocks_of(const Sequence& sequence, int32_t group) const {
    return formats_.group(format_of(sequence), group);
  }
  uint8_t tail_class(const Sequence& sequence, int32_t group) const {
    return formats_.tail_class(format_of(sequence), group);
  }
  uint8_t sealed_class(const Sequence& sequence, int32_t group) const {
    return formats_.sealed_class(format_of(sequence), group);
  }
  std::optional<BlockPlace> allocate(uint8_t size_class, std::vector<BlockMove>& moves);
  std::optional<BlockPlace> take(uint8_t size_class, std::vector<BlockMove>& moves);
  int32_t num_tails_to_seal(const Sequence& sequence, int32_t group, int32_t end_position) const;
  bool seal_full_tails(Sequence& sequence, int32_t group, int32_t end_position, std::vector<BlockMove>& moves);
  uint8_t class_of_new_block(const Sequence& sequence, int32_t group, int32_t block, int32_t end_position) const;
  void note_use(const Sequence& sequence, BlockPlace place, bool hit);
  void extend_hashes(Sequence& sequence, int32_t num_blocks) const;
  void let_down(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group, BlockPlace place);
  bool moving_pays(size_t bytes) const;
  void reencode_cold(size_t wanted_bytes, std::vector<BlockMove>& moves);
  bool reencode(BlockPlace place, std::vector<BlockMove>& moves);
  size_t free_bytes() const;
  bool may_read_reencoded(const Sequence& sequence) const {
    const Request& request = sequence.request->request;
    return reencoded_ != nullptr && request.may_read_reencoded && !request.pin_for;
  }
  BlockTable adopt_group(Sequence& sequence, int32_t group, int32_t num_blocks, std::vector<BlockMove>& moves,
                         std::vector<bool>& fetched);
  int64_t most_blocks(int32_t group, int64_t num_tokens) const;

  BlockFormats formats_;
  int32_t block_size_;
  int32_t longest_chunk_;
  bool recompute_;  // --kv-cache off: rows start at 0 in each step, so windowed groups give nothing back
  bool reserve_full_;
  bool prefix_caching_;
  std::vector<std::string> format_keys_;  // by KvFormatId
  HashKey hash_key_;
  BlockPool pool_;
  mutable PrefixCache prefix_cache_;
  // Copies in config.kv_reencode, under the names of the blocks that they were made of; nullptr = none are made.
  std::unique_ptr<PrefixCache> reencoded_;
  KvFormatId reencoded_format_ = 0;
  // Of the step at hand. Three blocks less their copies, of up to two thirds of their bytes, make room for one.
  static constexpr int32_t copies_per_block = 3;
  int64_t most_reencodes_ = std::numeric_limits<int64_t>::max(), num_reencodes_ = 0;
  std::unique_ptr<LowerTier> host_;               // nullptr = none
  std::unique_ptr<DiskPlanner> disk_;             // nullptr = none
  std::vector<const PrefixCache*> lower_caches_;  // whose blocks a match may count
  std::vector<const PrefixCache*> lossy_caches_;  // the same for who may read re-encoded blocks
  std::vector<BlockMove>* eviction_moves_ = nullptr;
  std::vector<BlockPlace> host_dropped_;
  std::vector<std::optional<BlockPlace>> found_;  // scratch
  double move_s_per_byte_ = 0, compute_s_per_token_ = 0;
  uint64_t num_dropped_blocks_ = 0;
  int32_t longest_;
  std::array<std::atomic<int64_t>, most_kv_formats> capacity_tokens_{};  // by KvFormatId
  std::vector<BlockPlace> dropped_;
};

}  // namespace tidemill
