// tidemill bench latency: how fast a model reads prompts and writes answers, at several batch sizes.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/batch_run.h"
#include "bench/report.h"
#include "bench/statistics.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/commands/bench/bench_model_options.h"

namespace tidemill {
namespace {

class BenchLatencyCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"bench latency", "Offline: prompts and answers of equal sequences, at several batch sizes.",
            "No server and no scheduler: first all prompts of a batch, then its answers, greedy, one token of every\n"
            "sequence a step. Rates and times are medians of the repeats, gaps those of all steps. With one sequence,\n"
            "TTFT and gaps are what a single user sees. `tidemill bench MODEL` is short for this."};
  }

  void add_options(OptionList& options) override {
    options.integer("--prompt-tokens,--input-len,--npp", &prompt_tokens_, "TOKENS", 1, 1 << 20,
                    "Prompt of each sequence.");
    options.integer("--new-tokens,--output-len,--ntg", &new_tokens_, "TOKENS", 1, 1 << 20, "Answer of each sequence.");
    options.custom("--batch-sizes,--batch-size,--npl", "N,N,...", "Sequences at once.", "1,4,16,32,64",
                   [this](const std::string& text) -> Result<void> {
                     Result<std::vector<int32_t>> sizes = parse_counts(text, 4096);
                     if (!sizes) return sizes.error();
                     batch_sizes_ = *std::move(sizes);
                     return {};
                   });
    options.integer("--repeat,--num-iters", &repeats_, "N", 1, 1000,
                    "Runs of each batch size, of which the median counts.");
    options.integer("--max-num-batched-tokens,--ubatch-size", &options_.run.engine.max_num_batched_tokens, "TOKENS", 1,
                    65536, "Prompt tokens computed in one step.");
    add_bench_model_options(options, options_);
  }

  Result<void> check() override { return finish_bench_model_options(options_, "bench latency"); }

  Result<int> run() override {
    const int32_t largest = *std::max_element(batch_sizes_.begin(), batch_sizes_.end());
    options_.run.engine.max_num_seqs = largest;
    Result<std::unique_ptr<LoadedBenchModel>> loaded = load_bench_model(options_.run);
    if (!loaded) return loaded.error();
    const BenchModel& model = (*loaded)->model;
    if (Result<void> fits = check_batch(model, {largest, prompt_tokens_, new_tokens_}); !fits) return fits.error();
    std::fputs(headline(**loaded).c_str(), stdout);
    std::printf("|%5s |%6s |%6s |%8s |%9s |%8s |%9s |%8s |%9s |%9s |%9s |%9s |\n", "B", "PP", "TG", "T_PP s",
                "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s", "gap p50", "p99 ms", "jitter");
    const std::unique_ptr<Executor> executor = model.make_executor();
    run_batch(model, *executor, {1, std::min(prompt_tokens_, 32), std::min(new_tokens_, 2)}, 0);  // touches all weights
    nlohmann::ordered_json result = result_head(run_info(*this), **loaded);
    for (const int32_t batch : batch_sizes_) {
      const BatchRates rates = measure_batch(model, *executor, {batch, prompt_tokens_, new_tokens_}, repeats_);
      print_row(rates);
      result["batches"].push_back(json_of_rates(rates));
    }
    if (Result<void> done = write_json(options_.json_path, result); !done) return done.error();
    return 0;
  }

 private:
  static double jitter(const BatchRates& rates) { return standard_deviation(rates.steps_s) / mean(rates.steps_s); }

  static void print_row(const BatchRates& rates) {
    const BatchShape& shape = rates.shape;
    const double total_s = rates.prefill_s + rates.decode_s;
    const double tokens = static_cast<double>(shape.num_sequences) * (shape.prompt_tokens + shape.new_tokens);
    const Distribution gaps = distribution_of(rates.steps_s);
    std::printf("|%5d |%6d |%6d |%8.3f |%9.1f |%8.3f |%9.1f |%8.3f |%9.1f |%9.2f |%9.2f |%9.3f |\n",
                shape.num_sequences, shape.prompt_tokens, shape.new_tokens, rates.prefill_s,
                rates.prefill_tokens_per_s(), rates.decode_s, rates.decode_tokens_per_s(), total_s, tokens / total_s,
                gaps.p50 * 1e3, gaps.p99 * 1e3, jitter(rates));
    std::fflush(stdout);
  }

  nlohmann::ordered_json json_of_rates(const BatchRates& rates) const {
    const BatchShape& shape = rates.shape;
    return {{"sequences", shape.num_sequences}, {"prompt_tokens", shape.prompt_tokens},
            {"new_tokens", shape.new_tokens},   {"repeats", repeats_},
            {"prefill_s", rates.prefill_s},     {"prefill_tokens_per_s", rates.prefill_tokens_per_s()},
            {"decode_s", rates.decode_s},       {"decode_tokens_per_s", rates.decode_tokens_per_s()},
            {"ttft_ms", rates.prefill_s * 1e3}, {"itl_ms", json_of(distribution_of(rates.steps_s))},
            {"jitter", jitter(rates)}};
  }

  BenchModelOptions options_ = [] {
    BenchModelOptions options;
    options.run.engine.max_num_batched_tokens = 512;
    return options;
  }();
  int32_t prompt_tokens_ = 128;
  int32_t new_tokens_ = 64;
  int32_t repeats_ = 3;
  std::vector<int32_t> batch_sizes_ = {1, 4, 16, 32, 64};
};

}  // namespace

std::unique_ptr<Command> make_bench_latency_command() {
  return std::make_unique<BenchLatencyCommand>();
}

}  // namespace tidemill
