#include "engine/kv_allocator.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

std::vector<std::string> keys_of(const EngineConfig& config) {
  std::vector<std::string> keys = {config.kv_format_key};
  for (const ExtraFormat& format : config.extra_formats) keys.push_back(format.key);
  return keys;
}

std::vector<int32_t> windows_of(const std::vector<BlockGroup>& groups) {
  std::vector<int32_t> windows;
  for (const BlockGroup& group : groups) windows.push_back(group.window_tokens);
  return windows;
}

int64_t ceil_div(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

KvAllocator::KvAllocator(const EngineConfig& config)
    : formats_(config),
      block_size_(config.block_size_tokens),
      longest_chunk_(config.max_num_batched_tokens),
      recompute_(!config.kv_cache),
      reserve_full_(config.kv_reserve == KvReserve::full),
      prefix_caching_(config.prefix_caching),
      format_keys_(keys_of(config)),
      hash_key_(config.kv_hash_key ? *config.kv_hash_key : random_hash_key()),
      pool_(config.kv_budget_bytes, formats_.class_bytes(), config.eviction),
      prefix_cache_(pool_, config.block_size_tokens, windows_of(config.groups)),
      longest_(config.max_model_len_tokens) {
  TM_CHECK(block_size_ > 0 && longest_chunk_ > 0, "block size and token budget are positive");
  if (config.kv_host_bytes > 0 && config.kv_cache) {
    host_ = std::make_unique<LowerTier>(config.kv_host_bytes, formats_.sealed_class_bytes(), config.eviction,
                                        block_size_, windows_of(config.groups));
    lower_caches_.push_back(&host_->cache());
  }
  if (config.kv_disk_bytes > 0 && config.kv_cache && config.prefix_caching) {
    disk_ = std::make_unique<DiskPlanner>(config, windows_of(config.groups), pool_, prefix_cache_);
  }
  if (config.kv_reencode && config.kv_cache && config.prefix_caching) {
    reencoded_format_ = *config.kv_reencode;
    TM_CHECK(reencoded_format_ > 0 && reencoded_format_ < formats_.size(), "cold blocks get one of the other formats");
    reencoded_ = std::make_unique<PrefixCache>(pool_, block_size_, windows_of(config.groups));
    lossy_caches_ = lower_caches_;
    lossy_caches_.push_back(reencoded_.get());
    pool_.on_eviction([this](BlockPlace place) {
      const bool again = formats_.format_of(place.size_class) == reencoded_format_;
      (again ? *reencoded_ : prefix_cache_).evicted(place);
    });
    reencoded_->on_eviction(
        [this](const BlockHash&, std::span<const TokenId>, int32_t, BlockPlace) { ++num_dropped_blocks_; });
  }
  prefix_cache_.on_eviction([this](const BlockHash& hash, std::span<const TokenId> tokens, int32_t group,
                                   BlockPlace place) { let_down(hash, tokens, group, place); });
  pool_.allow_budgets_up_to(std::max(config.kv_budget_bytes, config.kv_largest_budget_bytes));
  set_budget(config.kv_budget_bytes, config.kv_budget_bytes);
}

void KvAllocator::set_budget(size_t bytes, size_t capacity_bytes) {
  pool_.set_budget(bytes);
  for (size_t i = 0; i < formats_.size(); ++i) {
    const auto format = static_cast<KvFormatId>(i);
    int64_t low = 0, high = longest_;
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      if (bytes_for_tokens(middle, format) <= capacity_bytes) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    capacity_tokens_[i] = low;
  }
}

void KvAllocator::shrink(size_t max_bytes, std::vector<BlockMove>& moves) {
  dropped_.clear();
  eviction_moves_ = &moves;
  pool_.shrink(max_bytes, dropped_);
  for (BlockPlace gone : dropped_) moves.push_back({MoveKind::drop, formats_.group_of(gone.size_class), gone, gone});
}

int64_t KvAllocator::most_blocks(int32_t group, int64_t num_tokens) const {
  const int64_t blocks = ceil_div(num_tokens, block_size_);
  const int64_t window = window_of(group);
  if (window == 0 || recompute_ || reserve_full_) return blocks;
  // A chunk reads window - 1 positions before its first row; both ends may lie inside a block.
  return std::min(blocks, ceil_div(window - 1 + longest_chunk_, block_size_) + 1);
}

size_t KvAllocator::bytes_for_tokens(int64_t num_tokens, KvFormatId format) const {
  size_t bytes = 0;
  for (int32_t group = 0; group < num_groups(); ++group) {
    const BlockGroup& blocks = formats_.group(format, group);
    bytes += most_blocks(group, num_tokens) * blocks.sealed_bytes;
    if (!blocks.same_format) bytes += blocks.tail_bytes;
  }
  return bytes;
}

size_t KvAllocator::held_bytes(const Sequence& sequence) const {
  size_t bytes = 0;
  for (const BlockTable& table : sequence.tables) {
    for (BlockPlace place : table.places()) bytes += pool_.class_bytes(place.size_class);
  }
  return bytes;
}

size_t KvAllocator::unshared_bytes(const Sequence& sequence) const {
  size_t bytes = 0;
  for (const BlockTable& table : sequence.tables) {
    for (BlockPlace place : table.places()) {
      if (pool_.num_references(place) == 1) bytes += pool_.class_bytes(place.size_class);
    }
  }
  return bytes;
}

void KvAllocator::note_use(const Sequence& sequence, BlockPlace place, bool hit) {
  const auto importance = static_cast<uint8_t>(sequence.request->request.latency_class);
  pool_.note_use(place, importance, sequence.num_tokens(), hit);
}

void KvAllocator::trim_windows(Sequence& sequence) {
  if (recompute_) return;
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (window_of(group) == 0) continue;
    const int32_t first_read = std::max(0, sequence.num_computed - window_of(group) + 1);
    BlockTable& table = sequence.tables[group];
    table.drop_leading(std::min(first_read / block_size_, table.end_block()));
  }
}

