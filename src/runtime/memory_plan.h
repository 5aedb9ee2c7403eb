// Where the memory goes, before any of it is taken: weights, scratch, KV cache, and how many users that makes.
//
// A pure calculation over plain values; start-up, `inspect` and the planner call the same functions, so they cannot
// disagree. Bytes throughout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/model.h"
#include "runtime/kv_storage.h"

namespace tidemill {

// What the user said of the cache's size; the first that is given counts.
struct KvBudgetOptions {
  std::optional<size_t> bytes;        // --kv-cache-memory-bytes
  std::optional<int64_t> num_blocks;  // --num-kv-blocks: the bytes of that many sealed blocks over all groups
  double memory_utilization = 0.5;    // --memory-utilization: a share of what is available after the weights
  size_t host_bytes = 0;              // --kv-host-bytes: of a tier beside the cache
};

struct MemoryPlan {
  size_t weight_bytes = 0;
  size_t scratch_bytes = 0;
  size_t available_bytes = 0;  // when the cache was sized: after weights and scratch were taken
  size_t kv_budget_bytes = 0;
  size_t block_bytes = 0;  // one sealed block of every group
  int64_t num_blocks = 0;  // of block_bytes in the budget
  int32_t block_size_tokens = 0;
};

// Memory that this process may still take: the least of the system's available memory and its cgroups' limits.
size_t available_memory_bytes();

// KV bytes that one sequence of num_tokens holds: whole blocks (and a tail where blocks are encoded), windowed groups
// only what their window needs.
size_t sequence_kv_bytes(const KvLayout& layout, int32_t block_size, const KvFormats& formats, int64_t num_tokens);
// Bytes per token of a long sequence in sealed blocks, scales and padding included, all groups counted in full.
double kv_bytes_per_token(const KvLayout& layout, int32_t block_size, const KvFormats& formats);

// An Error when the budget holds not even one block of each group.
Result<MemoryPlan> plan_memory(const KvLayout& layout, int32_t block_size, const KvFormats& formats,
                               size_t weight_bytes, size_t scratch_bytes, size_t available_bytes,
                               const KvBudgetOptions& options);

// How many sequences of num_tokens fit into the plan's cache at once.
int64_t num_sequences_that_fit(const MemoryPlan& plan, const KvLayout& layout, const KvFormats& formats,
                               int64_t num_tokens);

}  // namespace tidemill
