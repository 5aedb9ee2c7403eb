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
  bool by_class;
};

constexpr Figure figures[] = {
    {"output tok/s", [](const ComparedRun& run) { return run.summary.output_tokens_per_s; }, 1, false},
    {"seconds", [](const ComparedRun& run) { return run.summary.wall_s; }, 2, false},
    {"TTFT p50 ms", [](const ComparedRun& run) { return run.summary.first_token_s.p50 * 1e3; }, 0, true},
    {"TTFT p99 ms", [](const ComparedRun& run) { return run.summary.first_token_s.p99 * 1e3; }, 0, true},
    {"gap p50 ms", [](const ComparedRun& run) { return run.summary.gap_s.p50 * 1e3; }, 1, true},
    {"gap p99 ms", [](const ComparedRun& run) { return run.summary.gap_s.p99 * 1e3; }, 1, true},
    {"gap max ms", [](const ComparedRun& run) { return run.summary.gap_s.max * 1e3; }, 1, true},
    {"gap p99/p50", [](const ComparedRun& run) { return run.summary.gap_ratio(); }, 2, true},
    {"jitter", [](const ComparedRun& run) { return run.summary.jitter; }, 3, false},
    {"errors", [](const ComparedRun& run) { return static_cast<double>(run.summary.num_errors); }, 0, false},
    {"peak resident MB", [](const ComparedRun& run) { return static_cast<double>(run.peak_resident_bytes) / 1e6; }, 0,
     false},
};

double median_of(const std::vector<ComparedRun>& runs, const Figure& figure) {
  std::vector<double> values;
  for (const ComparedRun& run : runs) values.push_back(figure.of(run));
  return median(std::move(values));
}

// The runs as if there had been the requests of one class only.
std::vector<ComparedRun> of_class(const std::vector<ComparedRun>& runs, const std::string& name) {
  std::vector<ComparedRun> selected;
  for (const ComparedRun& run : runs) {
    ComparedRun& one = selected.emplace_back();
    one.summary = summarize_class(run.records, name, run.summary.wall_s);
  }
  return selected;
}

// Calls `use` with the name and both medians of every figure; where there are several classes, also of what a reader of
// one class sees.
void for_each_figure(const Comparison& comparison,
                     const std::function<void(const std::string&, const Figure&, double, double)>& use) {
  for (const Figure& figure : figures) {
    use(figure.name, figure, median_of(comparison.ours, figure), median_of(comparison.peers, figure));
  }
  const std::vector<std::string> names = class_names(comparison.ours.front().records);
  for (const std::string& name : names) {
    if (names.size() < 2) continue;
    const std::vector<ComparedRun> ours = of_class(comparison.ours, name), peers = of_class(comparison.peers, name);
    for (const Figure& figure : figures) {
      if (!figure.by_class) continue;
      use(fmt::format("{}: {}", name, figure.name), figure, median_of(ours, figure), median_of(peers, figure));
    }
  }
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
  for_each_figure(comparison, [&](const std::string& name, const Figure& figure, double ours, double theirs) {
    table.add({name, number_text(ours, figure.digits), number_text(theirs, figure.digits),
               theirs == 0 ? "-" : number_text(ours / theirs, 2)});
  });
  return table.text();
}

nlohmann::ordered_json json_of(const Comparison& comparison) {
  nlohmann::ordered_json json = {{"tidemill", json_of_runs(comparison.ours)}, {"peer", json_of_runs(comparison.peers)}};
  for_each_figure(comparison, [&](const std::string& name, const Figure&, double ours, double theirs) {
    const auto ratio = theirs == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(ours / theirs);
    json["medians"][name] = {{"tidemill", ours}, {"peer", theirs}, {"ratio", ratio}};
  });
  return json;
}

}  // namespace tidemill
