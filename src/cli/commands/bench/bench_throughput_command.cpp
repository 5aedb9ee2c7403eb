// tidemill bench throughput: a set of requests through the whole engine as fast as possible, without a server.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/engine_run.h"
#include "bench/report.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/commands/bench/bench_model_options.h"
#include "cli/commands/bench/progress_line.h"
#include "cli/commands/bench/workload_options.h"

namespace tidemill {
namespace {

class BenchThroughputCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"bench throughput", "Offline: a workload through the whole engine, as fast as it goes.",
            "Scheduler, cache and sampling in this process, without HTTP: so many requests are open at any time, and\n"
            "the next comes when one ends. Arrival times of a trace are not looked at."};
  }

  void add_options(OptionList& options) override {
    options.integer("--concurrency,--max-concurrency", &concurrency_, "N", 1, 16384, "Requests open at any time.");
    options.text("--save-requests", &records_path_, "FILE", "Write what was seen of each request, as JSON lines.");
    add_workload_options(options, workload_);
    add_bench_model_options(options, options_);
    add_scheduler_options(options, options_.run);
  }

  Result<void> check() override { return finish_bench_model_options(options_, "bench throughput"); }

  Result<int> run() override {
    Result<std::vector<BenchRequest>> requests = load_workload(workload_);
    if (!requests) return requests.error();
    Result<std::unique_ptr<LoadedBenchModel>> loaded = load_bench_model(options_.run);
    if (!loaded) return loaded.error();
    const BenchModel& model = (*loaded)->model;
    const Result<std::vector<TokenRequest>> tokenized = tokenize_workload(model, *requests);
    if (!tokenized) return tokenized.error();
    const std::string what = workload_text(workload_, tokenized->size());
    std::printf("%s%s, %d at once\n", headline(**loaded).c_str(), what.c_str(), concurrency_);
    Result<EngineRunResult> result = run_workload(model, *tokenized);
    if (!result) return result.error();
    report(*result);
    nlohmann::ordered_json json = result_head(run_info(*this), **loaded);
    json["workload"] = what;
    json["concurrency"] = concurrency_;
    json["result"] = json_by_class(result->records, result->wall_s);
    json["kv"] = {{"mean_held_bytes", result->mean_held_bytes},
                  {"mean_used_bytes", result->mean_used_bytes},
                  {"peak_held_bytes", result->peak_held_bytes},
                  {"waste", result->waste()},
                  {"preemptions", result->num_preemptions}};
    if (Result<void> done = write_records(records_path_, result->records); !done) return done.error();
    if (Result<void> done = write_json(options_.json_path, json); !done) return done.error();
    return 0;
  }

 private:
  Result<EngineRunResult> run_workload(const BenchModel& model, const std::vector<TokenRequest>& requests) const {
    ProgressLine line("throughput");
    EngineRunOptions options;
    options.concurrency = concurrency_;
    options.on_progress = [&line](const RunProgress& progress) { line.show(progress); };
    return run_in_engine(model, model.config, requests, options);
  }

  static void report(const EngineRunResult& result) {
    Table table = load_table("engine");
    add_load_rows(table, "all", result.records, result.wall_s);
    std::fputs(table.text().c_str(), stdout);
    std::printf(
        "KV: %.1f MB held on average, %.1f MB at most; %.1f %% of what was held stored nothing; %llu "
        "preemptions\n",
        result.mean_held_bytes / 1e6, static_cast<double>(result.peak_held_bytes) / 1e6, result.waste() * 100,
        static_cast<unsigned long long>(result.num_preemptions));
  }

  BenchModelOptions options_;
  WorkloadOptions workload_;
  int32_t concurrency_ = 32;
  std::string records_path_;
};

}  // namespace

std::unique_ptr<Command> make_bench_throughput_command() {
  return std::make_unique<BenchThroughputCommand>();
}

}  // namespace tidemill
