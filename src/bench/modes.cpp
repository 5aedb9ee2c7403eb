#include "bench/modes.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/statistics.h"

namespace tidemill {
namespace {

constexpr int32_t rate_new_tokens = 24;
constexpr int32_t rate_repeats = 3;

struct ModeSetting {
  const char* name;
  BatchingMode batching;
  bool kv_cache;
  KvReserve reserve;
};

constexpr ModeSetting settings[] = {
    {"KV cache off", BatchingMode::none, false, KvReserve::on_demand},
    {"no batching", BatchingMode::none, true, KvReserve::on_demand},
    {"static", BatchingMode::fixed, true, KvReserve::on_demand},
    {"continuous, reserved", BatchingMode::continuous, true, KvReserve::full},
    {"continuous", BatchingMode::continuous, true, KvReserve::on_demand},
};

EngineConfig config_of(const BenchModel& model, const ModeSetting& setting) {
  EngineConfig config = model.config;
  config.batching = setting.batching;
  config.kv_cache = setting.kv_cache;
  config.kv_reserve = setting.reserve;
  config.prefix_caching = false;
  return config;
}

Result<ModeResult> run_mode(const BenchModel& model, std::span<const TokenRequest> requests,
                            const ModesOptions& options, const ModeSetting& setting) {
  EngineRunOptions run;
  run.concurrency = options.concurrency;
  if (!setting.kv_cache) run.limit_s = options.kv_off_limit_s;
  if (options.on_progress) {
    run.on_progress = [&](const RunProgress& progress) { options.on_progress(setting.name, progress); };
  }
  const Result<EngineRunResult> result = run_in_engine(model, config_of(model, setting), requests, run);
  if (!result) return result.error();
  ModeResult mode;
  mode.name = setting.name;
  mode.summary = summarize(result->records, result->wall_s);
  mode.cut_off = result->cut_off;
  mode.waste = result->waste();
  mode.mean_running = result->mean_running;
  mode.memory_bytes = model.weight_bytes + model.scratch_bytes + result->peak_held_bytes;
  return mode;
}

// Rates at the traffic's own mean context, for 1, 2, 4, ... and all sequences at once.
Result<std::vector<BatchRates>> measure_rates(const BenchModel& model, std::span<const TokenRequest> requests,
                                              int32_t concurrency) {
  double prompt_tokens = 0, new_tokens = 0;
  for (const TokenRequest& request : requests) {
    prompt_tokens += static_cast<double>(request.prompt.size());
    new_tokens += request.max_tokens;
  }
  const auto count = static_cast<double>(requests.size());
  const auto context = static_cast<int32_t>(std::max(1.0, (prompt_tokens + new_tokens / 2) / count));
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size < concurrency; size *= 2) sizes.push_back(size);
  sizes.push_back(concurrency);
  const std::unique_ptr<Executor> executor = model.make_executor();
  std::vector<BatchRates> rates;
  for (const int32_t size : sizes) {
    const BatchShape shape = {size, context, rate_new_tokens};
    if (Result<void> fits = check_batch(model, shape); !fits) return fits.error();
    rates.push_back(measure_batch(model, *executor, shape, rate_repeats));
  }
  return rates;
}

double implied_ratio_of(std::span<const BatchRates> rates, std::span<const TokenRequest> requests,
                        int32_t concurrency) {
  std::vector<RequestLengths> lengths;
  for (const TokenRequest& request : requests) lengths.emplace_back(request.prompt.size(), request.max_tokens);
  std::vector<std::pair<int32_t, double>> step_s;
  for (const BatchRates& rate : rates) step_s.emplace_back(rate.shape.num_sequences, median(rate.steps_s));
  const double alone = lossless_seconds(lengths, 1, rates.front().prefill_tokens_per_s(), step_s);
  return alone / lossless_seconds(lengths, concurrency, rates.back().prefill_tokens_per_s(), step_s);
}

// The median gap of one request after a prompt of `length` tokens.
Result<double> token_cost(const BenchModel& model, int32_t length, bool kv_cache) {
  ModeSetting setting = {"length", BatchingMode::none, kv_cache, KvReserve::on_demand};
  TokenRequest request;
  for (int32_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<TokenId>(i % model.vocab_size));
  request.max_tokens = kv_cache ? 9 : 3;
  EngineRunOptions run;
  run.concurrency = 1;
  const Result<EngineRunResult> result = run_in_engine(model, config_of(model, setting), std::span(&request, 1), run);
  if (!result) return result.error();
  return median(result->records.front().gaps_s());
}

Result<std::vector<LengthCost>> measure_lengths(const BenchModel& model, const ModesOptions& options) {
  std::vector<LengthCost> costs;
  for (const int32_t length : options.lengths) {
    if (length + 10 > model.config.max_model_len_tokens) break;
    const Result<double> without = token_cost(model, length, false);
    if (!without) return without.error();
    const Result<double> with = token_cost(model, length, true);
    if (!with) return with.error();
    costs.push_back({length, *without, *with});
  }
  return costs;
}

const ModeResult* find_mode(const ModesResult& result, const std::string& name) {
  const auto found = std::ranges::find(result.modes, name, &ModeResult::name);
  return found == result.modes.end() ? nullptr : &*found;
}

}  // namespace

