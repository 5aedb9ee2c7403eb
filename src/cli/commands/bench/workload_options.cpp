#include "cli/commands/bench/workload_options.h"

#include <filesystem>
#include <optional>

#include "base/printable.h"

namespace tidemill {
namespace {

std::optional<WorkloadKind> kind_of(const std::string& name) {
  if (name == "mixed") return WorkloadKind::mixed;
  if (name == "chat") return WorkloadKind::chat;
  if (name == "longdoc") return WorkloadKind::longdoc;
  if (name == "shared") return WorkloadKind::shared;
  return std::nullopt;
}

std::string file_name(const std::string& path) {
  return printable(std::filesystem::path(path).filename().string());
}

}  // namespace

void add_workload_options(OptionList& list, WorkloadOptions& target) {
  list.group("Workload");
  list.text("--workload,--dataset-name", &target.workload, "KIND|FILE",
            "mixed (lengths over two decades), chat (short prompts), longdoc (a document among short streams), shared "
            "(one long beginning), or a file of JSON lines with prompt, max_tokens and class.");
  list.text("--trace", &target.trace_path, "FILE",
            "A trace of real traffic as Azure (CSV) or Mooncake (JSON lines) published it.");
  list.number("--trace-scale", &target.trace_scale.rate, 1e-6, 1e6,
              "The trace's requests come this many times as fast.");
  list.number("--trace-length-scale", &target.trace_scale.length, 1e-4, 100,
              "The trace's prompts and answers are this many times as long.");
  list.text("--prompts", &target.prompts_path, "FILE", "A text file with one prompt a line.");
  list.integer("--max-tokens", &target.max_tokens, "TOKENS", 1, longest_bench_answer_tokens,
               "Answer to each line of --prompts.");
  list.text("--text", &target.text_path, "FILE", "Cut the prompts of built-in workloads and traces from this text.");
  list.integer("--requests,--num-prompts", &target.num_requests, "N", 1, 10'000'000,
               "Requests to make, or to take from the file.");
  list.integer("--workload-seed", &target.seed, "N", 0, int64_t{1} << 52, "Seed of lengths, texts and arrivals.");
}

Result<std::vector<BenchRequest>> load_workload(const WorkloadOptions& options) {
  if (!options.trace_path.empty() && !options.prompts_path.empty()) {
    return error("--trace and --prompts name two workloads; give one");
  }
  if (!options.prompts_path.empty()) {
    return read_prompts(options.prompts_path, options.num_requests, options.max_tokens);
  }
  const std::optional<WorkloadKind> kind = kind_of(options.workload);
  if (!kind && options.trace_path.empty()) {
    if (!std::filesystem::exists(options.workload)) {
      return error("--workload {} is neither mixed, chat, longdoc or shared nor a file", printable(options.workload));
    }
    return read_workload(options.workload, options.num_requests);
  }
  Result<PromptText> text = options.text_path.empty()
                                ? Result<PromptText>(PromptText::invented(options.seed + (options.text_number << 32)))
                                : PromptText::from_file(options.text_path);
  if (!text) return text.error();
  if (options.trace_path.empty()) return make_workload(*kind, options.num_requests, options.seed, *text);
  const Result<std::vector<TraceRow>> rows = read_trace(options.trace_path, options.num_requests);
  if (!rows) return rows.error();
  return trace_requests(*rows, options.trace_scale, options.seed, *text);
}

std::string workload_text(const WorkloadOptions& options, size_t num_requests) {
  if (!options.trace_path.empty()) {
    return fmt::format("{}, {} requests, rate x {}, lengths x {}", file_name(options.trace_path), num_requests,
                       options.trace_scale.rate, options.trace_scale.length);
  }
  if (!options.prompts_path.empty()) {
    return fmt::format("{}, {} prompts, {} tokens each", file_name(options.prompts_path), num_requests,
                       options.max_tokens);
  }
  if (!kind_of(options.workload)) return fmt::format("{}, {} requests", file_name(options.workload), num_requests);
  return fmt::format("{}, {} requests, seed {}", options.workload, num_requests, options.seed);
}

}  // namespace tidemill
