#include "kv/lower_tier.h"

#include <utility>

#include "base/check.h"

namespace tidemill {

LowerTier::LowerTier(size_t budget_bytes, const std::vector<size_t>& class_bytes, EvictionPolicy policy,
                     int32_t block_size_tokens, std::vector<int32_t> windows_tokens)
    : pool_(budget_bytes, class_bytes, policy), cache_(pool_, block_size_tokens, std::move(windows_tokens)) {}

std::optional<BlockPlace> LowerTier::put(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group,
                                         uint8_t size_class, const BlockWorth& worth, std::vector<BlockPlace>& dropped,
                                         uint32_t owner) {
  if (cache_.find(hash, tokens, group)) return std::nullopt;
  const std::optional<BlockPlace> place = pool_.allocate(size_class, dropped);
  if (!place) return std::nullopt;
  const bool entered = cache_.insert(hash, tokens, group, *place, owner);
  if (entered) pool_.set_worth(*place, worth);
  pool_.release(*place);
  return entered ? place : std::nullopt;
}

bool LowerTier::restore(const BlockHash& hash, std::span<const TokenId> tokens, int32_t group, BlockPlace place,
                        uint32_t owner) {
  if (!pool_.allocate_at(place)) return false;
  const bool entered = cache_.insert(hash, tokens, group, place, owner);
  pool_.release(place);
  return entered;
}

BlockWorth LowerTier::take_out(BlockPlace place) {
  TM_CHECK(pool_.num_references(place) == 1, "a block is taken out by its only holder");
  const BlockWorth worth = pool_.worth(place);
  cache_.forget(place);
  pool_.release(place);
  return worth;
}

void LowerTier::check_integrity() const {
  pool_.check_integrity();
  cache_.check_integrity();
}

}  // namespace tidemill