// Blocks in tail precision whose rows are complete before this step (or, where all is computed again, in this step).
int32_t KvAllocator::num_tails_to_seal(const Sequence& sequence, int32_t group, int32_t end_position) const {
  if (blocks_of(sequence, group).same_format) return 0;
  const BlockTable& table = sequence.tables[group];
  const int32_t end = std::min((recompute_ ? end_position : sequence.num_computed) / block_size_, table.end_block());
  int32_t num = 0;
  for (int32_t block = end - 1; block >= table.first_block() && formats_.is_tail_class(table.place(block).size_class);
       --block) {
    ++num;
  }
  return num;
}

uint8_t KvAllocator::class_of_new_block(const Sequence& sequence, int32_t group, int32_t block,
                                        int32_t end_position) const {
  const int64_t first = int64_t{block} * block_size_;
  const bool filled_at_once = first >= sequence.num_computed && first + block_size_ <= end_position;
  return filled_at_once ? sealed_class(sequence, group) : tail_class(sequence, group);
}

size_t KvAllocator::bytes_to_reserve(const Sequence& sequence, int32_t end_position) const {
  size_t bytes = 0;
  for (int32_t group = 0; group < num_groups(); ++group) {
    bytes += num_tails_to_seal(sequence, group, end_position) * blocks_of(sequence, group).sealed_bytes;
    const int64_t end_block = ceil_div(end_position, block_size_);
    for (int64_t block = sequence.tables[group].end_block(); block < end_block; ++block) {
      bytes += pool_.class_bytes(class_of_new_block(sequence, group, static_cast<int32_t>(block), end_position));
    }
  }
  return bytes;
}

std::optional<BlockPlace> KvAllocator::allocate(uint8_t size_class, std::vector<BlockMove>& moves) {
  if (reencoded_) reencode_cold(pool_.class_bytes(size_class), moves);
  return take(size_class, moves);
}

std::optional<BlockPlace> KvAllocator::take(uint8_t size_class, std::vector<BlockMove>& moves) {
  dropped_.clear();
  eviction_moves_ = &moves;
  const std::optional<BlockPlace> place = pool_.allocate(size_class, dropped_);
  for (BlockPlace gone : dropped_) moves.push_back({MoveKind::drop, formats_.group_of(gone.size_class), gone, gone});
  return place;
}

bool KvAllocator::seal_full_tails(Sequence& sequence, int32_t group, int32_t end_position,
                                  std::vector<BlockMove>& moves) {
  BlockTable& table = sequence.tables[group];
  const int32_t end = std::min((recompute_ ? end_position : sequence.num_computed) / block_size_, table.end_block());
  for (int32_t block = end - num_tails_to_seal(sequence, group, end_position); block < end; ++block) {
    const auto sealed = allocate(sealed_class(sequence, group), moves);
    if (!sealed) return false;
    if (!recompute_) moves.push_back({MoveKind::seal, group, table.place(block), *sealed});
    table.replace(block, *sealed);
  }
  return true;
}

