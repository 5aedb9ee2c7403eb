#include "kv/eviction_order.h"

#include <algorithm>

#include "base/check.h"

namespace tidemill {
namespace {

// By hits: 0, 1, 2, 3, 4 and more.
constexpr std::array hit_weights = {1.0, 0.9, 0.8, 0.75, 0.7};
// By the importance of users: interactive, standard, bulk.
constexpr std::array importance_weights = {0.5, 1.0, 2.0};
// By the length of the chain: attention over so many positions makes a token dearer to compute again.
constexpr std::array chain_weights = {1.0, 0.95, 0.9};
constexpr std::array chain_bounds = {4096, 16384};

uint32_t chain_class(int32_t chain_tokens) {
  return static_cast<uint32_t>(std::ranges::upper_bound(chain_bounds, chain_tokens) - chain_bounds.begin());
}

}  // namespace

uint32_t num_eviction_queues(EvictionPolicy policy) {
  if (policy != EvictionPolicy::heuristic) return 1;
  return static_cast<uint32_t>(hit_weights.size() * importance_weights.size() * chain_weights.size());
}

EvictionRank eviction_rank(EvictionPolicy policy, const BlockWorth& worth, uint64_t now) {
  if (policy == EvictionPolicy::fifo) return {.queue = 0, .tick = worth.entered_tick};
  if (policy == EvictionPolicy::lru) return {.queue = 0, .tick = now};
  const auto hits = std::min<uint32_t>(worth.num_hits, hit_weights.size() - 1);
  const auto importance = std::min<uint32_t>(worth.importance, importance_weights.size() - 1);
  const uint32_t queue = (chain_class(worth.chain_tokens) * importance_weights.size() + importance) *
                             static_cast<uint32_t>(hit_weights.size()) +
                         hits;
  return {.queue = queue, .tick = now};
}

double eviction_weight(EvictionPolicy policy, uint32_t queue) {
  TM_CHECK(queue < num_eviction_queues(policy), "a queue of the policy");
  if (policy != EvictionPolicy::heuristic) return 1;
  const size_t hits = queue % hit_weights.size();
  const size_t importance = queue / hit_weights.size() % importance_weights.size();
  const size_t chain = queue / hit_weights.size() / importance_weights.size();
  return hit_weights[hits] * importance_weights[importance] * chain_weights[chain];
}

}  // namespace tidemill
