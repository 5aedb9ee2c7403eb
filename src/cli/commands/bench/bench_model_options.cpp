#include "cli/commands/bench/bench_model_options.h"

#include <nlohmann/json.hpp>

#include "cli/local_engine.h"
#include "cli/options/values.h"

namespace tidemill {
void add_bench_model_options(OptionList& list, BenchModelOptions& target) {
  list.positional("[MODEL]", &target.positional_path, "Model file or folder.");
  list.text("--model,-m", &target.run.model_path, "PATH", "Model file or folder.");
  list.text("--json", &target.json_path, "FILE", "Write the result here, too.");
  add_model_options(list, target.run);
  add_length_option(list, target.run);
  add_compute_options(list, target.run);
  add_memory_options(list, target.run);
  add_trace_options(list, target.run);
}

Result<void> finish_bench_model_options(BenchModelOptions& options, const std::string& command) {
  if (options.run.model_path.empty()) options.run.model_path = options.positional_path;
  if (options.run.model_path.empty()) return error("{} needs a model: tidemill {} MODEL", command, command);
  return {};
}

Result<std::unique_ptr<LoadedBenchModel>> load_bench_model(const RunOptions& options) {
  Result<std::unique_ptr<EngineStack>> stack = load_engine_stack(options, show_loading);
  if (!stack) return stack.error();
  Result<std::vector<FileDigest>> files = digest_model(options.model_path);
  if (!files) return files.error();
  auto loaded = std::make_unique<LoadedBenchModel>();
  loaded->stack = *std::move(stack);
  loaded->files = *std::move(files);
  EngineStack& parts = *loaded->stack;
  BenchModel& model = loaded->model;
  model.name = parts.name;
  model.kernels = std::string(parts.backend->kernels());
  model.num_threads = parts.backend->num_threads();
  model.vocab_size = parts.model->info().vocab_size;
  model.weight_bytes = parts.memory.weight_bytes;
  model.scratch_bytes = parts.memory.scratch_bytes;
  model.tokenizer = parts.tokenizer.get();
  model.config = parts.engine_config;
  model.make_executor = [&parts] { return make_executor(parts); };
  return loaded;
}

nlohmann::ordered_json result_head(const RunInfo& info, const LoadedBenchModel& loaded) {
  nlohmann::ordered_json head = result_head(info);
  const BenchModel& model = loaded.model;
  head["model"] = {{"name", model.name},
                   {"files", json_of(loaded.files)},
                   {"kernels", model.kernels},
                   {"threads", model.num_threads},
                   {"kv_format", kv_formats_text(loaded.stack->kv_formats)},
                   {"kv_block_tokens", model.config.block_size_tokens},
                   {"kv_budget_bytes", model.config.kv_budget_bytes},
                   {"weight_bytes", model.weight_bytes},
                   {"scratch_bytes", model.scratch_bytes},
                   {"max_num_seqs", model.config.max_num_seqs},
                   {"max_num_batched_tokens", model.config.max_num_batched_tokens}};
  return head;
}

std::string headline(const LoadedBenchModel& loaded) {
  const BenchModel& model = loaded.model;
  const std::string digest = loaded.files.empty() ? "-" : loaded.files.front().sha256.substr(0, 16);
  return fmt::format("{}\n{} (sha256 {}...), {} kernels, {} threads, KV {} in {}, {} tokens a step at most\n",
                     machine_text(this_machine()), model.name, digest, model.kernels, model.num_threads,
                     bytes_text(model.config.kv_budget_bytes), kv_formats_text(loaded.stack->kv_formats),
                     model.config.max_num_batched_tokens);
}

Result<std::vector<int32_t>> parse_counts(const std::string& text, int64_t most) {
  std::vector<int32_t> counts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const Result<int64_t> count = parse_scaled(std::string_view(text).substr(begin, end - begin));
    if (!count) return count.error();
    if (*count < 1 || *count > most) return error("{} is not between 1 and {}", *count, most);
    counts.push_back(static_cast<int32_t>(*count));
    begin = end + 1;
  }
  return counts;
}

}  // namespace tidemill
