// The load generator: sends a workload to an OpenAI-compatible server and notes when each token comes back.
//
// One thread and one event loop for all streams, so that the client costs little of the processor that the server may
// be sharing. Every request is a connection of its own that streams with usage, temperature 0 and ignore_eos, so that
// every server does the same work. A token is an event with text in it, or one without after the first (part of a
// character): the way of counting that load generators share. Plain HTTP.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/engine_run.h"
#include "bench/statistics.h"
#include "bench/workload.h"
#include "server/http/http_client.h"

namespace tidemill {

struct LoadOptions {
  HttpUrl url;  // with or without "/v1" at its end
  std::string api_key;
  std::string model;
  bool chat = false;         // /v1/chat/completions with one user message, instead of /v1/completions
  std::string extra_fields;  // a JSON object merged into every body; "" = nothing
  int32_t concurrency = 32;  // closed loop: so many are open at any time ...
  bool open_loop = false;    // ... or every request comes at its arrival_s, whatever is still open
  double limit_s = std::numeric_limits<double>::infinity();  // what is open then counts as failed
  std::function<void(const RunProgress&)> on_progress;       // five times a second
  std::function<bool()> should_stop;
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the workload's order; those never sent are left out
  double wall_s = 0;
  double client_cpu_s = 0;  // processor time of this thread
  std::string server;       // as the server names itself
};

// An Error only for options that make no sense; what goes wrong with a request is in its record.
Result<LoadResult> run_load(std::span<const BenchRequest> requests, const LoadOptions& options);

// The model that the server names first.
Result<std::string> first_model(const HttpUrl& url, const std::string& api_key);

}  // namespace tidemill
