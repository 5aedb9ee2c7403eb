// tidemill eval kv: what each format of the KV cache costs a model, on text and on tasks.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands/bench/bench_commands.h"
#include "cli/commands/bench/bench_model_options.h"
#include "cli/local_engine.h"
#include "cli/terminal.h"
#include "eval/kv_eval.h"
#include "eval/kv_eval_report.h"

namespace tidemill {
namespace {

constexpr int32_t most_context_tokens = 1 << 20;

// How far it is, on standard error: in place on a terminal, every ten seconds elsewhere.
class EvalProgressLine {
 public:
  ~EvalProgressLine() {
    if (on_terminal_ && shown_) std::fputs("\r\033[K", stderr);
  }
  void show(const EvalProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (shown_ && now - last_ < (on_terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10))) return;
    last_ = now;
    shown_ = true;
    const double share =
        static_cast<double>(progress.num_done_tokens) / static_cast<double>(std::max<int64_t>(1, progress.num_tokens));
    std::fprintf(stderr, "%s%s: %.0f %% of %lld tokens, %.0f s%s%s", on_terminal_ ? "\r\033[K" : "",
                 progress.what.c_str(), share * 100, static_cast<long long>(progress.num_tokens), progress.seconds,
                 share > 0.01 ? fmt::format(", {:.0f} s left", progress.seconds * (1 - share) / share).c_str() : "",
                 on_terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const bool on_terminal_ = isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

class EvalKvCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"eval kv", "What each format of the KV cache costs a model, on text and on tasks.",
            "All formats read the same tokens in lockstep with a reference cache, over one loaded model. Files given\n"
            "with --factual and --creative are texts or tasks, told apart by their content: JSON lines with query,\n"
            "choices and gold, or context and continuation, and HellaSwag's text form are tasks. Texts are cut into\n"
            "pieces of each context length, whose second halves are scored."};
  }

  void add_options(OptionList& options) override {
    options.text(
        "--formats", &format_names_, "NAME,NAME,...",
        "Formats to measure: int8, or int8/int4 for keys and values, with +rotation, +windows and +ends behind; "
        "fp16, the floor under all, always is.");
    options.text("--reference", &reference_name_, "NAME", "The format that they are measured against.");
    options.texts("--factual", &factual_paths_, "FILE", "A text or task of facts; may be given several times.");
    options.texts("--creative", &creative_paths_, "FILE",
                  "A text or task of stories, poems or talk; may be given several times.");
    options.custom("--context-lengths", "TOKENS,...", "Context lengths at which texts are read.", "512,2048",
                   [this](const std::string& text) -> Result<void> {
                     Result<std::vector<int32_t>> lengths = parse_counts(text, most_context_tokens);
                     if (!lengths) return lengths.error();
                     eval_.context_lengths = *std::move(lengths);
                     return {};
                   });
    options.integer("--text-tokens", &eval_.text_tokens, "TOKENS", 1, int64_t{1} << 30,
                    "Of each text, at each context length; at least one piece is read.");
    options.integer("--limit", &max_items_, "N", 0, int64_t{1} << 30,
                    "Items of each task, spread evenly over its file; 0 = all.");
    options.integer("--speed-tokens", &eval_.speed_tokens, "TOKENS", 0, most_context_tokens,
                    "Context at which the speed of one sequence is taken; 0 = not.");
    options.text("--json", &json_path_, "FILE", "Write the result here, too.");
    options.text("--svg", &svg_path_, "FILE", "Write a picture of size against loss.");
    options.text("--report", &report_path_, "FILE", "Write one page of HTML that stands alone.");
    options.positional("[MODEL]", &positional_path_, "Model file or folder.");
    options.text("--model,-m", &run_.model_path, "PATH", "Model file or folder.");
    add_model_options(options, run_);
    add_compute_options(options, run_);
    options.choice("--block-size", &eval_.block_size_tokens, {{"16", 16}, {"32", 32}, {"64", 64}},
                   "Tokens in a block of the KV cache.");
  }

  Result<void> check() override {
    if (run_.model_path.empty()) run_.model_path = positional_path_;
    if (run_.model_path.empty()) return error("eval kv needs a model: tidemill eval kv MODEL");
    if (factual_paths_.empty() && creative_paths_.empty())
      return error("eval kv needs something to read: --factual FILE or --creative FILE");
    if (const auto formats = kv_format_list(format_names_, 0); !formats)
      return error("--formats: {}", formats.error().message);
    if (const auto reference = kv_formats_named(reference_name_, 0); !reference)
      return error("--reference: {}", reference.error().message);
    for (const int32_t length : eval_.context_lengths) {
      if (length < 8) return error("--context-lengths {} is below 8", length);
    }
    return {};
  }

