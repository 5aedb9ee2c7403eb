#include "base/work_claim.h"

#include <algorithm>

#include "base/check.h"

namespace tidemill {

WorkClaim::WorkClaim(std::vector<int32_t> node_of_worker) : node_of_worker_(std::move(node_of_worker)) {
  TM_CHECK(!node_of_worker_.empty(), "work is claimed by at least one worker");
  num_nodes_ = static_cast<size_t>(*std::max_element(node_of_worker_.begin(), node_of_worker_.end())) + 1;
  runs_ = std::make_unique<Run[]>(num_nodes_);
  for (const int32_t node : node_of_worker_) ++runs_[static_cast<size_t>(node)].num_workers;
}

void WorkClaim::start(int32_t num_pieces) {
  const auto num_workers = static_cast<int64_t>(node_of_worker_.size());
  int64_t workers_before = 0;
  for (size_t node = 0; node < num_nodes_; ++node) {
    runs_[node].next.store(static_cast<int32_t>(num_pieces * workers_before / num_workers), std::memory_order_relaxed);
    workers_before += runs_[node].num_workers;
    runs_[node].end = static_cast<int32_t>(num_pieces * workers_before / num_workers);
  }
}

WorkClaim::Share WorkClaim::take(Run& run) {
  int32_t first = run.next.load(std::memory_order_relaxed);
  while (first < run.end) {
    // Even, as long as they are large: kernels take two panels of weights together.
    const int32_t count = std::max(1, (run.end - first) / (2 * run.num_workers));
    const int32_t end = first + (count > 2 ? count / 2 * 2 : count);
    if (run.next.compare_exchange_weak(first, end, std::memory_order_relaxed)) return {first, end};
  }
  return {};
}

WorkClaim::Share WorkClaim::next_own(int32_t worker) {
  return take(runs_[static_cast<size_t>(node_of_worker_[static_cast<size_t>(worker)])]);
}

WorkClaim::Share WorkClaim::next(int32_t worker) {
  if (const Share own = next_own(worker)) return own;
  while (num_nodes_ > 1) {
    Run* fullest = nullptr;
    int32_t most_left = 0;
    for (size_t node = 0; node < num_nodes_; ++node) {
      const int32_t left = runs_[node].end - runs_[node].next.load(std::memory_order_relaxed);
      if (left > most_left) {
        fullest = &runs_[node];
        most_left = left;
      }
    }
    if (fullest == nullptr) return {};
    if (const Share share = take(*fullest)) return share;
  }
  return {};
}

}  // namespace tidemill
