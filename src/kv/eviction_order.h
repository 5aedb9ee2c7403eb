// In which order cached blocks go when memory is needed.
//
// Each policy gives a cached block a queue and a tick, and the block that goes is the one whose age (ticks since its
// own, one tick per block that came to be cached) times the weight of its queue is greatest. So every queue is ordered
// once and for all, and only the heads of a few queues are compared:
//   fifo       one queue, by the time at which the content was first given back; being used again changes nothing
//   lru        one queue, by the time at which the last holder gave the block back
//   heuristic  lru with an age that runs slower for what is worth more: a queue for each combination of the importance
//              of its users, of how often it was hit, and of how much its chain costs to compute again
// Position in a chain needs no term: a chain is given back tail first, and a head was hit at least as often and by
// chains at least as long as its tail, so tails go first.
//
// Weights: how much faster a block ages than one of the reference. By hits: in the published conversation trace
// (docs/kv-memory.md) blocks hit once, twice, three times are wanted again 1.4, 2 and 3 times as soon at equal age, and
// interest falls with about the power 1.7 of the age. The random-access structure is a binary heap with known indices:
// all operations in O(log n), no allocation once it has been full.
//
// Used by one thread, by BlockPool only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/block_place.h"

namespace tidemill {

enum class EvictionPolicy : uint8_t { fifo, lru, heuristic };
inline constexpr std::array<std::string_view, 3> eviction_policy_names = {"fifo", "lru", "heuristic"};

// What a policy may know of a cached block.
struct BlockWorth {
  uint8_t num_hits = 0;       // times that it was used again; saturates
  uint8_t importance = 1;     // of its most important user: 0 = most, 2 = least (latency classes)
  int32_t chain_tokens = 0;   // of the longest sequence that held it: what is computed again attends to so many
  uint64_t entered_tick = 0;  // when it was first cached
};

// A cached block's place in the order.
struct EvictionRank {
  uint32_t queue = 0;
  uint64_t tick = 0;
};

// The rank of a block that becomes cached at `now`.
EvictionRank eviction_rank(EvictionPolicy policy, const BlockWorth& worth, uint64_t now);
uint32_t num_eviction_queues(EvictionPolicy policy);
double eviction_weight(EvictionPolicy policy, uint32_t queue);

// The cached blocks of one queue, least tick first. `Index` tells each block where it stands.
class EvictionQueue {
 public:
  struct Entry {
    uint64_t tick = 0;
    BlockPlace place;
  };
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  const Entry& oldest() const { return heap_.front(); }
  const Entry& entry(size_t index) const { return heap_[index]; }

  // moved(place, index) is called for every block whose index changes, with the new one.
  template <typename Moved>
  void insert(Entry entry, Moved moved) {
    heap_.push_back(entry);
    rise(heap_.size() - 1, moved);
  }
  template <typename Moved>
  void erase(size_t index, Moved moved) {
    const Entry last = heap_.back();
    heap_.pop_back();
    if (index == heap_.size()) return;
    heap_[index] = last;
    rise(sink(index, moved), moved);
  }

 private:
  template <typename Moved>
  void rise(size_t index, Moved moved) {
    const Entry entry = heap_[index];
    for (; index > 0 && heap_[(index - 1) / 2].tick > entry.tick; index = (index - 1) / 2) {
      put(index, heap_[(index - 1) / 2], moved);
    }
    put(index, entry, moved);
  }
  template <typename Moved>
  size_t sink(size_t index, Moved moved) {
    const Entry entry = heap_[index];
    for (size_t child = 2 * index + 1; child < heap_.size(); child = 2 * index + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1].tick < heap_[child].tick) ++child;
      if (heap_[child].tick >= entry.tick) break;
      put(index, heap_[child], moved);
      index = child;
    }
    put(index, entry, moved);
    return index;
  }
  template <typename Moved>
  void put(size_t index, Entry entry, Moved moved) {
    heap_[index] = entry;
    moved(entry.place, static_cast<uint32_t>(index));
  }

  std::vector<Entry> heap_;
};

}  // namespace tidemill