  Result<int> run() override {
    EvalData data;
    for (const std::string& path : factual_paths_) {
      if (Result<void> done = read_eval_file(path, TextKind::factual, max_items_, data); !done) return done.error();
    }
    for (const std::string& path : creative_paths_) {
      if (Result<void> done = read_eval_file(path, TextKind::creative, max_items_, data); !done) return done.error();
    }
    run_.engine.max_num_seqs = 1;
    run_.kv_budget.num_blocks = 1;  // each format has a cache of its own
    run_.engine.block_size_tokens = eval_.block_size_tokens;
    Result<std::unique_ptr<LoadedBenchModel>> loaded = load_bench_model(run_);
    if (!loaded) return loaded.error();
    EngineStack& stack = *(*loaded)->stack;
    for (const int32_t length : eval_.context_lengths) {
      if (!data.texts.empty() && length > stack.model->info().context_length)
        return error("--context-lengths {} is more than the {} positions that the model was trained on", length,
                     stack.model->info().context_length);
    }
    const int32_t num_layers = stack.model->info().num_layers;
    Result<NamedKvFormats> reference = kv_formats_named(reference_name_, num_layers);
    if (!reference) return error("--reference: {}", reference.error().message);
    Result<std::vector<NamedKvFormats>> formats = kv_format_list(format_names_, num_layers);
    if (!formats) return error("--formats: {}", formats.error().message);
    eval_.reference = *std::move(reference);
    eval_.formats = *std::move(formats);
    if (std::ranges::none_of(eval_.formats, [](const auto& format) { return format.name == floor_format; }))
      eval_.formats.insert(eval_.formats.begin(), kv_formats_named(floor_format, num_layers).value());
    return measure(**loaded, data);
  }

 private:
  Result<int> measure(LoadedBenchModel& loaded, const EvalData& data) {
    EngineStack& stack = *loaded.stack;
    const std::string machine = machine_text(this_machine());
    std::printf("%s\n%s, %s kernels, %d threads\n", machine.c_str(), stack.name.c_str(),
                std::string(stack.backend->kernels()).c_str(), stack.backend->num_threads());
    InterruptCounter interrupts;
    EvalProgressLine line;
    eval_.on_progress = [&line](const EvalProgress& progress) { line.show(progress); };
    eval_.should_stop = [&interrupts] { return interrupts.count() > 0; };
    const Result<KvEvalResult> result =
        evaluate_kv({stack.model.get(), stack.backend.get(), stack.tokenizer.get()}, data, eval_);
    if (!result) return result.error();
    std::printf("\n%s", kv_eval_tables(*result).c_str());
    nlohmann::ordered_json json = result_head(run_info(*this));
    json["model"] = {{"name", loaded.model.name},
                     {"files", json_of(loaded.files)},
                     {"kernels", loaded.model.kernels},
                     {"threads", loaded.model.num_threads},
                     {"kv_block_tokens", eval_.block_size_tokens}};
    json["data"] = json_of(data);
    json["options"] = {{"context_lengths", eval_.context_lengths},
                       {"text_tokens", eval_.text_tokens},
                       {"items_of_each_task", max_items_}};
    json.update(json_of(*result));
    if (Result<void> done = write_json(json_path_, json); !done) return done.error();
    const std::string subtitle = fmt::format("{}; {}", loaded.model.name, machine);
    if (Result<void> done = write_text(svg_path_, kv_eval_picture(*result, subtitle)); !done) return done.error();
    if (Result<void> done = write_text(report_path_, kv_eval_page(*result, loaded.model.name, json)); !done)
      return done.error();
    return result->stopped ? 130 : 0;
  }

  RunOptions run_;
  KvEvalOptions eval_;
  std::string format_names_ = "fp16,int8,int8/int4,int4", reference_name_ = "fp32";
  std::string positional_path_, json_path_, svg_path_, report_path_;
  std::vector<std::string> factual_paths_, creative_paths_;
  int64_t max_items_ = 100;
};

}  // namespace

std::vector<std::unique_ptr<Command>> eval_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(std::make_unique<EvalKvCommand>());
  return commands;
}

}  // namespace tidemill
