#include "bench/compare.h"

#include <nlohmann/json.hpp>

#include "bench/report.h"
#include "bench/server_process.h"

namespace tidemill {
namespace {

struct Figure {
  const char* name;
  double (*of)(const ComparedRun& run);
  int digits;
};

constexpr Figure figures[] = {
    {"output tok/s", [](const ComparedRun& run) { return run.summary.output_tokens_per_s; }, 1},
    {"seconds", [](const ComparedRun& run) { return run.summary.wall_s; }, 2},
    {"TTFT p50 ms", [](const ComparedRun& run) { return run.summary.first_token_s.p50 * 1e3; }, 0},
    {"TTFT p99 ms", [](const ComparedRun& run) { return run.summary.first_token_s.p99 * 1e3; }, 0},
    {"gap p50 ms", [](const ComparedRun& run) { return run.summary.gap_s.p50 * 1e3; }, 1},
    {"gap p99 ms", [](const ComparedRun& run) { return run.summary.gap_s.p99 * 1e3; }, 1},
    {"gap max ms", [](const ComparedRun& run) { return run.summary.gap_s.max * 1e3; }, 1},
    {"gap p99/p50", [](const ComparedRun& run) { return run.summary.gap_ratio(); }, 2},
    {"jitter", [](const ComparedRun& run) { return run.summary.jitter; }, 3},
    {"errors", [](const ComparedRun& run) { return static_cast<double>(run.summary.num_errors); }, 0},
    {"peak resident MB", [](const ComparedRun& run) { return static_cast<double>(run.peak_resident_bytes) / 1e6; }, 0},
};

double median_of(const std::vector<ComparedRun>& runs, double (*of)(const ComparedRun& run)) {
  std::vector<double> values;
  for (const ComparedRun& run : runs) values.push_back(of(run));
  return median(std::move(values));
}

Result<ComparedRun> run_once(const ComparedServer& server, int32_t number, const CompareOptions& options) {
  if (answers(server.url)) {
    return error("something answers at {}:{} before {} was started", server.url.host, server.url.port, server.name);
  }
  Result<std::unique_ptr<ServerProcess>> process = ServerProcess::start(server.command, server.output_path);
  if (!process) return process.error();
  if (Result<void> ready = (*process)->wait_healthy(server.url, options.start_limit, options.should_stop); !ready) {
    return error("{}: {}", server.name, ready.error().message);
  }
  Result<LoadResult> load = options.load(server, number);
  if (!load) return error("{}: {}", server.name, load.error().message);
  ComparedRun run;
  run.peak_resident_bytes = (*process)->peak_resident_bytes();
  run.summary = summarize(load->records, load->wall_s);
  run.records = std::move(load->records);
  return run;
}

nlohmann::ordered_json json_of_runs(const std::vector<ComparedRun>& runs) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ComparedRun& run : runs) {
    json.push_back(json_by_class(run.records, run.summary.wall_s));
    json.back()["peak_resident_bytes"] = run.peak_resident_bytes;
  }
  return json;
}

}  // namespace

Result<Comparison> compare_servers(const ComparedServer& ours, const ComparedServer& peer,
                                   const CompareOptions& options) {
  Comparison comparison;
  for (int32_t number = 0; number < options.num_runs; ++number) {
    for (const ComparedServer* server : {&ours, &peer}) {
      Result<ComparedRun> run = run_once(*server, number, options);
      if (!run) return run.error();
      (server == &ours ? comparison.ours : comparison.peers).push_back(*std::move(run));
    }
  }
  return comparison;
}

std::string comparison_table(const Comparison& comparison, const std::string& peer_name) {
  Table table({"median of " + std::to_string(comparison.ours.size()), "tidemill", peer_name, "ratio"});
  for (const Figure& figure : figures) {
    const double ours = median_of(comparison.ours, figure.of), theirs = median_of(comparison.peers, figure.of);
    table.add({figure.name, number_text(ours, figure.digits), number_text(theirs, figure.digits),
               theirs == 0 ? "-" : number_text(ours / theirs, 2)});
  }
  return table.text();
}

nlohmann::ordered_json json_of(const Comparison& comparison) {
  nlohmann::ordered_json json = {{"tidemill", json_of_runs(comparison.ours)}, {"peer", json_of_runs(comparison.peers)}};
  for (const Figure& figure : figures) {
    const double ours = median_of(comparison.ours, figure.of), theirs = median_of(comparison.peers, figure.of);
    json["medians"][figure.name] = {
        {"tidemill", ours},
        {"peer", theirs},
        {"ratio", theirs == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(ours / theirs)}};
  }
  return json;
}

}  // namespace tidemill