double lossless_seconds(std::span<const RequestLengths> requests, int32_t concurrency, double prefill_tokens_per_s,
                        std::span<const std::pair<int32_t, double>> step_s) {
  const auto seconds_of_step = [&](int32_t size) {
    size_t upper = 0;
    while (upper + 1 < step_s.size() && step_s[upper].first < size) ++upper;
    if (upper == 0 || step_s[upper].first <= size) return step_s[upper].second;
    const auto& [low_size, low_s] = step_s[upper - 1];
    const auto& [high_size, high_s] = step_s[upper];
    return low_s + (high_s - low_s) * (size - low_size) / (high_size - low_size);
  };
  double seconds = 0;
  std::vector<int64_t> left;  // tokens that each open request still wants
  size_t next = 0;
  while (next < requests.size() || !left.empty()) {
    while (left.size() < static_cast<size_t>(concurrency) && next < requests.size()) {
      seconds += static_cast<double>(requests[next].first) / prefill_tokens_per_s;
      left.push_back(requests[next++].second - 1);  // the prompt's last row gives the first token
      if (left.back() <= 0) left.pop_back();
    }
    if (left.empty()) continue;
    // All steps until the first of them ends at once.
    const int64_t steps = *std::ranges::min_element(left);
    seconds += static_cast<double>(steps) * seconds_of_step(static_cast<int32_t>(left.size()));
    for (int64_t& tokens : left) tokens -= steps;
    std::erase(left, 0);
  }
  return seconds;
}

Result<ModesResult> run_modes(const BenchModel& model, std::span<const TokenRequest> requests,
                              const ModesOptions& options) {
  ModesResult result;
  Result<std::vector<BatchRates>> rates = measure_rates(model, requests, options.concurrency);
  if (!rates) return rates.error();
  result.rates = *std::move(rates);
  for (const ModeSetting& setting : settings) {
    if (!setting.kv_cache && options.kv_off_limit_s == 0) continue;
    Result<ModeResult> mode = run_mode(model, requests, options, setting);
    if (!mode) return mode.error();
    result.modes.push_back(*std::move(mode));
  }
  Result<std::vector<LengthCost>> lengths = measure_lengths(model, options);
  if (!lengths) return lengths.error();
  result.lengths = *std::move(lengths);
  result.measured_ratio = find_mode(result, "continuous")->summary.output_tokens_per_s /
                          find_mode(result, "no batching")->summary.output_tokens_per_s;
  result.implied_ratio = implied_ratio_of(result.rates, requests, options.concurrency);
  return result;
}

}  // namespace tidemill
