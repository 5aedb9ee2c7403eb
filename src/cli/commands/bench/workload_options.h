// Which requests a benchmark sends: a built-in workload, a file, a trace or a list of prompts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/trace.h"
#include "bench/workload.h"
#include "cli/options/option_list.h"

namespace tidemill {

struct WorkloadOptions {
  std::string workload = "mixed";  // a kind or a file of JSON lines
  std::string trace_path;
  std::string prompts_path;
  std::string text_path;
  TraceScale trace_scale;
  int32_t num_requests = 64;
  int32_t max_tokens = 128;
  uint64_t seed = 1;
  uint64_t text_number = 0;  // another number is another invented text, with requests of the same lengths
};

// Adds a group. `target` must outlive the list.
void add_workload_options(OptionList& list, WorkloadOptions& target);
// Errors name the file and the line at fault.
Result<std::vector<BenchRequest>> load_workload(const WorkloadOptions& options);
// "mixed, 64 requests, seed 1"
std::string workload_text(const WorkloadOptions& options, size_t num_requests);

}  // namespace tidemill
