// Which blocks already hold a prefix: from the hash of a block's content to its place in each layer group.
//
// A block is entered when it is sealed (full and never written again), also while its owner still runs, and is marked
// as kept in the pool; it leaves when the pool evicts it, so table and index cannot disagree. The cache itself holds no
// references: a match is good until the next allocation, and the caller shares what it takes at once.
//
// A match compares the stored token ids, not the hash alone. Used by one thread; registers itself as the pool's
// eviction handler and must not outlive the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_place.h"
#include "base/token.h"
#include "kv/block_hash.h"
#include "kv/block_pool.h"

namespace tidemill {

class PrefixCache {
 public:
  // windows_tokens [num_groups]: 0 = the group reads the whole history.
  PrefixCache(BlockPool& pool, int32_t block_size_tokens, std::vector<int32_t> windows_tokens);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Enters a held block; false when this content already has a block in the group (the new one stays private).
  // owner: an opaque label of whoever may find it, for owner_of.
  bool insert(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group, BlockPlace place,
              uint32_t owner = 0);
  std::optional<BlockPlace> find(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group) const;
  struct Content {
    BlockHash hash;
    std::span<const TokenId> tokens;  // valid until the next change
    int32_t group = 0;
  };
  // What lies at a place, if it was entered.
  std::optional<Content> content(BlockPlace place) const;
  // Takes a block out; from then on it is freed when its last holder releases it.
  void forget(BlockPlace place);

  // The most leading blocks, at most hashes.size(), after which a sequence can go on: every full group has them all,
  // every windowed group has those that a row right after them reads. tokens holds at least hashes.size() blocks.
  // A block counts where it lies here or in one of `others`, caches of the same groups.
  int32_t match(std::span<const BlockHash> hashes, std::span<const TokenId> tokens,
                std::span<const PrefixCache* const> others = {}) const;
  // First block that a group needs when a sequence goes on after num_blocks.
  int32_t first_needed(int32_t group, int32_t num_blocks) const;

  // Called with the content of each block that the pool evicts, while the index still has it.
  using Eviction = std::function<void(const BlockHash&, std::span<const TokenId>, int32_t group, BlockPlace)>;
  void on_eviction(Eviction handler) { on_eviction_ = std::move(handler); }
  // The pool evicts a block that was entered here. Where several caches lie over one pool, its handler must say so to
  // the right one; a single one is told by itself.
  void evicted(BlockPlace place);
  // The label of an entered block; 0 = none, or not entered.
  uint32_t owner_of(BlockPlace place) const;
  bool entered(BlockPlace place) const;

  size_t num_entries() const { return num_places_; }
  // num_others: entries that other caches over the same pool have.
  void check_integrity(size_t num_others = 0) const;

 private:
  struct Entry {
    std::vector<TokenId> tokens;                    // [block_size]
    std::vector<std::optional<BlockPlace>> places;  // [num_groups]
  };
  struct Origin {
    BlockHash hash;
    int32_t group = 0;
    uint32_t owner = 0;
  };
  bool has(const BlockHash& hash, std::span<const TokenId> all_tokens, int32_t block, int32_t group,
           std::span<const PrefixCache* const> others) const;
  void remove(BlockPlace place);

  BlockPool& pool_;
  int32_t block_size_;
  std::vector<int32_t> windows_;
  std::unordered_map<BlockHash, Entry, BlockHasher> entries_;
  std::unordered_map<uint64_t, Origin> origins_;  // by place
  size_t num_places_ = 0;
  Eviction on_eviction_;
};

}  // namespace tidemill
