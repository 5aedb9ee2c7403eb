// A tier below the block pool: which contents it holds, and where. Ids only, as everything here.
//
// It takes copies of sealed blocks that the pool has to let go and offers them to later prefix matches. Nothing in it
// is ever referenced for longer than a copy takes, so all of it can be evicted, by the same policies as the pool's
// cached blocks (kv/eviction_order.h). A block lies in the pool or here, never in both by this class's doing: who
// fetches one takes it out.
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/block_place.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"

namespace tidemill {

class LowerTier {
 public:
  // class_bytes [num_classes] as of the pool; classes that are never moved here may be 0.
  LowerTier(size_t budget_bytes, const std::vector<size_t>& class_bytes, EvictionPolicy policy,
            int32_t block_size_tokens, std::vector<int32_t> windows_tokens);

  // A place for a copy of the content, evicting others for it; nothing where the content is here already or the class
  // does not fit at all. owner: an opaque label, as of PrefixCache::insert. Slots whose memory has to go back first are
  // appended to `dropped`.
  [[nodiscard]] std::optional<BlockPlace> put(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group,
                                              uint8_t size_class, const BlockWorth& worth,
                                              std::vector<BlockPlace>& dropped, uint32_t owner = 0);
  std::optional<BlockPlace> find(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group) const {
    return cache_.find(hash, tokens, group);
  }
  // Keeps a block from being evicted until take_out or let_go.
  void hold(BlockPlace place) { pool_.share(place); }
  void let_go(BlockPlace place) { pool_.release(place); }
  // What is there from before, entered at its place; false where it does not fit.
  [[nodiscard]] bool restore(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group, BlockPlace place,
                             uint32_t owner = 0);
  // A held block turned out to be worthless: nobody finds it any more. The hold stays.
  void forget(BlockPlace place) { cache_.forget(place); }
  // A held block leaves the tier; its slot may be written by the next put.
  BlockWorth take_out(BlockPlace place);

  const PrefixCache& cache() const { return cache_; }
  const BlockPool& pool() const { return pool_; }
  void set_time(uint32_t ms) { pool_.set_time(ms); }
  void record_changes(std::vector<BlockPlace>* changes) { pool_.record_changes(changes); }
  void check_integrity() const;

 private:
  BlockPool pool_;
  PrefixCache cache_;
};

}  // namespace tidemill
