// Prefix hits of KvAllocator: names of blocks, what can be had instead of computed, in the pool or in a tier below it,
// and where an evicted block goes.
#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "engine/kv_allocator.h"

namespace tidemill {

BlockHash KvAllocator::root_of(const LiveRequest& request) const {
  const std::string id = prefix_caching_ ? "" : std::to_string(request.id);
  const RootPart parts[] = {{HashPart::salt, request.request.cache_salt},
                            {HashPart::tenant, request.request.cache_tenant},
                            {HashPart::format, format_keys_[request.request.kv_format]},
                            {HashPart::request, id}};
  return root_hash(hash_key_, parts);
}

uint32_t KvAllocator::owner_of(const LiveRequest& request) const {
  if (request.request.cache_tenant.empty()) return 0;
  const RootPart part{HashPart::tenant, request.request.cache_tenant};
  return static_cast<uint32_t>(root_hash(hash_key_, std::span(&part, 1)).high) | 1;
}

void KvAllocator::extend_hashes(Sequence& sequence, int32_t num_blocks) const {
  while (static_cast<int32_t>(sequence.hashes.size()) < num_blocks) {
    const size_t block = sequence.hashes.size();
    const BlockHash& parent = block == 0 ? sequence.request->root : sequence.hashes.back();
    const std::span<const TokenId> tokens(sequence.tokens.data() + block * block_size_, block_size_);
    sequence.hashes.push_back(block_hash(hash_key_, parent, tokens));
  }
}

int32_t KvAllocator::most_hit_blocks(const Sequence& sequence) const {
  if (recompute_) return 0;
  int32_t limit = (sequence.num_tokens() - 1) / block_size_;
  const LiveRequest& request = *sequence.request;
  if (request.wants_prompt_logprobs() && sequence.choice == 0) {
    // Rows whose log-probabilities are still wanted have to be computed.
    const int32_t num_scored = static_cast<int32_t>(request.prompt_logprobs.size());
    if (num_scored < sequence.num_prompt_tokens - 1) limit = std::min(limit, num_scored / block_size_);
  }
  return limit;
}

int32_t KvAllocator::match_prefix(Sequence& sequence) const {
  const int32_t limit = most_hit_blocks(sequence);
  extend_hashes(sequence, limit);
  return prefix_cache_.match(std::span(sequence.hashes).first(limit), sequence.tokens,
                             may_read_reencoded(sequence) ? lossy_caches_ : lower_caches_);
}

bool KvAllocator::will_compute_next(const Sequence& leader, const Sequence& follower, int32_t num_hit) const {
  if (num_hit >= most_hit_blocks(follower) || leader.num_entered_blocks > num_hit) return false;
  if (leader.num_reencoded_blocks > 0) return false;  // what it computes is entered nowhere
  return num_hit < static_cast<int32_t>(leader.hashes.size()) && leader.hashes[num_hit] == follower.hashes[num_hit];
}

int32_t KvAllocator::num_common_blocks(const Sequence& a, const Sequence& b) {
  const auto [in_a, in_b] = std::ranges::mismatch(a.hashes, b.hashes);
  return static_cast<int32_t>(in_a - a.hashes.begin());
}

size_t KvAllocator::shared_bytes(const Sequence& sequence, int32_t num_blocks) const {
  size_t bytes = 0;
  for (int32_t group = 0; group < num_groups(); ++group) {
    for (int32_t block = prefix_cache_.first_needed(group, num_blocks); block < num_blocks; ++block) {
      const std::span<const TokenId> tokens(sequence.tokens.data() + size_t(block) * block_size_, block_size_);
      const auto place = prefix_cache_.find(sequence.hashes[block], tokens, group);
      if (place && pool_.num_references(*place) > 0) bytes += pool_.class_bytes(place->size_class);
    }
  }
  return bytes;
}

int32_t KvAllocator::adopt_prefix(Sequence& sequence, int32_t num_blocks, std::vector<BlockMove>& moves) {
  TM_CHECK(sequence.tables.empty() && sequence.num_computed == 0, "a hit goes to a sequence without blocks");
  const auto tokens_of = [&](int32_t block) {
    return std::span<const TokenId>(sequence.tokens.data() + size_t(block) * block_size_, block_size_);
  };
  // First everything that is there gets a reference, so that none of it makes room for the rest.
  found_.assign(size_t(num_groups()) * num_blocks, std::nullopt);
  for (int32_t group = 0; group < num_groups(); ++group) {
    for (int32_t block = prefix_cache_.first_needed(group, num_blocks); block < num_blocks; ++block) {
      std::optional<BlockPlace>& place = found_[size_t(group) * num_blocks + block];
      place = prefix_cache_.find(sequence.hashes[block], tokens_of(block), group);
      const auto below = !place && host_ ? host_->find(sequence.hashes[block], tokens_of(block), group) : std::nullopt;
      if (!place && !below && may_read_reencoded(sequence)) {
        place = reencoded_->find(sequence.hashes[block], tokens_of(block), group);
      }
      TM_CHECK(place || below, "a matched block is there");
      if (place) pool_.share(*place);
      if (below) host_->hold(*below);
    }
  }
  std::vector<bool> fetched(num_blocks, false);
  for (int32_t group = 0; group < num_groups(); ++group) {
    sequence.tables.push_back(adopt_group(sequence, group, num_blocks, moves, fetched));
  }
  sequence.told_first.assign(num_groups(), 0);
  sequence.told_end.assign(num_groups(), 0);
  sequence.num_computed = num_blocks * block_size_;
  sequence.num_entered_blocks = num_blocks;
  for (int32_t block = 0; reencoded_ && block < num_blocks; ++block) {
    const auto is_copy = [&](const BlockTable& table) {
      return block >= table.first_block() && formats_.format_of(table.place(block).size_class) == reencoded_format_;
    };
    sequence.num_reencoded_blocks += std::ranges::any_of(sequence.tables, is_copy);
  }
  return static_cast<int32_t>(std::ranges::count(fetched, true));
}

BlockTable KvAllocator::adopt_group(Sequence& sequence, int32_t group, int32_t num_blocks,
                                    std::vector<BlockMove>& moves, std::vector<bool>& fetched) {
  BlockTable table(pool_, prefix_cache_.first_needed(group, num_blocks));
  for (int32_t block = table.first_block(); block < num_blocks; ++block) {
    std::optional<BlockPlace> place = found_[size_t(group) * num_blocks + block];
    const std::span<const TokenId> tokens(sequence.tokens.data() + size_t(block) * block_size_, block_size_);
    if (!place) {
      TM_CHECK(host_ != nullptr, "a matched block is there");
      const BlockPlace below = *host_->find(sequence.hashes[block], tokens, group);
      place = allocate(sealed_class(sequence, group), moves);
      TM_CHECK(place.has_value(), "bytes that are available can be reserved");
      moves.push_back({MoveKind::fetch, group, below, *place});
      const BlockWorth worth = host_->take_out(below);
      if (prefix_cache_.insert(sequence.hashes[block], tokens, group, *place, sequence.request->owner))
        pool_.set_worth(*place, worth);
      fetched[block] = true;
    }
    table.append(*place);
    // Finding one's own blocks after a preemption says nothing of others' interest.
    note_use(sequence, *place, block < sequence.num_prompt_tokens / block_size_ && !sequence.admitted_before);
  }
  return table;
}

bool KvAllocator::load_prefix(Sequence& sequence, int32_t num_blocks, size_t spare_bytes,
                              std::vector<BlockMove>& moves) {
  if (!disk_ || sequence.asked_disk) return false;
  sequence.asked_disk = true;
  const double load_s = disk_->load_s_per_byte(), compute_s = compute_s_per_token_;
  const size_t block_bytes = formats_.block_bytes(format_of(sequence));
  if (compute_s > 0 && load_s * static_cast<double>(block_bytes) > compute_s * block_size_) return false;
  std::vector<const PrefixCache*> all = lower_caches_;
  all.push_back(&disk_->cache());
  const int32_t limit = most_hit_blocks(sequence);
  const int32_t end = prefix_cache_.match(std::span(sequence.hashes).first(limit), sequence.tokens, all);
  if (end <= num_blocks) return false;
  // What is in the pool already must not make room for the rest.
  std::vector<BlockPlace> held;
  const auto find = [&](int32_t group, int32_t block) {
    const std::span<const TokenId> tokens(sequence.tokens.data() + size_t(block) * block_size_, block_size_);
    return prefix_cache_.find(sequence.hashes[block], tokens, group);
  };
  for (int32_t group = 0; group < num_groups(); ++group) {
    for (int32_t block = prefix_cache_.first_needed(group, end); block < end; ++block) {
      const auto place = find(group, block);
      if (place) held.push_back(*place);
      if (place && pool_.num_references(*place) == 0) {
        const size_t bytes = pool_.class_bytes(place->size_class);
        spare_bytes -= std::min(spare_bytes, bytes);
      }
      if (place) pool_.share(*place);
    }
  }
  const uint64_t begun_before = disk_->num_begun_loads();
  bool complete = true;
  for (int32_t block = 0; block < end && complete; ++block) {
    const std::span<const TokenId> tokens(sequence.tokens.data() + size_t(block) * block_size_, block_size_);
    for (int32_t group = 0; group < num_groups() && complete; ++group) {
      if (block < prefix_cache_.first_needed(group, end) || find(group, block)) continue;
      if (host_ && host_->find(sequence.hashes[block], tokens, group)) continue;
      const size_t bytes = blocks_of(sequence, group).sealed_bytes;
      complete = disk_->load(sequence.hashes[block], tokens, group, [&]() -> std::optional<BlockPlace> {
        if (bytes > spare_bytes || bytes > pool_.available_bytes()) return std::nullopt;
        spare_bytes -= bytes;
        return allocate(sealed_class(sequence, group), moves);
      });
    }
  }
  for (auto place = held.rbegin(); place != held.rend(); ++place) pool_.release(*place);
  sequence.loads_end = disk_->num_begun_loads();
  sequence.num_loads += static_cast<int32_t>(disk_->num_begun_loads() - begun_before);
  return !loads_ended(sequence);
}

size_t KvAllocator::free_bytes() const {
  const size_t taken = pool_.held_bytes() + pool_.cached_bytes();
  return pool_.budget_bytes() - std::min(pool_.budget_bytes(), taken);
}

// Before blocks are evicted for so many bytes, the coldest get a second life in the smaller format, as copies that only
// requests find which may be served from them; what has had that goes. Some bytes stay free, since a copy is made
// before its original goes.
void KvAllocator::reencode_cold(size_t wanted_bytes, std::vector<BlockMove>& moves) {
  wanted_bytes += formats_.block_bytes(reencoded_format_);
  while (free_bytes() < wanted_bytes) {
    const std::optional<BlockPlace> place = pool_.coldest();
    if (!place) return;
    if (num_reencodes_ < most_reencodes_ && reencode(*place, moves)) {
      ++num_reencodes_;
      continue;
    }
    eviction_moves_ = &moves;
    pool_.evict(*place);
  }
}

// False where the block must go without a copy: it is one, it has one, or there is no room for one.
bool KvAllocator::reencode(BlockPlace place, std::vector<BlockMove>& moves) {
  const auto content = prefix_cache_.content(place);
  if (!content || formats_.format_of(place.size_class) != 0) return false;
  const auto [hash, stored_tokens, group] = *content;
  const uint8_t size_class = formats_.sealed_class(reencoded_format_, group);
  if (free_bytes() < pool_.class_bytes(size_class) || reencoded_->find(hash, stored_tokens, group)) return false;
  const std::vector<TokenId> tokens(stored_tokens.begin(), stored_tokens.end());
  pool_.share(place);  // so that it is read before its slot is anybody else's
  const std::optional<BlockPlace> copy = take(size_class, moves);
  TM_CHECK(copy.has_value(), "bytes that are free can be had");
  moves.push_back({MoveKind::reencode, group, place, *copy});
  reencoded_->insert(hash, tokens, group, *copy, prefix_cache_.owner_of(place));
  BlockWorth worth = pool_.worth(place);
  worth.importance = 0;  // for its few bytes it may stay longer
  pool_.set_worth(*copy, worth);
  pool_.release(*copy);
  if (host_) let_down(hash, tokens, group, place);  // the true one goes to the next tier
  prefix_cache_.forget(place);
  pool_.release(place);
  return true;
}

bool KvAllocator::loads_ended(const Sequence& sequence) const {
  return !disk_ || disk_->num_ended_loads() >= sequence.loads_end;
}

// An evicted block goes to the next tier, or nowhere.
void KvAllocator::let_down(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group, BlockPlace place) {
  host_dropped_.clear();
  std::optional<BlockPlace> below;
  const bool known = host_ && host_->find(hash, tokens, group);
  if (host_ && !known && moving_pays(pool_.class_bytes(place.size_class))) {
    below = host_->put(hash, tokens, group, place.size_class, pool_.worth(place), host_dropped_,
                       prefix_cache_.owner_of(place));
  }
  for (BlockPlace gone : host_dropped_) eviction_moves_->push_back({MoveKind::drop_host, group, gone, gone});
  if (below) eviction_moves_->push_back({MoveKind::spill, group, place, *below});
  num_dropped_blocks_ += !below && !known;
}

bool KvAllocator::moving_pays(size_t bytes) const {
  return compute_s_per_token_ <= 0 ||
         2 * move_s_per_byte_ * static_cast<double>(bytes) <= compute_s_per_token_ * block_size_;
}

void KvAllocator::set_costs(double move_s_per_byte, double compute_s_per_token) {
  move_s_per_byte_ = move_s_per_byte;
  compute_s_per_token_ = compute_s_per_token;
}

double KvAllocator::tokens_worth_of_moving(const Sequence& sequence) const {
  if (!host_ || compute_s_per_token_ <= 0) return std::numeric_limits<double>::infinity();
  // What is in the tail when it goes is computed again in any case.
  return 2 * move_s_per_byte_ * static_cast<double>(unshared_bytes(sequence)) / compute_s_per_token_ + block_size_;
}

}  // namespace tidemill
