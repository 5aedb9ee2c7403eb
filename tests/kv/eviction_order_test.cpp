#include "kv/eviction_order.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "kv/block_pool.h"

namespace tidemill {
namespace {

// A pool of ten blocks of which `num` are cached by a test; evict() says which one goes next.
class Order {
 public:
  explicit Order(EvictionPolicy policy, size_t num_blocks = 10) : pool_(100 * num_blocks, {100}, policy) {
    pool_.on_eviction([this](BlockPlace place) { evicted_ = static_cast<int>(place.slot); });
  }
  int hold() {
    const BlockPlace place = *pool_.allocate(0, dropped_);
    pool_.mark_kept(place, true);
    return static_cast<int>(place.slot);
  }
  void release(int block, uint8_t importance = 1, int32_t chain_tokens = 100) {
    pool_.note_use(at(block), importance, chain_tokens, false);
    pool_.release(at(block));
    pool_.check_integrity();
  }
  void hit(int block) {
    pool_.share(at(block));
    pool_.note_use(at(block), 1, 100, true);
  }
  // Fills the pool with held blocks until one has to go.
  int evict() {
    evicted_ = -1;
    while (evicted_ < 0 && pool_.allocate(0, dropped_)) {
    }
    pool_.check_integrity();
    return evicted_;
  }
  BlockPool& pool() { return pool_; }

