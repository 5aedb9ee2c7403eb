#include "server/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <sstream>
#include <string_view>

namespace tidemill {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Page {
 public:
  explicit Page(const std::string& model_name) : common_{{"model_name", model_name}, {"engine", "0"}} {}

  ClientMetric& sample(const char* name, const char* help, MetricType type, const Labels& more = {}) {
    const std::string full = std::string("tidemill:") + name;
    if (families_.empty() || families_.back().name != full) families_.push_back({full, help, type, {}});
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = common_;
    metric.label.insert(metric.label.end(), more.begin(), more.end());
    return metric;
  }
  void gauge(const char* name, const char* help, double value, const Labels& more = {}) {
    sample(name, help, MetricType::Gauge, more).gauge.value = std::isfinite(value) ? value : 0;
  }
  void counter(const char* name, const char* help, uint64_t value, const Labels& more = {}) {
    sample(name, help, MetricType::Counter, more).counter.value = static_cast<double>(value);
  }
  void histogram(const char* name, const char* help, const Histogram& histogram) {
    ClientMetric::Histogram& out = sample(name, help, MetricType::Histogram).histogram;
    out.sample_count = histogram.count();
    out.sample_sum = histogram.sum();
    uint64_t cumulative = 0;
    for (size_t i = 0; i < histogram.bounds().size(); ++i) {
      cumulative += histogram.counts()[i];
      out.bucket.push_back({cumulative, histogram.bounds()[i]});
    }
    out.bucket.push_back({histogram.count(), INFINITY});
  }
  std::string text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return out.str();
  }

 private:
  Labels common_;
  std::vector<MetricFamily> families_;
};

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

void add_gauges(Page& page, const EngineStats& stats, size_t num_connections) {
  page.gauge("num_requests_running", "Sequences that hold a slot.", stats.num_requests_running);
  page.gauge("num_requests_waiting", "Sequences that wait for a slot.", stats.num_requests_waiting);
  page.gauge("num_queued_tokens", "Prompt tokens of the waiting requests.",
             static_cast<double>(stats.num_queued_tokens));
  page.gauge("kv_cache_usage_perc", "Share of the KV budget that sequences hold; 1 = all.",
             share(static_cast<double>(stats.kv_held_bytes), static_cast<double>(stats.kv_budget_bytes)));
  page.gauge("kv_cache_budget_bytes", "KV bytes that may be used.", static_cast<double>(stats.kv_budget_bytes));
  page.gauge("kv_cache_held_bytes", "KV bytes that sequences hold.", static_cast<double>(stats.kv_held_bytes));
  page.gauge("kv_cache_cached_bytes", "KV bytes kept for prefix hits only.",
             static_cast<double>(stats.kv_cached_bytes));
  page.gauge("kv_blocks", "Blocks by state.", static_cast<double>(stats.num_blocks_total), {{"state", "total"}});
  page.gauge("kv_blocks", "", static_cast<double>(stats.num_blocks_held), {{"state", "held"}});
  page.gauge("kv_blocks", "", static_cast<double>(stats.num_blocks_cached), {{"state", "cached"}});
  page.gauge("http_connections", "Open connections.", static_cast<double>(num_connections));
}

void add_counters(Page& page, const EngineStats& stats) {
  page.counter("steps_total", "Steps of the engine.", stats.num_steps);
  page.counter("prompt_tokens_total", "Prompt tokens of admitted requests.", stats.prompt_tokens);
  page.counter("prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.", stats.prompt_tokens_cached);
  page.counter("prompt_tokens_recomputed_total", "Tokens computed again after preemptions.",
               stats.prompt_tokens_recomputed);
  page.counter("generation_tokens_total", "Tokens delivered.", stats.generation_tokens);
  page.counter("discarded_tokens_total", "Tokens drawn beyond a stop string.", stats.discarded_tokens);
  page.counter("num_preemptions_total", "Preemptions.", stats.num_preemptions);
  page.counter("aborted_requests_total", "Requests ended by their client's leaving.", stats.num_aborted_requests);
  page.counter("prefix_cache_queries_total", "Tokens looked for in the prefix cache.", stats.prefix_cache_queries);
  page.counter("prefix_cache_hits_total", "Tokens found in the prefix cache.", stats.prefix_cache_hits);
  static constexpr std::array kReasons = {"stop", "length", "abort", "timeout", "error", "shutdown"};
  for (size_t i = 0; i < kReasons.size(); ++i)
    page.counter("request_success_total", "Ended choices by reason.", stats.finished[i],
                 {{"finished_reason", kReasons[i]}});
  static constexpr std::array kRefusals = {
      "context_length_exceeded", "kv_capacity_exceeded", "invalid", "queue_full", "tenant_limit", "shutting_down"};
  for (size_t i = 0; i < kRefusals.size(); ++i)
    page.counter("admission_rejections_total", "Requests not taken, by reason.", stats.refused[i],
                 {{"reason", kRefusals[i]}});
}

void add_histograms(Page& page, const EngineStats& stats) {
  page.histogram("time_to_first_token_seconds", "Arrival to the first token.", stats.time_to_first_token);
  page.histogram("inter_token_latency_seconds", "Between two tokens of a sequence.", stats.inter_token_latency);
  page.histogram("request_time_per_output_token_seconds", "Mean time between a request's tokens.",
                 stats.time_per_output_token);
  page.histogram("e2e_request_latency_seconds", "Arrival to the last token.", stats.e2e_latency);
  page.histogram("request_queue_time_seconds", "Arrival to the first step.", stats.queue_time);
  page.histogram("request_inference_time_seconds", "First step to the last token.", stats.inference_time);
  page.histogram("request_prefill_time_seconds", "First step to the first token.", stats.prefill_time);
  page.histogram("request_decode_time_seconds", "First to the last token.", stats.decode_time);
  page.histogram("request_prompt_tokens", "Prompt tokens of a request.", stats.prompt_length);
  page.histogram("request_generation_tokens", "Tokens generated for a choice.", stats.generation_length);
  page.histogram("request_params_max_tokens", "max_tokens of a request.", stats.max_tokens);
  page.histogram("request_params_n", "n of a request.", stats.num_choices);
  page.histogram("request_num_preemptions", "Preemptions of a request.", stats.preemptions_per_request);
  page.histogram("request_itl_jitter_ratio", "Deviation of a request's token gaps over their mean.", stats.itl_jitter);
  page.histogram("iteration_tokens_total", "Tokens computed in a step.", stats.iteration_tokens);
}

}  // namespace

void HttpCounters::count(RouteId route, int status) {
  const std::string text = std::to_string(status);
  size_t index = kStatuses.size() - 1;
  for (size_t i = 0; i < kStatuses.size(); ++i)
    if (text == kStatuses[i]) index = i;
  ++counts_[static_cast<size_t>(route)][index];
}

std::string metrics_text(const EngineStats& stats, const HttpCounters& http, size_t num_connections,
                         const std::string& model_name) {
  Page page(model_name);
  add_gauges(page, stats, num_connections);
  add_counters(page, stats);
  // Every series exists from the start, so their number is constant.
  for (size_t route = 0; route < kNumRoutes; ++route)
    for (size_t i = 0; i < HttpCounters::kStatuses.size(); ++i)
      page.counter("http_requests_total", "Answered HTTP requests; 499 = the client left first.", http.get(route, i),
                   {{"route", route_name(static_cast<RouteId>(route))}, {"status", HttpCounters::kStatuses[i]}});
  add_histograms(page, stats);
  return page.text();
}

}  // namespace tidemill
