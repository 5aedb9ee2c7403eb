// tidemill chat: a conversation in the terminal.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands/command.h"
#include "cli/terminal.h"
#include "cli/text_source.h"

namespace tidemill {
namespace {

constexpr const char* help_lines =
    "/help            these lines\n"
    "/clear           forget the conversation\n"
    "/system TEXT     instructions for the model (begins a new conversation)\n"
    "/history         the conversation so far\n"
    "/again           another answer to the last question\n"
    "/exit            leave (as Ctrl-D)\n"
    "A line that ends with \\ goes on in the next. Ctrl-C stops an answer.\n";

class ChatCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {"chat", "Talk with a model in the terminal.", std::string("At the prompt:\n") + help_lines};
  }

  void add_options(OptionList& options) override {
    options.positional("[MODEL]", &positional_model_, "Model file or folder.");
    options.text("--model,-m", &run_.model_path, "PATH", "Model file or folder.");
    options.text("--url", &server_.url, "URL", "Talk with a running server instead, as http://127.0.0.1:8000.");
    options.text("--api-key", &server_.api_key, "KEY", "Key for --url.");
    options.text("--system", &system_, "TEXT", "Instructions for the model.");
    add_sampling_options(options, sampling_);
    add_model_options(options, run_);
    add_length_option(options, run_);
    options.text("--chat-template", &run_.chat_template_path, "FILE", "Jinja template instead of the model's own.");
    add_compute_options(options, run_);
    add_memory_options(options, run_);
  }

  Result<void> check() override {
    if (run_.model_path.empty()) run_.model_path = positional_model_;
    if (run_.model_path.empty() && server_.url.empty()) {
      return error("chat needs a model: tidemill chat MODEL, or --url of a running server");
    }
    if (!run_.model_path.empty() && !server_.url.empty()) return error("give either a model or --url, not both");
    return {};
  }

  Result<int> run() override {
    Result<std::unique_ptr<TextSource>> source =
        server_.url.empty() ? make_local_source(run_) : make_remote_source(server_);
    if (!source) return source.error();
    source_ = *std::move(source);
    interrupts_.emplace();
    clear();
    if (interactive_) {
      std::fprintf(stderr, "%s. /help shows the commands, Ctrl-D leaves.\n", source_->model_name().c_str());
    }
    while (true) {
      const std::optional<std::string> line = next_line();
      if (!line || *line == "/exit" || *line == "/quit") break;
      if (line->empty()) continue;
      if (line->front() == '/') {
        obey(*line);
      } else {
        messages_.push_back({{"role", "user"}, {"content", *line}});
        answer();
      }
    }
    if (interactive_) std::fputc('\n', stderr);
    return failed_ && !interactive_ ? 1 : 0;
  }

 private:
  void clear() {
    messages_ = nlohmann::ordered_json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // nullopt at the end of input.
  std::optional<std::string> next_line() {
    std::string whole;
    while (true) {
      if (interactive_) std::fprintf(stderr, "%s%s%s", colors_.green, whole.empty() ? "> " : ". ", colors_.reset);
      std::string line;
      const LineReader::Outcome outcome = reader_.next(line);
      if (outcome == LineReader::Outcome::end_of_input) {
        return whole.empty() ? std::nullopt : std::optional(whole);
      }
      if (outcome == LineReader::Outcome::interrupted) {
        std::fputs("\n(Ctrl-D or /exit leaves)\n", stderr);
        whole.clear();
        continue;
      }
      whole += interactive_ ? without_escape_sequences(line) : line;
      if (whole.empty() || whole.back() != '\\') return whole;
      whole.back() = '\n';
    }
  }

  void obey(const std::string& line) {
    if (line == "/help") {
      std::fputs(help_lines, stderr);
    } else if (line == "/clear") {
      clear();
    } else if (line.starts_with("/system ")) {
      system_ = line.substr(8);
      clear();
    } else if (line == "/history") {
      for (const auto& message : messages_) {
        std::fprintf(stderr, "%s%s:%s %s\n", colors_.bold, message["role"].get<std::string>().c_str(), colors_.reset,
                     message["content"].get<std::string>().c_str());
      }
    } else if (line == "/again") {
      if (!messages_.empty() && messages_.back()["role"] == "assistant") messages_.erase(messages_.size() - 1);
      if (messages_.empty() || messages_.back()["role"] != "user") {
        std::fputs("there is no question yet\n", stderr);
      } else {
        answer();
      }
    } else {
      std::fputs("no such command; /help shows them\n", stderr);
    }
  }

  // Answers the last message. One that fails is taken back.
  void answer() {
    interrupts_->reset();
    const Result<Answer> answer = source_->chat(messages_, sampling_,
                                                {.on_text =
                                                     [](const std::string& piece) {
                                                       std::fputs(piece.c_str(), stdout);
                                                       std::fflush(stdout);
                                                     },
                                                 .should_stop = [this] { return interrupts_->count() > 0; }});
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (!answer) {
      std::fprintf(stderr, "%stidemill: %s%s\n", colors_.red, answer.error().message.c_str(), colors_.reset);
      messages_.erase(messages_.size() - 1);
      failed_ = true;
      return;
    }
    messages_.push_back({{"role", "assistant"}, {"content", answer->text}});
    if (interactive_) show_timings(*answer);
  }

  void show_timings(const Answer& answer) const {
    const double decode_seconds = answer.total_seconds - answer.first_token_seconds;
    const double rate = decode_seconds > 0 ? static_cast<double>(answer.completion_tokens - 1) / decode_seconds : 0;
    std::fprintf(stderr, "%s[%lld tokens after %.2f s, %.0f tokens/s; prompt %lld tokens, %lld of them cached%s]%s\n",
                 colors_.dim, static_cast<long long>(answer.completion_tokens), answer.first_token_seconds,
                 rate > 0 ? rate : 0.0, static_cast<long long>(answer.prompt_tokens),
                 static_cast<long long>(answer.cached_tokens),
                 answer.finish_reason == "length"  ? "; cut off by the length limit"
                 : answer.finish_reason == "abort" ? "; stopped"
                                                   : "",
                 colors_.reset);
  }

  RunOptions run_;
  ServerAddress server_;
  SamplingOptions sampling_;
  std::string positional_model_, system_;

  const bool interactive_ = isatty(STDIN_FILENO) == 1;
  const Colors colors_{colors_wanted(STDERR_FILENO)};
  std::optional<InterruptCounter> interrupts_;  // while the conversation runs
  LineReader reader_;
  std::unique_ptr<TextSource> source_;
  nlohmann::ordered_json messages_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Command> make_chat_command() {
  return std::make_unique<ChatCommand>();
}

}  // namespace tidemill
