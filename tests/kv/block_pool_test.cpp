#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "kv/block_table.h"

namespace tidemill {
namespace {

TEST(BlockPool, HandsOutItsBudgetAndThenNothing) {
  BlockPool pool(1000, {100});
  std::vector<BlockPlace> dropped, taken;
  for (int i = 0; i < 10; ++i) {
    const auto place = pool.allocate(0, dropped);
    ASSERT_TRUE(place);
    taken.push_back(*place);
  }
  EXPECT_FALSE(pool.allocate(0, dropped));
  EXPECT_EQ(pool.held_bytes(), 1000u);
  EXPECT_EQ(pool.available_bytes(), 0u);
  pool.release(taken[3]);
  const auto again = pool.allocate(0, dropped);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, taken[3]);
  EXPECT_TRUE(dropped.empty());
  pool.check_integrity();
}

TEST(BlockPool, KeptBlocksAreEvictedOldestFirst) {
  BlockPool pool(300, {100});
  std::vector<BlockPlace> dropped, taken, evicted;
  pool.on_eviction([&](BlockPlace place) { evicted.push_back(place); });
  for (int i = 0; i < 3; ++i) taken.push_back(*pool.allocate(0, dropped));
  for (int i : {1, 0, 2}) {
    pool.mark_kept(taken[i], true);
    pool.release(taken[i]);
  }
  EXPECT_EQ(pool.cached_bytes(), 300u);
  EXPECT_EQ(pool.available_bytes(), 300u);
  pool.share(taken[0]);  // wanted again: not evictable
  EXPECT_EQ(*pool.allocate(0, dropped), taken[1]);
  EXPECT_EQ(*pool.allocate(0, dropped), taken[2]);
  EXPECT_FALSE(pool.allocate(0, dropped));
  EXPECT_EQ(evicted, (std::vector<BlockPlace>{taken[1], taken[2]}));
  EXPECT_EQ(pool.num_references(taken[0]), 1);
  pool.check_integrity();
}

TEST(BlockPool, BytesWanderBetweenClasses) {
  BlockPool pool(1000, {100, 30});
  std::vector<BlockPlace> dropped, large, small;
  for (int i = 0; i < 10; ++i) large.push_back(*pool.allocate(0, dropped));
  EXPECT_FALSE(pool.allocate(1, dropped));
  pool.release(large[0]);
  pool.mark_kept(large[1], true);
  pool.release(large[1]);
  for (int i = 0; i < 6; ++i) small.push_back(*pool.allocate(1, dropped));  // 180 of 200
  EXPECT_FALSE(pool.allocate(1, dropped));
  EXPECT_EQ(dropped, (std::vector<BlockPlace>{large[0], large[1]}));
  for (BlockPlace place : small) pool.release(place);
  dropped.clear();
  EXPECT_TRUE(pool.allocate(0, dropped));  // of the 20 that were free, and idle slots trimmed
  EXPECT_EQ(dropped.size(), 3u);
  pool.check_integrity();
}

TEST(BlockPool, SlotsStayWithinTheBudgetWhateverHappens) {
  std::mt19937 random(11);
  const std::vector<size_t> bytes = {100, 37, 0, 64};
  BlockPool pool(5000, bytes);
  pool.on_eviction([](BlockPlace) {});
  std::vector<BlockPlace> held, dropped;  // one entry per reference
  std::map<std::pair<int, uint32_t>, bool> kept;
  for (int operation = 0; operation < 20000; ++operation) {
    const auto pick = [&] { return random() % held.size(); };
    switch (random() % 5) {
      case 0:
      case 1: {
        const uint8_t size_class = std::array<uint8_t, 3>{0, 1, 3}[random() % 3];
        dropped.clear();
        const bool fits = bytes[size_class] <= pool.available_bytes();
        const auto place = pool.allocate(size_class, dropped);
        ASSERT_EQ(place.has_value(), fits);
        if (!place) break;
        ASSERT_LE((place->slot + 1) * bytes[size_class], 5000u);
        for (BlockPlace other : held) ASSERT_FALSE(other == *place);
        held.push_back(*place);
        break;
      }
      case 2:
        if (held.empty()) break;
        held.push_back(held[pick()]);
        pool.share(held.back());
        break;
      case 3:
        if (!held.empty()) pool.mark_kept(held[pick()], random() % 2);
        break;
      default: {
        if (held.empty()) break;
        const size_t which = pick();
        pool.release(held[which]);
        held.erase(held.begin() + static_cast<ptrdiff_t>(which));
      }
    }
    if (operation % 50 == 0) pool.check_integrity();
  }
  for (BlockPlace place : held) pool.release(place);
  pool.check_integrity();
  EXPECT_EQ(pool.held_bytes(), 0u);
  EXPECT_EQ(pool.available_bytes(), 5000u);
}

TEST(BlockPoolDeathTest, AWrongCountStopsTheProcess) {
  BlockPool pool(300, {100});
  std::vector<BlockPlace> dropped;
  const BlockPlace place = *pool.allocate(0, dropped);
  pool.release(place);
  EXPECT_DEATH(pool.release(place), "invariant broken");
  EXPECT_DEATH(pool.share(place), "invariant broken");
  EXPECT_DEATH(pool.release({5, 0}), "invariant broken");
  EXPECT_DEATH(pool.release({0, 3}), "invariant broken");
}

TEST(BlockTable, OwnsSharesAndGivesBackTailFirst) {
  BlockPool pool(1000, {100});
  std::vector<BlockPlace> dropped, evicted;
  pool.on_eviction([&](BlockPlace place) { evicted.push_back(place); });
  std::vector<BlockPlace> places;
  {
    BlockTable table(pool);
    for (int i = 0; i < 5; ++i) {
      places.push_back(*pool.allocate(0, dropped));
      table.append(places.back());
      pool.mark_kept(places.back(), true);
    }
    BlockTable shared = table.share(3);
    EXPECT_EQ(pool.num_references(places[2]), 2);
    EXPECT_EQ(pool.num_references(places[3]), 1);
    BlockTable moved = std::move(shared);
    EXPECT_EQ(shared.num_blocks(), 0);
    EXPECT_EQ(moved.end_block(), 3);
    moved.drop_leading(2);
    EXPECT_EQ(moved.first_block(), 2);
    EXPECT_EQ(moved.place(2), places[2]);
    EXPECT_EQ(pool.num_references(places[1]), 1);
    const BlockPlace fresh = *pool.allocate(0, dropped);
    moved.replace(2, fresh);
    EXPECT_EQ(pool.num_references(places[2]), 1);
  }
  EXPECT_EQ(pool.held_bytes(), 0u);
  EXPECT_EQ(pool.num_cached_blocks(), 5);
  for (int i = 0; i < 10; ++i) static_cast<void>(pool.allocate(0, dropped));
  EXPECT_EQ(evicted, std::vector<BlockPlace>(places.rbegin(), places.rend()));
}

}  // namespace
}  // namespace tidemill
