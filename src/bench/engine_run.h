// A workload through the whole engine in this process: scheduler, cache, sampling; no HTTP and no text.
//
// A closed loop: so many requests are open at any time, the next is submitted when one ends, all greedy and none ended
// by the model itself, so that every configuration does the same work. One thread, the caller's. What is noted of each
// request is what a client would see whose events arrive without delay.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "bench/bench_model.h"
#include "bench/statistics.h"
#include "bench/workload.h"

namespace tidemill {

struct TokenRequest {
  std::vector<TokenId> prompt;
  int32_t max_tokens = 0;
  std::string class_name;
};

// An Error names the first request that does not fit the model's length.
Result<std::vector<TokenRequest>> tokenize_workload(const BenchModel& model, std::span<const BenchRequest> requests);

struct RunProgress {
  size_t num_done = 0;
  size_t num_requests = 0;
  size_t num_open = 0;
  int64_t output_tokens = 0;
  double seconds = 0;
};

struct EngineRunOptions {
  int32_t concurrency = 32;
  double limit_s = std::numeric_limits<double>::infinity();  // what is still open then is cut off and counts as it is
  std::function<void(const RunProgress&)> on_progress;       // at most ten times a second
  std::function<bool()> should_stop = [] { return false; };
};

struct EngineRunResult {
  std::vector<RequestRecord> records;  // of all that were submitted
  double wall_s = 0;
  bool cut_off = false;
  uint64_t num_steps = 0;
  uint64_t num_preemptions = 0;
  // Means over the steps, weighted by their time.
  double mean_running = 0;
  double mean_held_bytes = 0;  // of KV that sequences hold or have reserved
  double mean_used_bytes = 0;  // of those, what computed positions fill
  size_t peak_held_bytes = 0;
  // Of the memory that sequences held, the share that nothing was stored in.
  double waste() const { return mean_held_bytes > 0 ? 1 - mean_used_bytes / mean_held_bytes : 0; }
};

// `config` is the model's, with other levers; an Error says why the engine refused a request.
Result<EngineRunResult> run_in_engine(const BenchModel& model, const EngineConfig& config,
                                      std::span<const TokenRequest> requests, const EngineRunOptions& options);

}  // namespace tidemill
