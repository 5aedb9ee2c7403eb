// The same traffic through one engine in several modes: what the KV cache, batching and blocks are each worth.
//
// Modes are settings of one engine, in one process, on one loaded model: without a KV cache (every token computes its
// whole sequence again), without batching, with static batches, and continuous, with memory reserved for the longest
// answer or taken block by block. Traffic is a closed loop (bench/engine_run); prefixes are not shared, so that each
// mode computes the same.
//
// Beside the measured ratio of continuous to unbatched throughput stands the one that the machine's own rates imply:
// for the same requests, a schedule that loses nothing, in which prompts take their tokens over the measured prefill
// rate and a step with B sequences takes what such a step was measured to take alone. The ratio 3.8 that the project's
// source documents report was measured on one GPU system.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/batch_run.h"
#include "bench/bench_model.h"
#include "bench/engine_run.h"

namespace tidemill {

inline constexpr double documented_ratio = 3.8;

struct ModesOptions {
  int32_t concurrency = 32;
  double kv_off_limit_s = 20;    // the mode without a cache is cut off then; 0 leaves it out
  double price_per_hour = 0;     // of the machine; 0 = unknown
  std::vector<int32_t> lengths;  // for the cost of a token without and with a cache; empty = not measured
  std::function<void(const std::string& mode, const RunProgress&)> on_progress;
};

struct ModeResult {
  std::string name;
  LoadSummary summary;
  bool cut_off = false;
  double waste = 0;
  double mean_running = 0;
  size_t memory_bytes = 0;  // weights, scratch and the most KV that was held
};

struct LengthCost {
  int32_t length_tokens = 0;
  double without_cache_s = 0;  // a token after so many
  double with_cache_s = 0;
};

struct ModesResult {
  std::vector<ModeResult> modes;
  std::vector<BatchRates> rates;  // by ascending batch size; the first is one sequence
  std::vector<LengthCost> lengths;
  double measured_ratio = 0;  // continuous / unbatched, output tokens per second
  double implied_ratio = 0;
  double share() const { return measured_ratio / implied_ratio; }
};

Result<ModesResult> run_modes(const BenchModel& model, std::span<const TokenRequest> requests,
                              const ModesOptions& options);

// Prompt and answer of a request, in tokens.
using RequestLengths = std::pair<int64_t, int64_t>;
// Seconds that a schedule without losses takes for the requests with at most `concurrency` open. `step_s` has the
// seconds of a decode step by ascending batch size; sizes between are interpolated.
double lossless_seconds(std::span<const RequestLengths> requests, int32_t concurrency, double prefill_tokens_per_s,
                        std::span<const std::pair<int32_t, double>> step_s);

std::string modes_table(const ModesResult& result, const ModesOptions& options, int32_t num_threads);
nlohmann::ordered_json json_of(const ModesResult& result, const ModesOptions& options, int32_t num_threads);
std::string modes_picture(const ModesResult& result, const ModesOptions& options, const std::string& subtitle);

}  // namespace tidemill
