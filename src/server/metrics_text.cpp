#include "server/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <sstream>
#include <string_view>

#include "engine/request.h"

namespace tidemill {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// The samples of one answer, by metric.
class Samples {
 public:
  explicit Samples(const std::string& model_name) : common_{{"model_name", model_name}, {"engine", "0"}} {}

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
  void seconds(const char* name, const char* help, double value, const Labels& more) {
    sample(name, help, MetricType::Counter, more).counter.value = value;
  }
  void histogram(const char* name, const char* help, const Histogram& histogram, const Labels& more = {}) {
    ClientMetric::Histogram& out = sample(name, help, MetricType::Histogram, more).histogram;
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

void add_format_gauges(Samples& samples, const EngineStats& stats, std::span<const std::string> kv_formats) {
  const char* help = "KV bytes by the format of their blocks; idle = they have memory that is nobody's.";
  for (size_t i = 0; i < kv_formats.size(); ++i) {
    const FormatBytes& bytes = stats.kv_formats[i];
    const std::pair<const char*, size_t> states[] = {
        {"held", bytes.held}, {"cached", bytes.cached}, {"idle", bytes.idle}};
    for (const auto& [state, value] : states) {
      samples.gauge("kv_cache_format_bytes", help, static_cast<double>(value),
                    {{"format", kv_formats[i]}, {"state", state}});
      help = "";
    }
  }
}

void add_gauges(Samples& samples, const EngineStats& stats, size_t num_connections) {
  samples.gauge("num_requests_running", "Sequences that hold a slot.", stats.num_requests_running);
  samples.gauge("num_requests_waiting", "Sequences that wait for a slot.", stats.num_requests_waiting);
  samples.gauge("num_queued_tokens", "Prompt tokens of the waiting requests.",
                static_cast<double>(stats.num_queued_tokens));
  samples.gauge("kv_cache_usage_perc", "Share of the KV budget that sequences hold; 1 = all.",
                share(static_cast<double>(stats.kv_held_bytes), static_cast<double>(stats.kv_budget_bytes)));
  samples.gauge("kv_cache_budget_bytes", "KV bytes that may be used.", static_cast<double>(stats.kv_budget_bytes));
  samples.gauge("kv_cache_bytes_per_token", "KV bytes of a token in full blocks, scales and padding included.",
                stats.kv_bytes_per_token);
  samples.gauge("kv_cache_held_bytes", "KV bytes that sequences hold.", static_cast<double>(stats.kv_held_bytes));
  samples.gauge("kv_cache_cached_bytes", "KV bytes kept for prefix hits only.",
                static_cast<double>(stats.kv_cached_bytes));
  samples.gauge("kv_cache_occupied_bytes", "KV bytes that have memory: held, cached, or free at the moment.",
                static_cast<double>(stats.kv_occupied_bytes));
  samples.gauge("kv_cache_pinned_bytes", "KV bytes that pins hold.", static_cast<double>(stats.kv_pinned_bytes));
  samples.gauge("kv_cache_waste_ratio", "Share of the held KV bytes in which nothing is stored.",
                share(static_cast<double>(stats.kv_unused_bytes), static_cast<double>(stats.kv_held_bytes)));
  samples.gauge("kv_cache_mean_waste_ratio", "The same, over all steps since the start.",
                share(stats.kv_unused_byte_steps, stats.kv_held_byte_steps));
  samples.gauge("kv_blocks", "Blocks by state.", static_cast<double>(stats.num_blocks_total), {{"state", "total"}});
  samples.gauge("kv_blocks", "", static_cast<double>(stats.num_blocks_held), {{"state", "held"}});
  samples.gauge("kv_blocks", "", static_cast<double>(stats.num_blocks_cached), {{"state", "cached"}});
  samples.gauge("http_connections", "Open connections.", static_cast<double>(num_connections));
}

// By latency class: one family after the other, as the format wants it.
void add_classes(Samples& samples, const EngineStats& stats) {
  const auto each = [&stats](auto add) {
    for (size_t i = 0; i < num_latency_classes; ++i)
      add(stats.classes[i], Labels{{"latency_class", std::string(latency_class_names[i])}});
  };
  each([&](const ClassStats& of, const Labels& label) {
    samples.gauge("class_requests_running", "Sequences that hold a slot, by latency class.", of.num_running, label);
  });
  each([&](const ClassStats& of, const Labels& label) {
    samples.gauge("class_requests_waiting", "Sequences that wait, by latency class.", of.num_waiting, label);
  });
  each([&](const ClassStats& of, const Labels& label) {
    samples.histogram("class_time_to_first_token_seconds", "Arrival to the first token, by latency class.",
                      of.time_to_first_token, label);
  });
  each([&](const ClassStats& of, const Labels& label) {
    samples.histogram("class_inter_token_latency_seconds", "Between two tokens of a sequence, by latency class.",
                      of.inter_token_latency, label);
  });
  each([&](const ClassStats& of, const Labels& label) {
    samples.histogram("class_itl_jitter_ratio",
                      "Deviation of a request's token gaps over their mean, by latency class.", of.itl_jitter, label);
  });
}

// What a step was predicted to cost, and did.
void add_step_times(Samples& samples, const EngineStats& stats) {
  samples.gauge("step_limit_seconds", "The most that the last step was to take; 0 = no limit.", stats.step_limit_s);
  for (size_t i = 0; i < StepCost::num_terms; ++i)
    samples.gauge("step_cost_seconds", "Fitted cost of a step, and of a row, a draw, a position in it.",
                  stats.step_cost_s[i], {{"of", StepCost::term_names[i]}});
  for (size_t i = 0; i < step_phase_names.size(); ++i)
    samples.seconds("step_phase_seconds_total", "Time of the engine's thread by what it did.", stats.phase_s[i],
                    {{"phase", step_phase_names[i]}});
  samples.histogram("step_time_seconds", "Time of a step.", stats.step_time);
  samples.histogram("step_time_error_ratio", "Difference of a step's time from its prediction, over the time.",
                    stats.step_time_error);
}

void add_counters(Samples& samples, const EngineStats& stats) {
  samples.counter("steps_total", "Steps of the engine.", stats.num_steps);
  samples.counter("prompt_tokens_total", "Prompt tokens of admitted requests.", stats.prompt_tokens);
  samples.counter("prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.", stats.prompt_tokens_cached);
  samples.counter("prompt_tokens_computed_total", "Prompt tokens computed, also again.", stats.prompt_tokens_computed);
  samples.counter("prompt_tokens_recomputed_total", "Tokens computed again after preemptions.",
                  stats.prompt_tokens_recomputed);
  samples.counter("generation_tokens_total", "Tokens delivered.", stats.generation_tokens);
  samples.counter("discarded_tokens_total", "Tokens drawn beyond a stop string.", stats.discarded_tokens);
  samples.counter("num_preemptions_total", "Preemptions.", stats.num_preemptions);
  samples.counter("aborted_requests_total", "Requests ended by their client's leaving.", stats.num_aborted_requests);
  samples.counter("prefix_cache_queries_total", "Tokens looked for in the prefix cache.", stats.prefix_cache_queries);
  samples.counter("prefix_cache_hits_total", "Tokens found in the prefix cache.", stats.prefix_cache_hits);
  samples.counter("prefix_cache_requests_total", "Requests that asked the prefix cache.", stats.prefix_requests);
  samples.counter("prefix_cache_request_hits_total", "Requests that found something there.", stats.prefix_request_hits);
  samples.counter("prefix_cache_waits_total", "Requests that waited for a prefix which another one computed.",
                  stats.prefix_waits);
  samples.counter("kv_blocks_evicted_total", "Blocks kept for prefix hits that made room.", stats.num_blocks_evicted);
  samples.counter("kv_blocks_evicted_unused_total", "Of them, blocks that were never hit.",
                  stats.num_blocks_evicted_unused);
  for (size_t i = 0; i < stats.finished.size(); ++i)
    samples.counter("request_success_total", "Ended choices by reason.", stats.finished[i],
                    {{"finished_reason", finish_reason_names[i]}});
  static constexpr std::array refusals = {
      "context_length_exceeded", "kv_capacity_exceeded", "invalid", "queue_full", "tenant_limit", "shutting_down"};
  for (size_t i = 0; i < refusals.size(); ++i)
    samples.counter("admission_rejections_total", "Requests not taken, by reason.", stats.refused[i],
                    {{"reason", refusals[i]}});
}

// What became of blocks when memory ran short, rung by rung.
void add_ladder(Samples& samples, const EngineStats& stats) {
  const LadderStats& ladder = stats.ladder;
  samples.gauge("kv_host_budget_bytes", "Bytes of the host tier.", static_cast<double>(ladder.host_budget_bytes));
  samples.gauge("kv_host_used_bytes", "Bytes that it holds.", static_cast<double>(ladder.host_used_bytes));
  samples.gauge("kv_disk_budget_bytes", "Bytes of the disk tier.", static_cast<double>(ladder.disk_budget_bytes));
  samples.gauge("kv_disk_used_bytes", "Bytes that it holds.", static_cast<double>(ladder.disk_used_bytes));
  const auto each = [&](auto add) {
    add(ladder.moves[static_cast<size_t>(MoveKind::reencode)], Labels{{"rung", "reencode"}});
    add(ladder.moves[static_cast<size_t>(MoveKind::spill)], Labels{{"rung", "spill"}});
    add(ladder.moves[static_cast<size_t>(MoveKind::fetch)], Labels{{"rung", "fetch"}});
    add(ladder.disk.stored, Labels{{"rung", "store"}});
    add(ladder.disk.loaded, Labels{{"rung", "load"}});
  };
  each([&](const MoveTotals& moved, const Labels& label) {
    samples.counter("kv_moved_blocks_total", "Blocks moved between tiers.", moved.num_blocks, label);
  });
  each([&](const MoveTotals& moved, const Labels& label) {
    samples.counter("kv_moved_bytes_total", "Bytes moved between tiers.", moved.bytes, label);
  });
  each([&](const MoveTotals& moved, const Labels& label) {
    samples.seconds("kv_move_seconds_total", "Time that moving took.", static_cast<double>(moved.duration_ns) * 1e-9,
                    label);
  });
  samples.counter("kv_disk_failures_total", "Blocks that could not be written, or were not read unharmed.",
                  ladder.disk.num_failed_stores, {{"rung", "store"}});
  samples.counter("kv_disk_failures_total", "", ladder.disk.num_failed_loads, {{"rung", "load"}});
  samples.counter("kv_disk_restored_blocks_total", "Blocks that the disk tier held at the start.",
                  ladder.disk.num_restored);
  samples.counter("kv_blocks_dropped_total", "Evicted blocks that no tier took.", ladder.num_blocks_dropped);
  samples.counter("prompt_tokens_fetched_total", "Tokens found in a tier below the pool.", ladder.tokens_fetched);
}

void add_histograms(Samples& samples, const EngineStats& stats) {
  samples.histogram("time_to_first_token_seconds", "Arrival to the first token.", stats.time_to_first_token);
  samples.histogram("inter_token_latency_seconds", "Between two tokens of a sequence.", stats.inter_token_latency);
  samples.histogram("request_time_per_output_token_seconds", "Mean time between a request's tokens.",
                    stats.time_per_output_token);
  samples.histogram("e2e_request_latency_seconds", "Arrival to the last token.", stats.e2e_latency);
  samples.histogram("request_queue_time_seconds", "Arrival to the first step.", stats.queue_time);
  samples.histogram("request_inference_time_seconds", "First step to the last token.", stats.inference_time);
  samples.histogram("request_prefill_time_seconds", "First step to the first token.", stats.prefill_time);
  samples.histogram("request_decode_time_seconds", "First to the last token.", stats.decode_time);
  samples.histogram("request_prompt_tokens", "Prompt tokens of a request.", stats.prompt_length);
  samples.histogram("request_generation_tokens", "Tokens generated for a choice.", stats.generation_length);
  samples.histogram("request_params_max_tokens", "max_tokens of a request.", stats.max_tokens);
  samples.histogram("request_params_n", "n of a request.", stats.num_choices);
  samples.histogram("request_num_preemptions", "Preemptions of a request.", stats.preemptions_per_request);
  samples.histogram("kv_disk_wait_seconds",
                    "Time that requests waited for blocks from the disk tier, of those that had some read.",
                    stats.kv_disk_wait);
  samples.histogram("request_itl_jitter_ratio", "Deviation of a request's token gaps over their mean.",
                    stats.itl_jitter);
  samples.histogram("iteration_tokens_total", "Tokens computed in a step.", stats.iteration_tokens);
}

// The live meter; its series exist only where it is on.
void add_audit(Samples& samples, const AuditStats& audit, std::span<const std::string> kv_formats) {
  if (!audit.on) return;
  samples.gauge("kv_audit_share", "Share of requests and of computed tokens that the live meter may have.",
                audit.share);
  samples.counter("kv_audit_requests_total", "Choices that the live meter sampled, by what became of them.",
                  audit.num_done, {{"outcome", "measured"}});
  samples.counter("kv_audit_requests_total", "", audit.num_skipped, {{"outcome", "skipped"}});
  samples.counter("kv_audit_requests_total", "", audit.num_reencoded, {{"outcome", "reencoded"}});
  samples.counter("kv_audit_computed_tokens_total", "Tokens computed by the live meter.", audit.computed_rows);
  const auto each = [&](auto add) {
    for (size_t i = 0; i < audit.formats.size(); ++i) add(audit.formats[i], Labels{{"format", kv_formats[i]}});
  };
  each([&](const AuditFigures& of, const Labels& label) {
    samples.counter("kv_audit_tokens_total", "Drawn tokens whose distribution was compared, by their request's format.",
                    of.num_rows, label);
  });
  each([&](const AuditFigures& of, const Labels& label) {
    samples.counter("kv_audit_same_top_total", "Those whose likeliest token is the reference's.", of.num_same_top,
                    label);
  });
  each([&](const AuditFigures& of, const Labels& label) {
    samples.gauge("kv_audit_worst_divergence_nats", "The largest divergence of a token so far.", of.worst_kl, label);
  });
  each([&](const AuditFigures& of, const Labels& label) {
    samples.histogram("kv_audit_divergence_nats",
                      "Divergence of a drawn token's distribution from that of an uncompressed cache.", of.divergence,
                      label);
  });
}

}  // namespace

void HttpCounters::count(RouteId route, int status) {
  const std::string text = std::to_string(status);
  size_t index = statuses.size() - 1;
  for (size_t i = 0; i < statuses.size(); ++i)
    if (text == statuses[i]) index = i;
  ++counts_[static_cast<size_t>(route)][index];
}

std::string metrics_text(const EngineStats& stats, std::span<const std::string> kv_formats, const HttpCounters& http,
                         size_t num_connections, const std::string& model_name) {
  Samples samples(model_name);
  add_gauges(samples, stats, num_connections);
  add_format_gauges(samples, stats, kv_formats);
  add_counters(samples, stats);
  // Every series exists from the start, so their number is constant.
  for (size_t route = 0; route < num_routes; ++route)
    for (size_t i = 0; i < HttpCounters::statuses.size(); ++i)
      samples.counter("http_requests_total", "Answered HTTP requests; 499 = the client left first.", http.get(route, i),
                      {{"route", route_name(static_cast<RouteId>(route))}, {"status", HttpCounters::statuses[i]}});
  add_histograms(samples, stats);
  add_classes(samples, stats);
  add_step_times(samples, stats);
  add_audit(samples, stats.audit, kv_formats);
  add_ladder(samples, stats);
  return samples.text();
}

}  // namespace tidemill
