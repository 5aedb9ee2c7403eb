// What moves between the pool and the disk tier, and when: ids and orders, no bytes.
//
// A block that its last sequence gives back is offered, and written behind the engine's back while it lies in the pool,
// so that a restart finds it. A waiting sequence whose prefix goes on where pool and host tier end asks once; what the
// disk has is loaded into blocks of the pool, and the sequence waits in the queue, which it would do anyway to compute
// it. Nobody waits inside a step. Blocks that are on their way hold a reference; their number is bounded, and nothing
// is begun that would touch bytes which were promised to somebody.
//
// A store that fails costs a block of cache, a load that fails (a broken disk, a flipped bit) a recomputation.
// Used by the engine thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/block_formats.h"
#include "engine/engine_config.h"
#include "engine/executor.h"
#include "engine/step_plan.h"
#include "kv/block_pool.h"
#include "kv/lower_tier.h"
#include "kv/prefix_cache.h"

namespace tidemill {

struct DiskCounters {
  MoveTotals stored, loaded;
  uint64_t num_failed_stores = 0, num_failed_loads = 0;
  uint64_t num_restored = 0;  // blocks found at the start
};

class DiskPlanner {
 public:
  DiskPlanner(const EngineConfig& config, std::vector<int32_t> windows_tokens, BlockPool& pool, PrefixCache& cache);

  void restore(std::span<const Executor::StoredBlock> blocks);
  const PrefixCache& cache() const { return tier_.cache(); }

  // A block that nobody holds any more, or soon.
  void offer(BlockPlace place);
  // Begins stores of what was offered, within spare_bytes of the pool.
  void begin_stores(size_t spare_bytes);
  // Begins to load a block, into a place of the pool that `take` provides, unless it is on its way already. False when
  // it is not on the disk, or there is no place.
  bool load(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group,
            const std::function<std::optional<BlockPlace>()>& take);
  // All loads begun so far have ended when num_ended_loads() reaches this.
  uint64_t num_begun_loads() const { return num_begun_loads_; }
  uint64_t num_ended_loads() const { return num_ended_loads_; }

  void end(const DiskEnd& end);
  // Orders since the last call, for the next plan.
  std::vector<DiskMove>& orders() { return orders_; }

  bool in_flight() const { return !in_flight_.empty(); }
  bool has_offers() const { return !offers_.empty(); }
  // How long a byte takes to come, as measured; 0 = not known yet.
  double load_s_per_byte() const;
  // Calls visit for each reference that a block of the pool has from here.
  void for_each_hold(const std::function<void(BlockPlace)>& visit) const;
  const DiskCounters& counters() const { return counters_; }
  LowerTier& tier() { return tier_; }
  const LowerTier& tier() const { return tier_; }
  void check_integrity() const { tier_.check_integrity(); }

 private:
  void end_store(const DiskMove& move, const DiskEnd& end);
  void end_load(const DiskMove& move, const DiskEnd& end);

  BlockPool& pool_;
  PrefixCache& cache_;
  BlockFormats formats_;
  std::vector<size_t> class_bytes_;  // of records
  LowerTier tier_;
  std::deque<BlockPlace> offers_;
  std::deque<DiskMove> in_flight_;  // in the order of their ends
  std::vector<DiskMove> orders_;
  std::vector<BlockPlace> dropped_;
  int32_t num_stores_in_flight_ = 0;
  uint64_t num_begun_loads_ = 0, num_ended_loads_ = 0;
  DiskCounters counters_;
};

}  // namespace tidemill