 private:
  static BlockPlace at(int block) { return {static_cast<uint32_t>(block), 0}; }
  BlockPool pool_;
  std::vector<BlockPlace> dropped_;
  int evicted_ = -1;
};

TEST(EvictionOrder, FifoGoesByTheFirstReleaseWhateverHappensLater) {
  Order order(EvictionPolicy::fifo);
  const int a = order.hold(), b = order.hold(), c = order.hold();
  order.release(b);
  order.release(a);
  order.release(c);
  order.hit(b);
  order.release(b);
  EXPECT_EQ(order.evict(), b);
  EXPECT_EQ(order.evict(), a);
  EXPECT_EQ(order.evict(), c);
  EXPECT_EQ(order.evict(), -1);
}

TEST(EvictionOrder, LruGoesByTheLastRelease) {
  Order order(EvictionPolicy::lru);
  const int a = order.hold(), b = order.hold(), c = order.hold();
  order.release(b);
  order.release(a);
  order.release(c);
  order.hit(b);
  order.release(b);
  EXPECT_EQ(order.evict(), a);
  EXPECT_EQ(order.evict(), c);
  EXPECT_EQ(order.evict(), b);
}

TEST(EvictionOrder, HeldBlocksAreNoCandidatesUnderAnyPolicy) {
  for (EvictionPolicy policy : {EvictionPolicy::fifo, EvictionPolicy::lru, EvictionPolicy::heuristic}) {
    Order order(policy);
    const int a = order.hold(), b = order.hold();
    order.release(a);
    order.release(b);
    order.hit(a);
    EXPECT_EQ(order.evict(), b);
    EXPECT_EQ(order.evict(), -1);
    EXPECT_EQ(order.pool().num_references({static_cast<uint32_t>(a), 0}), 1);
  }
}

TEST(EvictionOrder, HeuristicKeepsWhatWasHit) {
  Order order(EvictionPolicy::heuristic, 20);
  const int often = order.hold();
  std::vector<int> once;
  for (int i = 0; i < 12; ++i) once.push_back(order.hold());
  order.release(often);
  for (int i = 0; i < 5; ++i) {
    order.hit(often);
    order.release(often);
  }
  for (int block : once) order.release(block);
  // 13 ticks old, of which 0.7 count: three or four that came later go before it.
  int num_before = 0;
  while (order.evict() != often) ++num_before;
  EXPECT_GE(num_before, 2);
  EXPECT_LE(num_before, 5);
}

TEST(EvictionOrder, HeuristicKeepsWhatImportantRequestsUse) {
  Order order(EvictionPolicy::heuristic);
  const int bulk = order.hold(), standard = order.hold(), interactive = order.hold();
  std::vector<int> others;
  for (int i = 0; i < 4; ++i) others.push_back(order.hold());
  order.release(interactive, 0);
  order.release(standard, 1);
  order.release(bulk, 2);
  for (int block : others) order.release(block, 0);
  EXPECT_EQ(order.evict(), bulk) << "although it came last";
  EXPECT_EQ(order.evict(), standard);
  EXPECT_EQ(order.evict(), interactive);
}

TEST(EvictionOrder, HeuristicKeepsLongChainsWhichCostMore) {
  Order order(EvictionPolicy::heuristic, 40);
  const int dear = order.hold(), cheap = order.hold();
  std::vector<int> others;
  for (int i = 0; i < 25; ++i) others.push_back(order.hold());
  order.release(dear, 1, 100000);
  order.release(cheap, 1, 100);
  for (int block : others) order.release(block, 0);  // they age slowly
  EXPECT_EQ(order.evict(), cheap) << "although it came later";
  EXPECT_EQ(order.evict(), dear);
}

TEST(EvictionOrder, OfOneChainTheTailGoesFirst) {
  for (EvictionPolicy policy : {EvictionPolicy::fifo, EvictionPolicy::lru, EvictionPolicy::heuristic}) {
    Order order(policy);
    std::vector<int> chain;
    for (int i = 0; i < 6; ++i) chain.push_back(order.hold());
    for (int i = 5; i >= 0; --i) order.release(chain[i], 1, 3000);
    for (int i = 2; i >= 0; --i) {  // its head is used again
      order.hit(chain[i]);
      order.release(chain[i]);
    }
    for (int i = 5; i >= 0; --i) EXPECT_EQ(order.evict(), chain[i]);
  }
}

TEST(EvictionOrder, EveryQueueHasItsOwnNumberAndAWeight) {
  for (EvictionPolicy policy : {EvictionPolicy::fifo, EvictionPolicy::lru, EvictionPolicy::heuristic}) {
    std::map<uint32_t, double> seen;
    for (uint8_t hits : {0, 1, 2, 3, 4, 255})
      for (uint8_t importance : {0, 1, 2, 255})
        for (int32_t chain : {0, 5000, 1 << 30}) {
          const uint32_t queue =
              eviction_rank(policy, {.num_hits = hits, .importance = importance, .chain_tokens = chain}, 5).queue;
          ASSERT_LT(queue, num_eviction_queues(policy));
          seen[queue] = eviction_weight(policy, queue);
          EXPECT_GT(seen[queue], 0);
        }
    EXPECT_EQ(seen.size(), num_eviction_queues(policy));
  }
}

TEST(EvictionQueue, AgreesWithASortedList) {
  std::mt19937 random(3);
  EvictionQueue queue;
  std::map<uint32_t, uint64_t> ticks;    // by slot
  std::map<uint32_t, uint32_t> indices;  // by slot
  const auto moved = [&](BlockPlace place, uint32_t index) { indices[place.slot] = index; };
  for (uint32_t operation = 0; operation < 20000; ++operation) {
    if (ticks.empty() || random() % 2 == 0) {
      ticks[operation] = random() % 1000;
      queue.insert({ticks[operation], {operation, 0}}, moved);
    } else if (random() % 2 == 0) {
      const BlockPlace oldest = queue.oldest().place;
      for (const auto& [slot, tick] : ticks) ASSERT_LE(ticks[oldest.slot], tick);
      queue.erase(indices[oldest.slot], moved);
      ticks.erase(oldest.slot);
    } else {
      auto any = ticks.begin();
      std::advance(any, random() % ticks.size());
      queue.erase(indices[any->first], moved);
      ticks.erase(any);
    }
    ASSERT_EQ(queue.size(), ticks.size());
  }
}

}  // namespace
}  // namespace tidemill
