// What the offline benchmarks share: the options that name and run a model, and the model once it is loaded.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/bench_model.h"
#include "bench/machine.h"
#include "cli/engine_stack.h"
#include "cli/options/option_list.h"
#include "cli/options/run_options.h"

namespace tidemill {

struct BenchModelOptions {
  RunOptions run;
  std::string positional_path;
  std::string json_path;
};

// MODEL, --model, --json; then the groups of model, compute and memory options. `target` must outlive the list.
void add_bench_model_options(OptionList& list, BenchModelOptions& target);
// Joins the two ways to name a model; an Error where there is none.
Result<void> finish_bench_model_options(BenchModelOptions& options, const std::string& command);

// A loaded model with its digest. Neither copied nor moved: the BenchModel refers to the stack.
struct LoadedBenchModel {
  std::unique_ptr<EngineStack> stack;
  std::vector<FileDigest> files;
  BenchModel model;
};
Result<std::unique_ptr<LoadedBenchModel>> load_bench_model(const RunOptions& options);

// The head of a result with the model in it.
nlohmann::ordered_json result_head(const RunInfo& info, const LoadedBenchModel& loaded);
// Two lines for people: the machine, and the model with how it runs.
std::string headline(const LoadedBenchModel& loaded);

// "1,4,16" as positive counts of at most `most`.
Result<std::vector<int32_t>> parse_counts(const std::string& text, int64_t most);

}  // namespace tidemill
