#include "kv/lower_tier.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tidemill {
namespace {

constexpr int32_t block_size = 4;

std::vector<TokenId> tokens_of(int32_t name) {
  return {name, name + 1, name + 2, name + 3};
}
BlockHash hash_of(int32_t name) {
  return block_hash(HashKey{3}, {}, tokens_of(name));
}

TEST(LowerTier, HoldsAContentOnceAndEvictsTheOldest) {
  LowerTier tier(300, {100}, EvictionPolicy::lru, block_size, {0});
  std::vector<BlockPlace> dropped;
  for (int32_t name : {1, 2, 3}) EXPECT_TRUE(tier.put(hash_of(name), tokens_of(name), 0, 0, {}, dropped));
  EXPECT_FALSE(tier.put(hash_of(2), tokens_of(2), 0, 0, {}, dropped)) << "it is there already";
  tier.hold(*tier.find(hash_of(1), tokens_of(1), 0));
  EXPECT_TRUE(tier.put(hash_of(4), tokens_of(4), 0, 0, {}, dropped));
  EXPECT_TRUE(tier.find(hash_of(1), tokens_of(1), 0)) << "held";
  EXPECT_FALSE(tier.find(hash_of(2), tokens_of(2), 0));
  tier.take_out(*tier.find(hash_of(1), tokens_of(1), 0));
  EXPECT_FALSE(tier.find(hash_of(1), tokens_of(1), 0));
  EXPECT_EQ(tier.pool().cached_bytes(), 200u);
  tier.check_integrity();
}

TEST(LowerTier, ABlockTakesItsWorthAlong) {
  LowerTier tier(300, {100}, EvictionPolicy::heuristic, block_size, {0});
  std::vector<BlockPlace> dropped;
  EXPECT_TRUE(tier.put(hash_of(1), tokens_of(1), 0, 0, {.num_hits = 3, .importance = 0, .chain_tokens = 70}, dropped));
  const BlockPlace place = *tier.find(hash_of(1), tokens_of(1), 0);
  tier.hold(place);
  const BlockWorth worth = tier.take_out(place);
  EXPECT_EQ(worth.num_hits, 3);
  EXPECT_EQ(worth.importance, 0);
  EXPECT_EQ(worth.chain_tokens, 70);
}

TEST(LowerTier, AFullTierOfHeldBlocksTakesNothing) {
  LowerTier tier(100, {100, 200}, EvictionPolicy::lru, block_size, {0, 0});
  std::vector<BlockPlace> dropped;
  EXPECT_FALSE(tier.put(hash_of(1), tokens_of(1), 1, 1, {}, dropped)) << "larger than the tier";
  EXPECT_TRUE(tier.put(hash_of(1), tokens_of(1), 0, 0, {}, dropped));
  tier.hold(*tier.find(hash_of(1), tokens_of(1), 0));
  EXPECT_FALSE(tier.put(hash_of(2), tokens_of(2), 0, 0, {}, dropped));
  tier.let_go(*tier.find(hash_of(1), tokens_of(1), 0));
  EXPECT_TRUE(tier.put(hash_of(2), tokens_of(2), 0, 0, {}, dropped));
}

TEST(LowerTier, CountsAddUpAfterAnyOperation) {
  std::mt19937 random(17);
  LowerTier tier(3000, {100, 37, 0, 64}, EvictionPolicy::heuristic, block_size, {0, 9});
  std::vector<BlockPlace> dropped, held;
  for (int operation = 0; operation < 20000; ++operation) {
    const int32_t name = static_cast<int32_t>(random() % 60);
    const int32_t group = static_cast<int32_t>(random() % 2);
    const uint8_t size_class = group == 0 ? static_cast<uint8_t>(random() % 2) : 3;
    const auto found = tier.find(hash_of(name), tokens_of(name), group);
    const bool is_held = found && tier.pool().num_references(*found) > 0;
    if (random() % 2 == 0) {
      const BlockWorth worth{.num_hits = static_cast<uint8_t>(random() % 6)};
      const auto put = tier.put(hash_of(name), tokens_of(name), group, size_class, worth, dropped);
      EXPECT_FALSE(found && put);
    } else if (found && !is_held) {
      tier.hold(*found);
      if (random() % 2 == 0) {
        held.push_back(*found);
      } else {
        tier.take_out(*found);
      }
    } else if (!held.empty()) {
      tier.let_go(held.back());
      held.pop_back();
    }
    tier.check_integrity();
    ASSERT_LE(held.size(), 60u);
  }
}

}  // namespace
}  // namespace tidemill
