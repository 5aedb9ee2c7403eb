// What a benchmark asks for: prompts with the length of their answers, made from a seed or read from a file.
//
// The kinds resemble traffic that servers see: `mixed` has log-normal lengths over two decades; `chat` short prompts;
// `longdoc` short streams among which every eighth request brings a document; `shared` one long common beginning with
// short private ends. Files: JSON lines {"prompt": text, "max_tokens": n, "class": name}; plain text, one prompt a
// line; and the traces in bench/trace.h. Everything read is checked before it is used; an Error names file and line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/prompt_text.h"

namespace tidemill {

struct BenchRequest {
  std::string prompt;
  int32_t max_tokens = 0;
  std::string class_name;
  std::optional<double> arrival_s;  // since the start, where the source says so
};

enum class WorkloadKind : uint8_t { mixed, chat, longdoc, shared };

inline constexpr int32_t longest_bench_answer_tokens = 1 << 20;
inline constexpr size_t longest_bench_prompt_bytes = size_t{64} << 20;

std::vector<BenchRequest> make_workload(WorkloadKind kind, int32_t num_requests, uint64_t seed, const PromptText& text);
// The first num_requests lines.
Result<std::vector<BenchRequest>> read_workload(const std::filesystem::path& path, int32_t num_requests);
// Every non-empty line is a prompt.
Result<std::vector<BenchRequest>> read_prompts(const std::filesystem::path& path, int32_t num_requests,
                                               int32_t max_tokens);

}  // namespace tidemill
