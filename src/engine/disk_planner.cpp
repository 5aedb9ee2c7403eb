#include "engine/disk_planner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr int32_t most_stores_in_flight = 32;
constexpr size_t most_offers = 16384;  // older ones are forgotten

}  // namespace

DiskPlanner::DiskPlanner(const EngineConfig& config, std::vector<int32_t> windows_tokens, BlockPool& pool,
                         PrefixCache& cache)
    : pool_(pool),
      cache_(cache),
      formats_(config),
      class_bytes_(config.kv_disk_class_bytes),
      tier_(config.kv_disk_bytes, config.kv_disk_class_bytes, config.eviction, config.block_size_tokens,
            std::move(windows_tokens)) {
  TM_CHECK(class_bytes_.size() == formats_.num_classes(), "a record has a size in each class");
}

void DiskPlanner::restore(std::span<const Executor::StoredBlock> blocks) {
  for (const Executor::StoredBlock& block : blocks) {
    counters_.num_restored += tier_.restore(block.hash, block.tokens, block.group, block.disk, block.owner);
  }
}

void DiskPlanner::offer(BlockPlace place) {
  offers_.push_back(place);
  if (offers_.size() > most_offers) offers_.pop_front();
}

void DiskPlanner::begin_stores(size_t spare_bytes) {
  while (!offers_.empty() && num_stores_in_flight_ < most_stores_in_flight) {
    const BlockPlace place = offers_.front();
    const auto content = cache_.content(place);
    // Evicted meanwhile, or stored already.
    if (!content || tier_.find(content->hash, content->tokens, content->group)) {
      offers_.pop_front();
      continue;
    }
    const size_t bytes = pool_.num_references(place) > 0 ? 0 : pool_.class_bytes(place.size_class);
    if (bytes > spare_bytes) return;
    spare_bytes -= bytes;
    offers_.pop_front();
    dropped_.clear();
    const auto disk = tier_.put(content->hash, content->tokens, content->group, place.size_class, pool_.worth(place),
                                dropped_, cache_.owner_of(place));
    for (BlockPlace gone : dropped_) {
      DiskMove& drop = orders_.emplace_back();
      drop.kind = DiskMoveKind::drop;
      drop.group = formats_.group_of(gone.size_class);
      drop.disk = gone;
    }
    if (!disk) continue;
    tier_.hold(*disk);
    pool_.share(place);
    ++num_stores_in_flight_;
    orders_.push_back({DiskMoveKind::store, content->group, place, *disk, content->hash,
                       std::vector<TokenId>(content->tokens.begin(), content->tokens.end()), cache_.owner_of(place)});
    in_flight_.push_back(orders_.back());
  }
}

bool DiskPlanner::load(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group,
                       const std::function<std::optional<BlockPlace>()>& take) {
  const auto disk = tier_.find(hash, tokens, group);
  if (!disk) return false;
  const bool on_its_way = std::ranges::any_of(
      in_flight_, [&](const DiskMove& move) { return move.kind == DiskMoveKind::load && move.disk == *disk; });
  if (on_its_way) return true;
  tier_.hold(*disk);
  const std::optional<BlockPlace> memory = take();
  if (!memory) {
    tier_.let_go(*disk);
    return false;
  }
  ++num_begun_loads_;
  orders_.push_back({DiskMoveKind::load, group, *memory, *disk, hash,
                     std::vector<TokenId>(tokens.begin(), tokens.end()), tier_.cache().owner_of(*disk)});
  in_flight_.push_back(orders_.back());
  return true;
}

void DiskPlanner::end(const DiskEnd& end) {
  TM_CHECK(!in_flight_.empty(), "only what was begun ends");
  const DiskMove move = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (move.kind == DiskMoveKind::store) {
    end_store(move, end);
  } else {
    end_load(move, end);
  }
}

void DiskPlanner::end_store(const DiskMove& move, const DiskEnd& end) {
  --num_stores_in_flight_;
  pool_.release(move.memory);
  if (!end.ok) tier_.forget(move.disk);
  tier_.let_go(move.disk);
  counters_.num_failed_stores += !end.ok;
  if (end.ok) counters_.stored.add({1, end.bytes, end.duration_ns});
}

void DiskPlanner::end_load(const DiskMove& move, const DiskEnd& end) {
  ++num_ended_loads_;
  const BlockWorth worth = tier_.pool().worth(move.disk);
  if (!end.ok) tier_.forget(move.disk);
  tier_.let_go(move.disk);
  counters_.num_failed_loads += !end.ok;
  if (end.ok) {
    counters_.loaded.add({1, end.bytes, end.duration_ns});
    if (cache_.insert(move.hash, move.tokens, move.group, move.memory, move.owner)) pool_.set_worth(move.memory, worth);
  }
  pool_.release(move.memory);
}

double DiskPlanner::load_s_per_byte() const {
  const MoveTotals& loaded = counters_.loaded;
  return loaded.bytes == 0 ? 0 : static_cast<double>(loaded.duration_ns) * 1e-9 / static_cast<double>(loaded.bytes);
}

void DiskPlanner::for_each_hold(const std::function<void(BlockPlace)>& visit) const {
  for (const DiskMove& move : in_flight_) visit(move.memory);
}

}  // namespace tidemill
