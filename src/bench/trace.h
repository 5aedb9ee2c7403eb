// Published traces of real traffic: when requests came, and how long prompts and answers were.
//
// Two forms, told apart by their first line. Azure's LLM inference traces of 2023 are CSV: "TIMESTAMP,ContextTokens,
// GeneratedTokens" with times as "2023-11-16 18:15:46.6805900" (Patel et al., Splitwise, ISCA 2024). Mooncake's are
// JSON lines {"timestamp": milliseconds, "input_length", "output_length", "hash_ids"}, where each id stands for 512
// prompt tokens and equal ids for equal prefixes (Qin et al., FAST 2025).
// A trace holds no texts: prompts are made of invented text of the right length, equal ids becoming equal text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "bench/workload.h"

namespace tidemill {

struct TraceRow {
  double arrival_s = 0;  // since the first row
  int32_t prompt_tokens = 0;
  int32_t new_tokens = 0;
  std::vector<int64_t> prefix_ids;  // Mooncake
};

// At most num_requests rows, in the order of their arrival. An Error names the line.
Result<std::vector<TraceRow>> read_trace(const std::filesystem::path& path, int32_t num_requests);

struct TraceScale {
  double rate = 1;    // requests come this many times as fast
  double length = 1;  // prompts and answers are this many times as long
};

// The scaled trace as requests. An Error where the texts would need more than a gigabyte.
Result<std::vector<BenchRequest>> trace_requests(const std::vector<TraceRow>& rows, TraceScale scale, uint64_t seed,
                                                 const PromptText& text);

}  // namespace tidemill
