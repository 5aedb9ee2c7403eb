#include "engine/engine_stats.h"

#include <algorithm>

namespace tidemill {
namespace {

// Bounds as vLLM publishes them, so that dashboards work unchanged.
constexpr double first_token[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double between_tokens[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                     0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
constexpr double whole[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                            30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
constexpr double iteration[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
constexpr double choices[] = {1, 2, 5, 10, 20};
constexpr double preemptions[] = {1, 2, 3, 4, 5, 10, 20};
constexpr double gaps[] = {0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075,
                           0.1,   0.15,  0.2,   0.3,  0.5,   0.75, 1,    2.5,  5,    10};
constexpr double error_shares[] = {0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1};
constexpr double jitter[] = {0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10};

std::vector<double> one_two_five(double most) {
  std::vector<double> bounds;
  for (double decade = 1;; decade *= 10) {
    for (double step : {1.0, 2.0, 5.0}) {
      if (decade * step > most) return bounds;
      bounds.push_back(decade * step);
    }
  }
}

}  // namespace

void Histogram::observe(double value, uint64_t times) {
  const size_t bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[bucket] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

EngineStats make_engine_stats(int32_t max_model_len_tokens) {
  const Histogram tokens(one_two_five(max_model_len_tokens));
  EngineStats stats;
  stats.time_to_first_token = Histogram(first_token);
  stats.inter_token_latency = stats.time_per_output_token = Histogram(between_tokens);
  stats.e2e_latency = stats.queue_time = stats.prefill_time = stats.decode_time = stats.inference_time =
      Histogram(whole);
  stats.prompt_length = stats.generation_length = stats.max_tokens = tokens;
  stats.num_choices = Histogram(choices);
  stats.iteration_tokens = Histogram(iteration);
  stats.preemptions_per_request = Histogram(preemptions);
  stats.itl_jitter = Histogram(jitter);
  stats.kv_disk_wait = Histogram(first_token);
  stats.step_time = Histogram(gaps);
  stats.step_time_error = Histogram(error_shares);
  for (ClassStats& each : stats.classes) {
    each.time_to_first_token = Histogram(first_token);
    each.inter_token_latency = Histogram(gaps);
    each.itl_jitter = Histogram(jitter);
  }
  return stats;
}

}  // namespace tidemill
