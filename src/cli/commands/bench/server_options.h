// How a benchmark loads a server: its address, what it is asked for, and at which pace.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load_client.h"
#include "cli/commands/bench/workload_options.h"
#include "cli/options/option_list.h"

namespace tidemill {

struct ServerLoadOptions {
  std::string model;  // "" = the first that the server names
  std::string api_key;
  bool chat = false;
  std::string extra_fields;
  std::vector<int32_t> concurrencies;  // empty, and no rates: 32, or the times of a trace
  std::vector<double> rates_per_s;
  double burstiness = 1;
  std::chrono::milliseconds limit{900'000};
};

// Adds a group. `target` must outlive the list.
void add_server_load_options(OptionList& list, ServerLoadOptions& target);
Result<void> check_server_load_options(const ServerLoadOptions& options);

// One pass over a workload: what it is called, and how it comes.
struct LoadPass {
  std::string name;  // "32 at once", "2 requests/s", "as in the trace"
  bool open_loop = false;
  int32_t concurrency = 0;
  double rate_per_s = 0;  // 0 = the arrival times that the requests bring
};
std::vector<LoadPass> passes_of(const ServerLoadOptions& options, bool is_trace);

// Sends one short request first, which is not counted, then the workload. `requests` get their arrival times where the
// pass has a rate. Shows progress. An Error where the server cannot be reached or refuses the first request.
Result<LoadResult> run_pass(const HttpUrl& url, const std::string& model, const ServerLoadOptions& options,
                            const LoadPass& pass, std::vector<BenchRequest> requests, uint64_t seed,
                            const std::function<bool()>& should_stop);

}  // namespace tidemill
