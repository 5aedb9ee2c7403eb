// What every block of the KV cache is at one moment, and what changed since: plain values for who wants to watch.
//
// A map belongs to a step; changes belong to later steps and hold the blocks that changed as they are at the step's
// end. So a map and all changes after it give the next map.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/block_place.h"
#include "engine/engine_config.h"
#include "kv/block_pool.h"

namespace tidemill {

enum class CacheTier : uint8_t { memory, host, disk };
inline constexpr std::array cache_tier_names = {"memory", "host", "disk"};

struct CacheBlock {
  BlockInfo info;
  CacheTier tier = CacheTier::memory;  // each has slots of its own
  size_t bytes = 0;                    // in its tier
  int32_t group = 0;
  KvFormatId format = 0;
  bool sealed = false;  // full and immutable, in its storage format
  bool pinned = false;
  uint32_t owner = 0;  // opaque label of the tenant; 0 = shared by all that have none
};

// The bytes of the blocks of one format.
struct FormatBytes {
  size_t held = 0, cached = 0, idle = 0;
};

// Of a tier below memory: held is what is on its way, idle what can be overwritten.
struct TierBytes {
  size_t budget = 0;  // 0 = there is no such tier
  size_t held = 0, cached = 0, idle = 0;
};

// All bytes: held + cached + idle + unbacked = the larger of budget and held + cached + idle, in each tier.
struct CacheTotals {
  size_t budget_bytes = 0;
  size_t wanted_bytes = 0;  // where the budget is going
  size_t held_bytes = 0;    // by sequences and pins
  size_t cached_bytes = 0;
  size_t idle_bytes = 0;
  size_t pinned_bytes = 0;  // by pins, as they count against their limit
  int32_t num_pins = 0;
  std::array<FormatBytes, most_kv_formats> formats{};  // their sum is the whole
  TierBytes host, disk;                                // the rest is of memory alone
};

struct CacheMap {
  uint64_t step = 0;
  uint32_t now_ms = 0;  // on the clock of BlockInfo::since_ms
  CacheTotals totals;
  std::vector<CacheBlock> blocks;  // all that have memory
};

struct CacheChanges {
  uint64_t step = 0;
  uint32_t now_ms = 0;
  bool lost = false;  // some changes were dropped: ask for a new map
  CacheTotals totals;
  std::vector<CacheBlock> blocks;  // unbacked ones are gone
};

// From the engine thread to one that tells others: holds a bounded number of blocks, and forgets all of them rather
// than make the engine wait.
class CacheFeed {
 public:
  static constexpr size_t most_blocks = 1 << 16;

  // Any thread. Nothing is collected while nobody watches.
  void watch(bool on) { watched_ = on; }
  bool watched() const { return watched_; }
  // Waits until there are changes, the time is up, or interrupt() is called.
  std::optional<CacheChanges> take(std::chrono::milliseconds limit);
  void interrupt();

  // Engine thread. Takes the contents of `changes`, but not its memory.
  void add(const CacheChanges& changes);

 private:
  std::atomic<bool> watched_{false};
  std::mutex mutex_;
  std::condition_variable filled_;
  CacheChanges pending_;
  bool any_ = false, interrupted_ = false;
};

}  // namespace tidemill
