// tidemill bench kernels: the kernels against what this machine can do at this moment.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "bench/kernel_run.h"
#include "bench/machine.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/commands/bench/bench_model_options.h"
#include "cli/options/kv_format_options.h"
#include "cli/options/run_options.h"

namespace tidemill {
namespace {

class BenchKernelsCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"bench kernels", "The kernels, each in percent of what this machine can do at this moment.",
            "Measures dot products, multiply-adds and reads of memory, then products and attention in the shapes of\n"
            "a model of 135 million parameters (no model file is needed). Integer weights are held against the int8\n"
            "units, F16 and BF16 against BF16, F32 against FP32; reads against a read of as many bytes."};
  }

  void add_options(OptionList& options) override {
    options.custom("--types,--type", "TYPE,...", "Weight types.", "Q4_0,Q4_1,Q8_0,Q4_K,Q6_K,F16,BF16",
                   [this](const std::string& text) { return set_types(text); });
    options.custom("--rows", "N,...", "Rows of a product.", "1,8,32,256",
                   [this](const std::string& text) -> Result<void> { return set_counts(text, 4096, kernels_.rows); });
    options.custom(
        "--lengths", "TOKENS,...", "Contexts of attention.", "128,1024,8192",
        [this](const std::string& text) -> Result<void> { return set_counts(text, 1 << 20, kernels_.lengths); });
    add_kv_format_options(options, kv_choice_);
    options.flag("--quick", &quick_, "Each figure from one pass: shows that it runs, not how fast.");
    options.text("--json", &json_path_, "FILE", "Write the result here, too.");
    options.text("--svg", &svg_path_, "FILE", "Draw attention over the length of the context here.");
    add_compute_options(options, run_);
  }

  Result<void> check() override {
    kernels_.kv_format = kv_choice_.formats().sealed;
    if (!kernels_.kv_format.encoded() && kernels_.kv_format != KvFormat::fp16) {
      return error("attention is measured over fp16 or an encoded format, not {}",
                   kv_formats_text(kv_choice_.formats()));
    }
    return {};
  }

  Result<int> run() override {
    const std::string_view kernels = run_.kernels == "auto" ? "" : std::string_view(run_.kernels);
    Result<std::unique_ptr<Backend>> backend = make_cpu_backend({.num_threads = run_.num_threads, .kernels = kernels});
    if (!backend) return backend.error();
    const std::string name((*backend)->kernels());
    std::printf("%s\n%s kernels, %d threads\n", machine_text(this_machine()).c_str(), name.c_str(),
                (*backend)->num_threads());
    std::fflush(stdout);
    if (quick_) kernels_.seconds = 0;
    const bool on_terminal = isatty(STDERR_FILENO) == 1;
    if (on_terminal)
      kernels_.on_progress = [](const std::string& what) { std::fprintf(stderr, "\r\033[K%s", what.c_str()); };
    const Result<KernelFigures> figures = measure_kernels(**backend, kernels_);
    if (on_terminal) std::fputs("\r\033[K", stderr);
    if (!figures) return figures.error();
    std::fputs(kernel_tables(*figures).c_str(), stdout);
    nlohmann::ordered_json json = result_head(run_info(*this));
    json["kernels"] = name;
    json["threads"] = (*backend)->num_threads();
    json["kv_format"] = kv_formats_text(kv_choice_.formats());
    json.update(json_of(*figures));
    if (Result<void> done = write_json(json_path_, json); !done) return done.error();
    const std::string subtitle = fmt::format("{} kernels, {} threads", name, (*backend)->num_threads());
    if (Result<void> done = write_text(svg_path_, attention_picture(*figures, subtitle)); !done) return done.error();
    return 0;
  }

 private:
  static Result<void> set_counts(const std::string& text, int64_t most, std::vector<int32_t>& target) {
    Result<std::vector<int32_t>> counts = parse_counts(text, most);
    if (!counts) return counts.error();
    target = *std::move(counts);
    return {};
  }

  Result<void> set_types(const std::string& text) {
    kernels_.types.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const std::string name = text.substr(begin, end - begin);
      int type = 0;
      while (type < num_dtypes && name != dtype_name(static_cast<DType>(type))) ++type;
      if (type == num_dtypes) return error("there is no weight type '{}'", printable(name));
      kernels_.types.push_back(static_cast<DType>(type));
      begin = end + 1;
    }
    return {};
  }

  RunOptions run_;
  KvFormatChoice kv_choice_;
  KernelOptions kernels_ = [] {
    KernelOptions options;
    options.types = {DType::q4_0, DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k, DType::f16, DType::bf16};
    options.rows = {1, 8, 32, 256};
    options.lengths = {128, 1024, 8192};
    return options;
  }();
  bool quick_ = false;
  std::string json_path_, svg_path_;
};

}  // namespace

std::unique_ptr<Command> make_bench_kernels_command() {
  return std::make_unique<BenchKernelsCommand>();
}

}  // namespace tidemill
