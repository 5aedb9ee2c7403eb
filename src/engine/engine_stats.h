// Counters, gauges and histograms of the engine: a consistent copy, taken at the end of a step.
//
// Counters never fall. What is measured is here; server/metrics_text turns it into text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/audit_stats.h"
#include "engine/cache_map.h"
#include "engine/disk_planner.h"
#include "engine/engine_config.h"
#include "engine/histogram.h"
#include "engine/request.h"
#include "engine/step_cost.h"
#include "engine/step_plan.h"

namespace tidemill {

// What requests of one latency class see.
struct ClassStats {
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  Histogram time_to_first_token, inter_token_latency, itl_jitter;
};

// Where the time of a step goes on the engine's thread.
enum class StepPhase : uint8_t { schedule, execute, apply, publish };
inline constexpr std::array step_phase_names = {"schedule", "execute", "apply", "publish"};

// Where blocks went when memory ran short.
struct LadderStats {
  size_t host_budget_bytes = 0, host_used_bytes = 0;
  size_t disk_budget_bytes = 0, disk_used_bytes = 0;
  DiskCounters disk;
  uint64_t num_blocks_dropped = 0;                 // evicted, and kept in no tier
  std::array<MoveTotals, num_move_kinds> moves{};  // by MoveKind
  uint64_t tokens_fetched = 0;                     // found below the pool instead of computed
};

struct EngineStats {
  // Gauges.
  int32_t num_requests_running = 0;  // sequences holding a slot
  int32_t num_requests_waiting = 0;
  int64_t num_queued_tokens = 0;
  size_t kv_budget_bytes = 0;
  double kv_bytes_per_token = 0;                          // in full blocks, all layer groups
  size_t kv_held_bytes = 0;                               // by sequences
  size_t kv_cached_bytes = 0;                             // unreferenced, kept for prefix hits
  size_t kv_occupied_bytes = 0;                           // that have memory: held, cached, or nobody's at the moment
  size_t kv_pinned_bytes = 0;                             // held by pins
  std::array<FormatBytes, most_kv_formats> kv_formats{};  // by KvFormatId
  size_t kv_unused_bytes = 0;    // of the held ones: rows that hold nothing yet, or nothing any more
  int64_t num_blocks_total = 0;  // sealed blocks of the usual format that the budget holds
  int64_t num_blocks_held = 0;
  int64_t num_blocks_cached = 0;
  StepCost::Terms step_cost_s{};  // what a step, a row, a draw, a position are predicted to take (engine/step_cost.h)
  double step_limit_s = 0;        // that the last step had; 0 = none
  // Counters.
  uint64_t num_steps = 0;
  double kv_held_byte_steps = 0;    // sums over the steps, of the bytes that they left held
  double kv_unused_byte_steps = 0;  // and of them, unused
  uint64_t prompt_tokens = 0;       // of admitted requests
  uint64_t prompt_tokens_cached = 0;
  uint64_t prompt_tokens_recomputed = 0;  // after preemptions
  uint64_t generation_tokens = 0;         // delivered
  uint64_t discarded_tokens = 0;          // drawn beyond a stop string
  uint64_t num_preemptions = 0;
  uint64_t num_aborted_requests = 0;  // by the client's disconnect or a cancel
  uint64_t prefix_cache_queries = 0;  // tokens asked
  uint64_t prefix_cache_hits = 0;     // tokens found
  uint64_t prefix_requests = 0;       // admitted requests that asked the prefix cache
  uint64_t prefix_request_hits = 0;   // of them, those that found something
  uint64_t prefix_waits = 0;          // of them, those that waited for a prefix which another one computed
  uint64_t prompt_tokens_computed = 0;
  uint64_t num_blocks_evicted = 0;                              // cached ones, to make room
  uint64_t num_blocks_evicted_unused = 0;                       // of them, never hit
  std::array<uint64_t, finish_reason_names.size()> finished{};  // choices by FinishReason
  std::array<uint64_t, 6> refused{};                            // by Refusal::Kind
  std::array<double, step_phase_names.size()> phase_s{};
  std::array<ClassStats, num_latency_classes> classes;
  LadderStats ladder;
  // Histograms (seconds, tokens).
  Histogram time_to_first_token, inter_token_latency, time_per_output_token, e2e_latency, queue_time, prefill_time,
      decode_time, inference_time, prompt_length, generation_length, max_tokens, num_choices, iteration_tokens,
      preemptions_per_request, itl_jitter;
  Histogram kv_disk_wait;  // of requests that had blocks read from the disk tier
  Histogram step_time;
  Histogram step_time_error;  // |measured - predicted| / measured
  AuditStats audit;           // of the live meter
};

// All zero, with vLLM's bucket bounds; token counts in a 1-2-5 series up to the context length.
EngineStats make_engine_stats(int32_t max_model_len_tokens);

}  // namespace tidemill
