// tidemill bench modes: one traffic through the engine without a cache, without batching, with static and continuous
// batches.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/modes.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/commands/bench/bench_model_options.h"
#include "cli/commands/bench/progress_line.h"
#include "cli/commands/bench/workload_options.h"

namespace tidemill {
namespace {

class BenchModesCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {
        "bench modes", "Offline: what the KV cache, batching and blocks are each worth, on the same traffic.",
        "Runs the workload without a KV cache (cut off after --kv-off-limit), without batching, in static batches,\n"
        "and continuous with memory reserved for the longest answer and with blocks on demand. Waste is the share\n"
        "of the KV memory held by sequences that stored nothing. Prefixes are not shared."};
  }

  void add_options(OptionList& options) override {
    options.integer("--concurrency,--max-concurrency", &modes_.concurrency, "N", 1, 4096, "Requests open at any time.");
    options.number("--price-per-hour", &modes_.price_per_hour, 0, 1e6,
                   "What the machine costs; gives the cost of a million output tokens.");
    options.duration("--kv-off-limit", &kv_off_limit_, "When the mode without a KV cache is cut off; 0 leaves it out.");
    options.custom("--lengths", "TOKENS,...",
                   "Lengths after which the cost of one more token is measured, without and with the cache.",
                   "64,128,256,512,1024,2048", [this](const std::string& text) -> Result<void> {
                     Result<std::vector<int32_t>> lengths = parse_counts(text, 1 << 20);
                     if (!lengths) return lengths.error();
                     modes_.lengths = *std::move(lengths);
                     return {};
                   });
    options.text("--svg", &svg_path_, "FILE", "Draw the result here.");
    add_workload_options(options, workload_);
    add_bench_model_options(options, options_);
    options.integer("--max-num-batched-tokens", &options_.run.engine.max_num_batched_tokens, "TOKENS", 1, 65536,
                    "Tokens computed in one step.");
  }

  Result<void> check() override { return finish_bench_model_options(options_, "bench modes"); }

  Result<int> run() override {
    Result<std::vector<BenchRequest>> requests = load_workload(workload_);
    if (!requests) return requests.error();
    options_.run.engine.max_num_seqs = modes_.concurrency;
    Result<std::unique_ptr<LoadedBenchModel>> loaded = load_bench_model(options_.run);
    if (!loaded) return loaded.error();
    const BenchModel& model = (*loaded)->model;
    const Result<std::vector<TokenRequest>> tokenized = tokenize_workload(model, *requests);
    if (!tokenized) return tokenized.error();
    const std::string what =
        fmt::format("{}, {} at once", workload_text(workload_, tokenized->size()), modes_.concurrency);
    std::printf("%s%s\n", headline(**loaded).c_str(), what.c_str());
    std::fflush(stdout);
    const Result<ModesResult> result = measure(model, *tokenized);
    if (!result) return result.error();
    std::fputs(modes_table(*result, modes_, model.num_threads).c_str(), stdout);
    nlohmann::ordered_json json = result_head(run_info(*this), **loaded);
    json["workload"] = what;
    json.update(json_of(*result, modes_, model.num_threads));
    if (Result<void> done = write_json(options_.json_path, json); !done) return done.error();
    const std::string subtitle = fmt::format("{}, {} threads; {}", model.name, model.num_threads, what);
    if (Result<void> done = write_text(svg_path_, modes_picture(*result, modes_, subtitle)); !done) return done.error();
    return 0;
  }

 private:
  Result<ModesResult> measure(const BenchModel& model, const std::vector<TokenRequest>& requests) {
    ProgressLine line("modes");
    modes_.kv_off_limit_s = static_cast<double>(kv_off_limit_.count()) / 1e3;
    modes_.on_progress = [&line](const std::string& mode, const RunProgress& progress) {
      line.rename(mode);
      line.show(progress);
    };
    return run_modes(model, requests, modes_);
  }

  BenchModelOptions options_;
  WorkloadOptions workload_;
  ModesOptions modes_ = [] {
    ModesOptions options;
    options.lengths = {64, 128, 256, 512, 1024, 2048};
    return options;
  }();
  std::chrono::milliseconds kv_off_limit_{20'000};
  std::string svg_path_;
};

}  // namespace

std::unique_ptr<Command> make_bench_modes_command() {
  return std::make_unique<BenchModesCommand>();
}

}  // namespace tidemill