bool KvAllocator::reserve(Sequence& sequence, int32_t end_position, std::vector<BlockMove>& moves) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (!seal_full_tails(sequence, group, end_position, moves)) return false;
    BlockTable& table = sequence.tables[group];
    while (int64_t{table.end_block()} * block_size_ < end_position) {
      const auto place = allocate(class_of_new_block(sequence, group, table.end_block(), end_position), moves);
      if (!place) return false;
      table.append(*place);
    }
  }
  return true;
}

size_t KvAllocator::bytes_to_fork(const Sequence& parent) const {
  size_t bytes = 0;
  for (int32_t group = 0; group < num_groups(); ++group) {
    bytes += num_tails_to_seal(parent, group, parent.num_computed) * blocks_of(parent, group).sealed_bytes;
    if (parent.num_computed % block_size_ != 0) bytes += blocks_of(parent, group).tail_bytes;
  }
  return bytes;
}

bool KvAllocator::fork(Sequence& parent, Sequence& child, std::vector<BlockMove>& moves) {
  TM_CHECK(child.tables.empty() && child.num_computed == 0, "a fork goes to a sequence without blocks");
  const int32_t num_full = parent.num_computed / block_size_;
  std::vector<BlockTable> tables;
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (!seal_full_tails(parent, group, parent.num_computed, moves)) return false;
    tables.push_back(parent.tables[group].share(num_full));
    if (parent.num_computed % block_size_ == 0) continue;
    const auto copy = allocate(tail_class(parent, group), moves);
    if (!copy) return false;
    moves.push_back({MoveKind::copy, group, parent.tables[group].place(num_full), *copy});
    tables.back().append(*copy);
  }
  child.tables = std::move(tables);
  child.told_first.assign(num_groups(), 0);
  child.told_end.assign(num_groups(), 0);
  child.num_computed = parent.num_computed;
  child.num_ever_computed = std::max(child.num_ever_computed, child.num_computed);
  child.num_entered_blocks = num_full;
  child.num_reencoded_blocks = parent.num_reencoded_blocks;
  return true;
}

void KvAllocator::enter_sealed_blocks(Sequence& sequence) {
  if (recompute_ || sequence.num_reencoded_blocks > 0) return;  // what was computed from a lossy copy is nobody else's
  const int32_t num_full = sequence.num_computed / block_size_;
  for (; sequence.num_entered_blocks < num_full; ++sequence.num_entered_blocks) {
    const int32_t block = sequence.num_entered_blocks;
    extend_hashes(sequence, block + 1);
    const std::span<const TokenId> tokens(sequence.tokens.data() + size_t(block) * block_size_, block_size_);
    const auto in_table = [&](const BlockTable& table) { return block >= table.first_block(); };
    for (int32_t group = 0; group < num_groups(); ++group) {
      const BlockTable& table = sequence.tables[group];
      if (in_table(table) && !formats_.is_sealed_class(table.place(block).size_class))
        return;  // sealed by a later plan
    }
    for (int32_t group = 0; group < num_groups(); ++group) {
      const BlockTable& table = sequence.tables[group];
      if (in_table(table)) {
        prefix_cache_.insert(sequence.hashes[block], tokens, group, table.place(block), sequence.request->owner);
      }
    }
  }
}

void KvAllocator::release(Sequence& sequence, bool keep) {
  for (BlockTable& table : sequence.tables) {
    for (BlockPlace place : table.places()) note_use(sequence, place, false);
    if (!keep) {
      for (BlockPlace place : table.places()) {
        if (pool_.num_references(place) == 1) prefix_cache_.forget(place);
      }
    }
    if (disk_ && keep) {
      for (BlockPlace place : table.places()) disk_->offer(place);
    }
    table.clear();
  }
  sequence.tables.clear();
  sequence.num_computed = 0;
  sequence.num_entered_blocks = 0;
  sequence.num_reencoded_blocks = 0;
}

Pins::Pin KvAllocator::make_pin(const Sequence& sequence) {
  Pins::Pin pin;
  const int32_t num_blocks = std::min(sequence.num_entered_blocks, sequence.num_prompt_tokens / block_size_);
  if (num_blocks == 0) return pin;
  pin.last = sequence.hashes[num_blocks - 1];
  for (int32_t group = 0; group < num_groups(); ++group) {
    const BlockTable& held = sequence.tables[group];
    const int32_t first = std::max(held.first_block(), prefix_cache_.first_needed(group, num_blocks));
    BlockTable table(pool_, first);
    for (int32_t block = first; block < num_blocks; ++block) {
      pool_.share(held.place(block));
      table.append(held.place(block));
      pin.bytes += pool_.class_bytes(held.place(block).size_class);
    }
    pin.tables.push_back(std::move(table));
  }
  return pin;
}

