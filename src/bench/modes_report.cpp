// What bench/modes measured, as a table, as JSON and as a picture.
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/modes.h"
#include "bench/report.h"
#include "bench/svg_chart.h"

namespace tidemill {
namespace {

// Of a million output tokens, in whatever currency the price has; NaN without a price.
double cost_per_million(const ModeResult& mode, double price_per_hour) {
  return price_per_hour > 0 ? price_per_hour / 3600 / mode.summary.output_tokens_per_s * 1e6 : NAN;
}

double per_gb(const ModeResult& mode) {
  return mode.summary.output_tokens_per_s / (static_cast<double>(mode.memory_bytes) / 1e9);
}

std::string lengths_table(const ModesResult& result) {
  Table table({"a token after", "KV cache off ms", "KV cache on ms", "times"});
  for (const LengthCost& cost : result.lengths) {
    table.add({fmt::format("{}", cost.length_tokens), ms_text(cost.without_cache_s), ms_text(cost.with_cache_s),
               number_text(cost.without_cache_s / cost.with_cache_s, 1)});
  }
  return table.text();
}

std::string rates_table(const ModesResult& result) {
  Table table({"sequences", "context", "prefill tok/s", "decode tok/s", "step ms"});
  for (const BatchRates& rate : result.rates) {
    table.add({fmt::format("{}", rate.shape.num_sequences), fmt::format("{}", rate.shape.prompt_tokens),
               number_text(rate.prefill_tokens_per_s(), 0), number_text(rate.decode_tokens_per_s(), 1),
               ms_text(median(rate.steps_s))});
  }
  return table.text();
}

std::vector<Bar> bars_of(const ModesResult& result, double (*value)(const ModeResult&),
                         std::string (*text)(const ModeResult&)) {
  std::vector<Bar> bars;
  for (const ModeResult& mode : result.modes) bars.push_back({mode.name, value(mode), text(mode)});
  return bars;
}

}  // namespace

std::string modes_table(const ModesResult& result, const ModesOptions& options, int32_t num_threads) {
  Table table({"mode", "requests", "output tok/s", "TTFT p50 ms", "p99", "gap p50 ms", "p99", "max", "jitter",
               "KV waste %", "tok/s per GB", "per core", "per million"});
  for (const ModeResult& mode : result.modes) {
    const LoadSummary& summary = mode.summary;
    table.add({mode.name + (mode.cut_off ? " (cut off)" : ""), fmt::format("{}", summary.num_requests),
               number_text(summary.output_tokens_per_s, 1), ms_text(summary.first_token_s.p50),
               ms_text(summary.first_token_s.p99), ms_text(summary.gap_s.p50), ms_text(summary.gap_s.p99),
               ms_text(summary.gap_s.max), number_text(summary.jitter, 3), number_text(mode.waste * 100, 1),
               number_text(per_gb(mode), 0), number_text(summary.output_tokens_per_s / num_threads, 1),
               number_text(cost_per_million(mode, options.price_per_hour), 3)});
  }
  std::string text = rates_table(result) + "\n" + table.text();
  text += fmt::format(
      "continuous / no batching: {:.2f} measured, {:.2f} implied by the rates above ({:.0f} % of it), {} reported in "
      "the source documents\n",
      result.measured_ratio, result.implied_ratio, result.share() * 100, documented_ratio);
  return result.lengths.empty() ? text : text + "\n" + lengths_table(result);
}

nlohmann::ordered_json json_of(const ModesResult& result, const ModesOptions& options, int32_t num_threads) {
  nlohmann::ordered_json json;
  for (const ModeResult& mode : result.modes) {
    nlohmann::ordered_json row = {{"mode", mode.name}, {"cut_off", mode.cut_off}};
    row.update(json_of(mode.summary));
    row["mean_running"] = mode.mean_running;
    row["kv_waste"] = mode.waste;
    row["memory_bytes"] = mode.memory_bytes;
    row["output_tokens_per_s_per_gb"] = per_gb(mode);
    row["output_tokens_per_s_per_core"] = mode.summary.output_tokens_per_s / num_threads;
    const double cost = cost_per_million(mode, options.price_per_hour);
    row["cost_per_million_output_tokens"] = std::isnan(cost) ? nlohmann::ordered_json() : nlohmann::ordered_json(cost);
    json["modes"].push_back(std::move(row));
  }
  for (const BatchRates& rate : result.rates) {
    json["rates"].push_back({{"sequences", rate.shape.num_sequences},
                             {"context_tokens", rate.shape.prompt_tokens},
                             {"prefill_tokens_per_s", rate.prefill_tokens_per_s()},
                             {"decode_tokens_per_s", rate.decode_tokens_per_s()},
                             {"step_ms", median(rate.steps_s) * 1e3}});
  }
  for (const LengthCost& cost : result.lengths) {
    json["token_cost_by_length"].push_back({{"length_tokens", cost.length_tokens},
                                            {"kv_cache_off_ms", cost.without_cache_s * 1e3},
                                            {"kv_cache_on_ms", cost.with_cache_s * 1e3}});
  }
  json["continuous_over_unbatched"] = {{"measured", result.measured_ratio},
                                       {"implied_by_rates", result.implied_ratio},
                                       {"share", result.share()},
                                       {"source_documents", documented_ratio}};
  json["price_per_hour"] =
      options.price_per_hour > 0 ? nlohmann::ordered_json(options.price_per_hour) : nlohmann::ordered_json();
  return json;
}

std::string modes_picture(const ModesResult& result, const ModesOptions& options, const std::string& subtitle) {
  SvgPage page("One engine, one traffic: what the cache, batching and blocks are worth", subtitle);
  page.add_bars("Output tokens per second",
                bars_of(
                    result, [](const ModeResult& mode) { return mode.summary.output_tokens_per_s; },
                    [](const ModeResult& mode) { return number_text(mode.summary.output_tokens_per_s, 1); }));
  page.add_bars("Time to first token, p50",
                bars_of(
                    result, [](const ModeResult& mode) { return mode.summary.first_token_s.p50; },
                    [](const ModeResult& mode) { return ms_text(mode.summary.first_token_s.p50) + " ms"; }));
  page.add_bars("Gap between tokens, p99",
                bars_of(
                    result, [](const ModeResult& mode) { return mode.summary.gap_s.p99; },
                    [](const ModeResult& mode) { return ms_text(mode.summary.gap_s.p99) + " ms"; }));
  page.add_bars("Jitter of a stream", bars_of(
                                          result, [](const ModeResult& mode) { return mode.summary.jitter; },
                                          [](const ModeResult& mode) { return number_text(mode.summary.jitter, 2); }));
  page.add_bars("Reserved KV memory that stored nothing",
                bars_of(
                    result, [](const ModeResult& mode) { return mode.waste; },
                    [](const ModeResult& mode) { return number_text(mode.waste * 100, 1) + " %"; }));
  page.add_bars("Continuous over unbatched",
                {{"measured", result.measured_ratio, number_text(result.measured_ratio, 2)},
                 {"implied by rates", result.implied_ratio, number_text(result.implied_ratio, 2)},
                 {"source documents", documented_ratio, number_text(documented_ratio, 1)}});
  if (!result.lengths.empty()) {
    LineSeries off{"KV cache off", {}}, on{"KV cache on", {}};
    for (const LengthCost& cost : result.lengths) {
      off.points.emplace_back(cost.length_tokens, cost.without_cache_s * 1e3);
      on.points.emplace_back(cost.length_tokens, cost.with_cache_s * 1e3);
    }
    page.add_lines("Milliseconds for one more token", "tokens before it", {off, on});
  }
  if (options.price_per_hour > 0) {
    std::vector<Bar> bars;
    for (const ModeResult& mode : result.modes) {
      const double cost = cost_per_million(mode, options.price_per_hour);
      bars.push_back({mode.name, cost, number_text(cost, 3)});
    }
    page.add_bars(fmt::format("Cost of a million output tokens at {} an hour", options.price_per_hour), bars);
  }
  return page.text();
}

}  // namespace tidemill
