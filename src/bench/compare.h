// Two servers under the same load, in turns: medians of both and their ratios.
//
// Every run gets servers started afresh, one at a time, since servers keep prompts and two would share the machine. A
// run that loses a request counts, with its errors; a server that does not start is an Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load_client.h"
#include "bench/statistics.h"
#include "server/http/http_client.h"

namespace tidemill {

struct ComparedServer {
  std::string name;
  std::string command;  // for /bin/sh
  HttpUrl url;
  std::string output_path;
};

struct CompareOptions {
  int32_t num_runs = 3;  // of each server
  std::chrono::milliseconds start_limit{120'000};
  std::function<bool()> should_stop;
  // Loads a server that is ready.
  std::function<Result<LoadResult>(const ComparedServer& server, int32_t run)> load;
};

struct ComparedRun {
  LoadSummary summary;
  std::vector<RequestRecord> records;
  size_t peak_resident_bytes = 0;
};

struct Comparison {
  std::vector<ComparedRun> ours, peers;
};

Result<Comparison> compare_servers(const ComparedServer& ours, const ComparedServer& peer,
                                   const CompareOptions& options);

// Medians over the runs, and ours over the peer's.
std::string comparison_table(const Comparison& comparison, const std::string& peer_name);
nlohmann::ordered_json json_of(const Comparison& comparison);

}  // namespace tidemill
