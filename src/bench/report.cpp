#include "bench/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/machine.h"

namespace tidemill {
namespace {

nlohmann::ordered_json rounded(double value, double steps) {
  if (!std::isfinite(value)) return nullptr;
  return std::round(value * steps) / steps;
}

nlohmann::ordered_json ms(double seconds) {
  return rounded(seconds * 1e3, 1000);
}

}  // namespace

nlohmann::ordered_json json_of(const Distribution& seconds) {
  return {{"count", seconds.count}, {"mean", ms(seconds.mean)}, {"p50", ms(seconds.p50)},
          {"p90", ms(seconds.p90)}, {"p99", ms(seconds.p99)},   {"max", ms(seconds.max)}};
}

nlohmann::ordered_json json_of(const LoadSummary& summary) {
  return {{"requests", summary.num_requests},
          {"errors", summary.num_errors},
          {"prompt_tokens", summary.prompt_tokens},
          {"cached_tokens", summary.cached_tokens},
          {"output_tokens", summary.output_tokens},
          {"wall_s", rounded(summary.wall_s, 1000)},
          {"output_tokens_per_s", rounded(summary.output_tokens_per_s, 100)},
          {"total_tokens_per_s", rounded(summary.total_tokens_per_s, 100)},
          {"ttft_ms", json_of(summary.first_token_s)},
          {"itl_ms", json_of(summary.gap_s)},
          {"e2e_ms", json_of(summary.request_s)},
          {"itl_p99_over_p50", rounded(summary.gap_ratio(), 1000)},
          {"jitter", rounded(summary.jitter, 1000)}};
}

nlohmann::ordered_json json_of(const RequestRecord& record) {
  nlohmann::ordered_json json = {{"index", record.index},
                                 {"class", record.class_name},
                                 {"start_ms", ms(record.start_s)},
                                 {"end_ms", ms(record.end_s)},
                                 {"prompt_tokens", record.prompt_tokens},
                                 {"cached_tokens", record.cached_tokens},
                                 {"output_tokens", record.output_tokens}};
  json["token_ms"] = nlohmann::ordered_json::array();
  for (const double time : record.token_s) json["token_ms"].push_back(ms(time - record.start_s));
  if (!record.error.empty()) json["error"] = record.error;
  return json;
}

nlohmann::ordered_json json_by_class(std::span<const RequestRecord> records, double wall_s) {
  nlohmann::ordered_json json = {{"all", json_of(summarize(records, wall_s))}};
  const std::vector<std::string> names = class_names(records);
  for (const std::string& name : names) {
    if (names.size() > 1) json["by_class"][name] = json_of(summarize_class(records, name, wall_s));
  }
  return json;
}

Table load_table(const std::string& first_heading) {
  return Table({first_heading, "requests", "errors", "seconds", "output tok/s", "total tok/s", "TTFT p50 ms", "p90",
                "p99", "gap p50 ms", "p99", "max", "p99/p50", "jitter"});
}

void add_load_row(Table& table, const std::string& name, const LoadSummary& summary) {
  table.add({name, fmt::format("{}", summary.num_requests), fmt::format("{}", summary.num_errors),
             number_text(summary.wall_s, 2), number_text(summary.output_tokens_per_s, 1),
             number_text(summary.total_tokens_per_s, 1), ms_text(summary.first_token_s.p50),
             ms_text(summary.first_token_s.p90), ms_text(summary.first_token_s.p99), ms_text(summary.gap_s.p50),
             ms_text(summary.gap_s.p99), ms_text(summary.gap_s.max), number_text(summary.gap_ratio(), 2),
             number_text(summary.jitter, 3)});
}

void add_load_rows(Table& table, const std::string& name, std::span<const RequestRecord> records, double wall_s) {
  add_load_row(table, name, summarize(records, wall_s));
  const std::vector<std::string> names = class_names(records);
  for (const std::string& class_name : names) {
    if (names.size() > 1) add_load_row(table, "- " + class_name, summarize_class(records, class_name, wall_s));
  }
}

Result<void> write_records(const std::string& path, std::span<const RequestRecord> records) {
  std::string text;
  for (const RequestRecord& record : records) text += json_of(record).dump() + "\n";
  return write_text(path, text);
}

}  // namespace tidemill
