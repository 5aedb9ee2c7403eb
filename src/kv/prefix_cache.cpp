#include "kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

uint64_t key_of(BlockPlace place) {
  return (uint64_t{place.size_class} << 32) | place.slot;
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, int32_t block_size_tokens, std::vector<int32_t> windows_tokens)
    : pool_(pool), block_size_(block_size_tokens), windows_(std::move(windows_tokens)) {
  pool_.on_eviction([this](BlockPlace place) { evicted(place); });
}

bool PrefixCache::insert(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group, BlockPlace place,
                         uint32_t owner) {
  TM_CHECK(static_cast<int32_t>(tokens.size()) == block_size_, "only full blocks are hashed");
  TM_CHECK(!origins_.contains(key_of(place)), "a block is entered once");
  Entry& entry = entries_[hash];
  if (entry.places.empty()) {
    entry.tokens.assign(tokens.begin(), tokens.end());
    entry.places.resize(windows_.size());
  }
  // Other tokens under the same hash: the older block stays, this one is never shared.
  if (entry.places[group] || !std::ranges::equal(entry.tokens, tokens)) return false;
  entry.places[group] = place;
  origins_[key_of(place)] = {hash, group, owner};
  ++num_places_;
  pool_.mark_kept(place, true);
  return true;
}

std::optional<BlockPlace> PrefixCache::find(const BlockHash& hash, std::span<const TokenId> tokens,
                                            int32_t group) const {
  const auto found = entries_.find(hash);
  if (found == entries_.end() || !std::ranges::equal(found->second.tokens, tokens)) return std::nullopt;
  return found->second.places[group];
}

std::optional<PrefixCache::Content> PrefixCache::content(BlockPlace place) const {
  const auto origin = origins_.find(key_of(place));
  if (origin == origins_.end()) return std::nullopt;
  return Content{origin->second.hash, entries_.at(origin->second.hash).tokens, origin->second.group};
}

bool PrefixCache::entered(BlockPlace place) const {
  return origins_.contains(key_of(place));
}

uint32_t PrefixCache::owner_of(BlockPlace place) const {
  const auto found = origins_.find(key_of(place));
  return found == origins_.end() ? 0 : found->second.owner;
}

void PrefixCache::forget(BlockPlace place) {
  if (!origins_.contains(key_of(place))) return;
  remove(place);
  pool_.mark_kept(place, false);
}

void PrefixCache::evicted(BlockPlace place) {
  if (on_eviction_) {
    const auto origin = origins_.find(key_of(place));
    TM_CHECK(origin != origins_.end(), "a kept block is in the prefix cache");
    on_eviction_(origin->second.hash, entries_.at(origin->second.hash).tokens, origin->second.group, place);
  }
  remove(place);
}

void PrefixCache::remove(BlockPlace place) {
  const auto origin = origins_.find(key_of(place));
  TM_CHECK(origin != origins_.end(), "a kept block is in the prefix cache");
  const auto entry = entries_.find(origin->second.hash);
  TM_CHECK(entry != entries_.end() && entry->second.places[origin->second.group] == place,
           "the prefix cache knows its blocks");
  entry->second.places[origin->second.group].reset();
  if (std::ranges::none_of(entry->second.places, [](const auto& each) { return each.has_value(); })) {
    entries_.erase(entry);
  }
  origins_.erase(origin);
  --num_places_;
}

bool PrefixCache::has(const BlockHash& hash, std::span<const TokenId> all_tokens, int32_t block, int32_t group,
                      std::span<const PrefixCache* const> others) const {
  const auto tokens = all_tokens.subspan(static_cast<size_t>(block) * block_size_, block_size_);
  if (find(hash, tokens, group)) return true;
  return std::ranges::any_of(others,
                             [&](const PrefixCache* other) { return other->find(hash, tokens, group).has_value(); });
}

int32_t PrefixCache::first_needed(int32_t group, int32_t num_blocks) const {
  if (windows_[group] == 0) return 0;
  // The next row, at position num_blocks * block_size, reads itself and window - 1 positions before it.
  const int64_t first_position = int64_t{num_blocks} * block_size_ - windows_[group] + 1;
  return static_cast<int32_t>(std::max<int64_t>(0, first_position) / block_size_);
}

int32_t PrefixCache::match(std::span<const BlockHash> hashes, std::span<const TokenId> tokens,
                           std::span<const PrefixCache* const> others) const {
  int32_t limit = static_cast<int32_t>(hashes.size());
  const int32_t num_groups = static_cast<int32_t>(windows_.size());
  for (int32_t group = 0; group < num_groups; ++group) {
    if (windows_[group] != 0) continue;
    int32_t length = 0;
    while (length < limit && has(hashes[length], tokens, length, group, others)) ++length;
    limit = length;
  }
  for (int32_t end = limit; end > 0;) {
    int32_t shortened = end;
    for (int32_t group = 0; group < num_groups && shortened == end; ++group) {
      if (windows_[group] == 0) continue;
      // The latest missing block in the window bounds the hit: any end after it, within reach of it, fails too.
      for (int32_t block = end - 1; block >= first_needed(group, end); --block) {
        if (!has(hashes[block], tokens, block, group, others)) {
          shortened = block;
          break;
        }
      }
    }
    if (shortened == end) return end;
    end = shortened;
  }
  return 0;
}

void PrefixCache::check_integrity(size_t num_others) const {
  size_t num_places = 0;
  for (const auto& [hash, entry] : entries_) {
    for (int32_t group = 0; group < static_cast<int32_t>(entry.places.size()); ++group) {
      if (!entry.places[group]) continue;
      ++num_places;
      const auto origin = origins_.find(key_of(*entry.places[group]));
      TM_CHECK(origin != origins_.end() && origin->second.hash == hash && origin->second.group == group,
               "every cached place knows its content");
    }
  }
  TM_CHECK(num_places == num_places_ && origins_.size() == num_places_, "places counted once");
  TM_CHECK(static_cast<int64_t>(num_places_ + num_others) >= pool_.num_cached_blocks(),
           "every cached block is in the prefix cache");
}

}  // namespace tidemill
