// How the pieces of one operation are handed to the workers of a pool: each node (workers that share a memory node, or
// a worker alone) has a fixed run of the pieces, and a worker takes from its own node's run first, then from where most
// is left to do.
//
// Which pieces belong to which node depends on their number and the workers alone, so weights whose pieces were touched
// first by the node's workers (next_own) lie in the node's memory when the same pieces are worked on. Shares are large
// at first, so that there is little to contend for, and single pieces at the end, so that workers end together.
// start() by one thread while no worker claims; next() and next_own() by each worker for itself. Allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace tidemill {

class WorkClaim {
 public:
  struct Share {
    int32_t first = 0;
    int32_t end = 0;  // == first: nothing is left
    explicit operator bool() const { return first < end; }
  };

  // node_of_worker: for every worker, nodes counted from 0.
  explicit WorkClaim(std::vector<int32_t> node_of_worker);

  void start(int32_t num_pieces);
  Share next(int32_t worker);
  // From the worker's own node only.
  Share next_own(int32_t worker);

 private:
  struct alignas(64) Run {
    std::atomic<int32_t> next{0};
    int32_t end = 0;
    int32_t num_workers = 0;
  };
  Share take(Run& run);

  const std::vector<int32_t> node_of_worker_;
  size_t num_nodes_ = 0;
  std::unique_ptr<Run[]> runs_;  // by node
};

}  // namespace tidemill
