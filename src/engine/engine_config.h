// Every lever of the scheduler and the engine, as a plain value. Flags set them (cli/options/run_options).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/eviction_order.h"

namespace tidemill {

enum class BatchingMode : uint8_t { none, fixed, continuous };  // --batching none|static|continuous
enum class KvReserve : uint8_t { on_demand, full };             // --kv-reserve full: contiguous, for the longest length
enum class PolicyKind : uint8_t { first_come, priority };       // --scheduling-policy fcfs|priority

// Who gives way when a running sequence finds no block: --preemption-victim newest|heuristic.
enum class VictimRule : uint8_t { newest, heuristic };

// How much a request minds waiting between its tokens. Lower is served first and preempted last.
enum class LatencyClass : uint8_t { interactive, standard, bulk };
inline constexpr size_t num_latency_classes = 3;
inline constexpr std::array<std::string_view, num_latency_classes> latency_class_names = {"interactive", "standard",
                                                                                          "bulk"};
constexpr std::optional<LatencyClass> latency_class_named(std::string_view name) {
  for (size_t i = 0; i < num_latency_classes; ++i) {
    if (name == latency_class_names[i]) return static_cast<LatencyClass>(i);
  }
  return std::nullopt;
}

// What the block pool must know of a layer group: numbers, no tensors.
struct BlockGroup {
  size_t tail_bytes = 0;    // a block in tail precision
  size_t sealed_bytes = 0;  // a block in its storage format; equal to tail_bytes and same_format: sealing moves nothing
  bool same_format = true;
  int32_t window_tokens = 0;  // 0 = full; else a row reads itself and window_tokens - 1 positions before it
};

// Which of the cache's formats a request's blocks are in; 0 = the usual one (engine/block_formats.h).
using KvFormatId = uint8_t;
inline constexpr size_t most_kv_formats = 8;
inline constexpr size_t most_size_classes = 256;

// A format that blocks may be kept in besides the usual one.
struct ExtraFormat {
  std::vector<BlockGroup> groups;  // sizes in this format, by layer group; windows as of EngineConfig::groups
  std::string tail_name, sealed_name;
  std::string key;  // as EngineConfig::kv_format_key
};

struct EngineConfig {
  std::vector<BlockGroup> groups;  // in the usual format
  int32_t block_size_tokens = 32;
  size_t kv_budget_bytes = 0;
  size_t kv_largest_budget_bytes = 0;  // what it may be resized to; less than kv_budget_bytes = that
  double kv_pin_share = 0.25;          // of the budget, that pinned prefixes may hold
  int32_t max_model_len_tokens = 0;    // prompt and output together
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
  // How long a step may take while interactive or standard requests stream; prompts get what their tokens leave of it.
  std::chrono::microseconds target_itl{0};  // 0 = the next
  // Of a step that only decodes all who are here; up to twice as much while long prompts wait. Within 65 ms where the
  // same multiple of the streams' own decodes is less. 0 = no limit.
  double itl_multiple = 2.5;
  int32_t min_prompt_rows = 16;  // of the first prompt in every step, whatever they cost
  BatchingMode batching = BatchingMode::continuous;
  bool kv_cache = true;  // false: --kv-cache off, everything is computed again at each step
  KvReserve kv_reserve = KvReserve::on_demand;
  PolicyKind policy = PolicyKind::first_come;
  size_t kv_host_bytes = 0;  // of the tier that takes blocks which the pool has to let go; 0 = none
  // The tier on disk: bytes of its file, and of one record by size class (of sealed blocks; 0 = none). 0 = no such
  // tier.
  size_t kv_disk_bytes = 0;
  std::vector<size_t> kv_disk_class_bytes;
  EvictionPolicy eviction = EvictionPolicy::heuristic;  // which cached block goes first
  VictimRule victim = VictimRule::heuristic;
  bool prefix_caching = true;  // false: a request finds only what it computed itself (after a preemption)
  std::optional<std::array<uint8_t, 32>> kv_hash_key;  // secret of the blocks' names; none = a fresh one
  std::string kv_tail_format, kv_sealed_format;        // their names, for who looks at the cache
  std::string kv_format_key;  // all that the stored KV depends on besides tokens; part of every block's hash
  std::vector<ExtraFormat> extra_formats;  // at most most_kv_formats - 1; format i + 1 is extra_formats[i]
  // Which of these cold blocks of the usual format get a second life in, before they are dropped. Requests may not ask
  // for it, but say that they may be served from it.
  std::optional<KvFormatId> kv_reencode;
  // Waiting this long raises a request by one latency class, and by one priority where that counts; 0 = never.
  std::chrono::milliseconds priority_aging{30000};
  // Queue limits; 0 = none.
  int32_t max_num_queued_requests = 1024;
  int64_t max_num_queued_tokens = 0;
  int32_t max_running_per_tenant = 0;
  int64_t max_queued_tokens_per_tenant = 0;
  std::chrono::milliseconds request_timeout{0};  // 0 = none
  std::chrono::milliseconds queue_timeout{0};
  std::chrono::milliseconds shutdown_timeout{10000};
  std::chrono::milliseconds watchdog{60000};  // a step that takes longer makes /health report a stuck engine
  int32_t max_num_choices = 128;
  uint64_t seed = 0;                        // of requests without one; 0 = from the system's entropy
  std::vector<int32_t> vocabulary_end_ids;  // the model's end-of-generation tokens
};

}  // namespace tidemill