size_t KvAllocator::pin_bytes(const Sequence& sequence) const {
  if (recompute_) return 0;
  const int32_t num_blocks = sequence.num_prompt_tokens / block_size_;
  size_t bytes = 0;
  for (int32_t group = 0; group < num_groups(); ++group) {
    const auto num_pinned = static_cast<size_t>(num_blocks - prefix_cache_.first_needed(group, num_blocks));
    bytes += num_pinned * blocks_of(sequence, group).sealed_bytes;
  }
  return bytes;
}

const BlockHash& KvAllocator::pin_name(Sequence& sequence) const {
  const int32_t num_blocks = sequence.num_prompt_tokens / block_size_;
  extend_hashes(sequence, num_blocks);
  return sequence.hashes[num_blocks - 1];
}

size_t KvAllocator::unused_bytes(std::span<const Sequence* const> holders) const {
  size_t bytes = 0;
  for (const Sequence* holder : holders) {
    for (int32_t group = 0; group < static_cast<int32_t>(holder->tables.size()); ++group) {
      const BlockTable& table = holder->tables[group];
      if (table.num_blocks() == 0) continue;
      const int64_t beyond = int64_t{table.end_block()} * block_size_ - holder->num_computed;
      const int64_t window = window_of(group);
      const int64_t first_read = window == 0 ? 0 : holder->num_computed - window + 1;
      const int64_t left = std::max<int64_t>(0, first_read - int64_t{table.first_block()} * block_size_);
      bytes += static_cast<size_t>(std::max<int64_t>(0, beyond) + left) * blocks_of(*holder, group).sealed_bytes /
               block_size_;
    }
  }
  return bytes;
}

CacheBlock KvAllocator::describe(CacheTier tier, BlockPlace place) const {
  const KvFormatId format = formats_.format_of(place.size_class);
  const int32_t group = formats_.group_of(place.size_class);
  const LowerTier* below = lower(tier);
  const BlockPool& pool = below == nullptr ? pool_ : below->pool();
  const PrefixCache& in_pool = reencoded_ && format == reencoded_format_ ? *reencoded_ : prefix_cache_;
  const PrefixCache& cache = below == nullptr ? in_pool : below->cache();
  // Where sealing moves nothing, a block that was entered is known to be full.
  const bool known = cache.entered(place) || !formats_.group(format, group).same_format;
  return {.info = pool.info(place),
          .tier = tier,
          .bytes = pool.class_bytes(place.size_class),
          .group = group,
          .format = format,
          .sealed = known && formats_.is_sealed_class(place.size_class),
          .pinned = false,
          .owner = cache.owner_of(place)};
}

const LowerTier* KvAllocator::lower(CacheTier tier) const {
  if (tier == CacheTier::host) return host_.get();
  return tier == CacheTier::disk && disk_ ? &disk_->tier() : nullptr;
}
LowerTier* KvAllocator::lower(CacheTier tier) {
  return const_cast<LowerTier*>(std::as_const(*this).lower(tier));
}

void KvAllocator::check_integrity(std::span<const Sequence* const> holders, const Pins& pins) const {
  pool_.check_integrity();
  prefix_cache_.check_integrity(reencoded_ ? reencoded_->num_entries() : 0);
  if (reencoded_) reencoded_->check_integrity(prefix_cache_.num_entries());
  if (host_) host_->check_integrity();
  if (disk_) disk_->check_integrity();
  std::unordered_map<uint64_t, int32_t> references;
  const auto count = [&references](const std::vector<BlockTable>& tables) {
    for (const BlockTable& table : tables) {
      for (BlockPlace place : table.places()) ++references[(uint64_t{place.size_class} << 32) | place.slot];
    }
  };
  for (const Sequence* holder : holders) count(holder->tables);
  for (const Pins::Pin& pin : pins.all()) count(pin.tables);
  if (disk_) {
    disk_->for_each_hold([&](BlockPlace place) { ++references[(uint64_t{place.size_class} << 32) | place.slot]; });
  }
  for (const auto& [id, num] : references) {
    const BlockPlace place{static_cast<uint32_t>(id), static_cast<uint8_t>(id >> 32)};
    TM_CHECK(pool_.num_references(place) == num, "references of a block are the tables that name it");
  }
  TM_CHECK(pool_.num_held_blocks() == static_cast<int64_t>(references.size()), "only tables hold blocks");
}

}  // namespace tidemill
