// Who holds which KV block: ids and reference counts, no bytes.
//
// Blocks are slots of a few opaque size classes, all paid from one budget in bytes. A slot is
//   unbacked  it has no memory (never used, or given back: `dropped`)
//   idle      memory, nobody's, worthless content
//   held      referenced at least once
//   cached    not referenced, content kept because somebody may want it again (mark_kept), evictable
// and  unbacked bytes + idle + held + cached = budget  at all times (check_integrity), but while the budget was lowered
// and what lies beyond it is not given back yet: then nothing is allocated beyond the new budget, and `shrink` gives
// back what nobody holds, piece by piece.
//
// allocate takes an idle slot of the class, else a new one if the budget has room, else it trims idle slots of other
// classes, else it evicts cached blocks in the order of its policy (kv/eviction_order.h). A holder that releases its
// blocks tail first loses the tails of its chain before the heads. So an allocation fails only when
// held_bytes + bytes of the class exceed the budget.
//
// Used by one thread. A wrong count stops the process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/block_place.h"
#include "kv/eviction_order.h"

namespace tidemill {

enum class BlockState : uint8_t { unbacked, idle, held, cached };
inline constexpr std::array block_state_names = {"unbacked", "idle", "held", "cached"};

// What the pool knows of one block, for who wants to look at it.
struct BlockInfo {
  BlockPlace place;
  BlockState state = BlockState::unbacked;
  int32_t num_references = 0;
  uint32_t since_ms = 0;  // by set_time: when the state was entered
};

// Of the slots of one size class.
struct ClassBytes {
  size_t held = 0, cached = 0, idle = 0;
};

class BlockPool {
 public:
  // class_bytes [num_classes]: bytes of one slot of each class; 0 = the class is not used.
  BlockPool(size_t budget_bytes, const std::vector<size_t>& class_bytes, EvictionPolicy policy = EvictionPolicy::lru);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A slot with one reference, or nothing when held blocks fill the budget. Slots whose memory has to go back to the
  // system for it are appended to `dropped`; they must be dropped before the new slot is written.
  [[nodiscard]] std::optional<BlockPlace> allocate(uint8_t size_class, std::vector<BlockPlace>& dropped);
  // The same for one certain slot, which was never used before: what is there already is entered so. False where it
  // does not fit.
  [[nodiscard]] bool allocate_at(BlockPlace place);
  // One more reference, also to a cached block, which is held from then on.
  void share(BlockPlace place);
  // One reference less; without any, the block is cached if it is kept, else idle.
  void release(BlockPlace place);
  // Whether the content is worth keeping when nobody holds the block. Taking the mark from a cached block frees it.
  void mark_kept(BlockPlace place, bool kept);
  // A sequence of so many tokens has used the kept block; hit: it found the content there. Counts when the block is
  // next cached.
  void note_use(BlockPlace place, uint8_t importance, int32_t chain_tokens, bool hit);
  const BlockWorth& worth(BlockPlace place) const { return slot(place).worth; }
  // What is known of a kept block's content from elsewhere; its time of entry is its own.
  void set_worth(BlockPlace place, const BlockWorth& worth);
  // Called for each cached block that is evicted, before its slot is used again.
  void on_eviction(std::function<void(BlockPlace)> handler) { on_eviction_ = std::move(handler); }

  int32_t num_references(BlockPlace place) const { return slot(place).num_references; }
  size_t class_bytes(uint8_t size_class) const { return classes_[size_class].slot_bytes; }
  ClassBytes bytes_of_class(uint8_t size_class) const;
  size_t budget_bytes() const { return budget_bytes_; }
  size_t held_bytes() const { return held_bytes_; }
  size_t cached_bytes() const { return cached_bytes_; }
  size_t occupied_bytes() const { return held_bytes_ + cached_bytes_ + idle_bytes_; }  // what has memory
  // Free, or to be had by eviction.
  size_t available_bytes() const { return budget_bytes_ > held_bytes_ ? budget_bytes_ - held_bytes_ : 0; }

  // The budget may be set up to so much; called once, before anything is allocated.
  void allow_budgets_up_to(size_t largest_bytes);
  size_t largest_budget_bytes() const { return largest_bytes_; }
  void set_budget(size_t bytes);
  // There is memory beyond the budget that nobody holds.
  bool can_shrink() const { return occupied_bytes() > budget_bytes_ && occupied_bytes() > held_bytes_; }
  // Gives back memory beyond the budget, up to about max_bytes: idle slots first, then cached blocks in their order.
  void shrink(size_t max_bytes, std::vector<BlockPlace>& dropped);

  // The time that counts for `since_ms` from now on.
  void set_time(uint32_t ms) { time_ms_ = ms; }
  uint32_t time_ms() const { return time_ms_; }
  BlockInfo info(BlockPlace place) const;
  // Every block that has memory.
  void list(std::vector<BlockInfo>& blocks) const;
  // The cached block that would be evicted next.
  std::optional<BlockPlace> coldest() const;
  // Evicts it; it must be cached.
  void evict(BlockPlace place);
  // From now on each change of a block's state or references is noted in `changes`, until this is nullptr.
  void record_changes(std::vector<BlockPlace>* changes) { changes_ = changes; }
  // Since the start: cached blocks evicted, and of them those that were never hit.
  uint64_t num_evicted() const { return num_evicted_; }
  uint64_t num_evicted_unused() const { return num_evicted_unused_; }
  int64_t num_held_blocks() const { return num_held_; }
  int64_t num_cached_blocks() const { return num_cached_; }

  // Recounts everything; a difference stops the process with the invariant's name.
  void check_integrity() const;

 private:
  using State = BlockState;
  struct Slot {
    State state = State::unbacked;
    bool kept = false;
    int32_t num_references = 0;
    uint32_t since_ms = 0;
    uint32_t queue = 0, index = 0;  // while cached: its place in the eviction order
    BlockWorth worth;               // of a kept block
  };
  struct SizeClass {
    size_t slot_bytes = 0;
    size_t max_slots = 0;
    size_t num_held = 0, num_cached = 0;
    std::vector<Slot> slots;         // grows up to max_slots
    std::vector<uint32_t> idle;      // stack
    std::vector<uint32_t> unbacked;  // given back; numbers below slots.size()
  };

  Slot& slot(BlockPlace place);
  const Slot& slot(BlockPlace place) const;
  bool back_new_slot(SizeClass& size_class);
  bool trim_idle(uint32_t except_class, std::vector<BlockPlace>& dropped);
  bool evict_one();
  void link(BlockPlace place);
  void unlink(BlockPlace place);
  void drop_idle(uint8_t size_class, std::vector<BlockPlace>& dropped);
  void note_change(BlockPlace place) {
    if (changes_ != nullptr) changes_->push_back(place);
  }
  void enter(Slot& entered, State state) {
    entered.state = state;
    entered.since_ms = time_ms_;
  }

  size_t budget_bytes_, largest_bytes_;
  size_t held_bytes_ = 0, cached_bytes_ = 0, idle_bytes_ = 0;
  int64_t num_held_ = 0, num_cached_ = 0;
  std::vector<SizeClass> classes_;
  EvictionPolicy policy_;
  std::vector<EvictionQueue> queues_;
  std::vector<double> weights_;  // [queues_.size()]
  uint64_t tick_ = 0, num_evicted_ = 0, num_evicted_unused_ = 0;
  std::function<void(BlockPlace)> on_eviction_;
  uint32_t time_ms_ = 0;
  std::vector<BlockPlace>* changes_ = nullptr;
};

}  // namespace tidemill
