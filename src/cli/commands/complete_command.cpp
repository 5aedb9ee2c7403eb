// tidemill complete: continues a text, once.
#include <unistd.h>

#include <cstdio>

#include "base/printable.h"
#include "cli/commands/command.h"
#include "cli/terminal.h"
#include "cli/text_source.h"

namespace tidemill {
namespace {

constexpr int exit_interrupted = 130;

class CompleteCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"complete", "Continue a text.",
            "The answer goes to standard output, everything else to standard error. Example:\n"
            "  tidemill complete model.gguf 'The tide comes in' --max-tokens 40"};
  }

  void add_options(OptionList& options) override {
    options.positional("[MODEL]", &positional_model_, "Model file or folder (with --url: no path but the prompt).");
    options.positional("[PROMPT]", &prompt_, "The text; standard input where it is not given.");
    options.text("--model,-m", &run_.model_path, "PATH", "Model file or folder.");
    options.text("--url", &server_.url, "URL", "Ask a running server instead, as http://127.0.0.1:8000.");
    options.text("--api-key", &server_.api_key, "KEY", "Key for --url.");
    options.flag("--echo", &echo_, "Print the prompt before the answer.");
    add_sampling_options(options, sampling_);
    add_model_options(options, run_);
    add_length_option(options, run_);
    add_compute_options(options, run_);
    add_memory_options(options, run_);
  }

  Result<void> check() override {
    if (!run_.model_path.empty() && !server_.url.empty()) return error("give either --model or --url, not both");
    // A path that is not needed is the prompt.
    if (!run_.model_path.empty() || !server_.url.empty()) {
      if (!prompt_.empty()) return error("'{}' is one argument too many", printable(prompt_));
      prompt_ = positional_model_;
    } else {
      run_.model_path = positional_model_;
    }
    if (run_.model_path.empty() && server_.url.empty()) {
      return error("complete needs a model: tidemill complete MODEL [PROMPT], or --url of a running server");
    }
    return {};
  }

  Result<int> run() override {
    if (prompt_.empty()) prompt_ = read_all_input();
    Result<std::unique_ptr<TextSource>> source =
        server_.url.empty() ? make_local_source(run_) : make_remote_source(server_);
    if (!source) return source.error();
    const InterruptCounter interrupts;
    if (echo_) std::fputs(prompt_.c_str(), stdout);
    bool line_is_open = echo_;
    const Result<Answer> answer =
        (*source)->complete(prompt_, sampling_,
                            {.on_text =
                                 [&line_is_open](const std::string& piece) {
                                   line_is_open = true;
                                   std::fputs(piece.c_str(), stdout);
                                   std::fflush(stdout);
                                 },
                             .should_stop = [&interrupts] { return interrupts.count() > 0; }});
    if (answer || line_is_open) std::fputc('\n', stdout);
    if (!answer) return answer.error();
    return interrupts.count() > 0 ? exit_interrupted : 0;
  }

 private:
  RunOptions run_;
  ServerAddress server_;
  SamplingOptions sampling_;
  std::string positional_model_, prompt_;
  bool echo_ = false;
};

}  // namespace

std::unique_ptr<Command> make_complete_command() {
  return std::make_unique<CompleteCommand>();
}

}  // namespace tidemill
