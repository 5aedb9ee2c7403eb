// tidemill serve: a model behind the OpenAI API.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/utf8.h"
#include "cli/commands/command.h"
#include "cli/engine_stack.h"
#include "cli/local_engine.h"
#include "cli/options/profiles.h"
#include "cli/options/serve_options.h"
#include "cli/options/values.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "runtime/memory_pressure.h"
#include "server/served_model.h"

namespace tidemill {
namespace {

using std::chrono::milliseconds;

// The longest sequence that the banner counts users of.
constexpr int32_t example_tokens = 2048;

std::vector<std::string> names_of(const ServeOptions& options, const EngineStack& stack) {
  if (!options.served_names.empty()) return options.served_names;
  std::error_code ignored;  // of the current folder, which has the name where the path is "."
  std::filesystem::path path = std::filesystem::absolute(options.run.model_path, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::vector<std::string> names;
  const std::string stem = path.extension() == ".gguf" || path.extension() == ".safetensors" ? path.stem().string()
                                                                                             : path.filename().string();
  for (const std::string& name : {stem, stack.name}) {  // no path: clients need not know our folders
    if (!name.empty() && is_valid_utf8(name) && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

KvContract kv_contract(const EngineStack& stack) {
  const auto offer = [](const KvFormatsWithLevel& kept) {
    return KvOffer{kv_formats_text(kept.formats), kept.fidelity, kv_format_rank(kept.formats)};
  };
  KvContract contract{.offers = {offer({stack.kv_formats, stack.kv_fidelity})}, .reencoded = {}, .rank_by_format = {}};
  for (const KvFormatsWithLevel& better : stack.kv_better) contract.offers.push_back(offer(better));
  if (stack.kv_reencoded) contract.reencoded = offer(*stack.kv_reencoded);
  for (const NamedKvFormat& each : named_kv_formats())
    contract.rank_by_format.emplace_back(each.name, kv_format_rank(each.format));
  return contract;
}

ServedModel served_model(const ServeOptions& options, const EngineStack& stack) {
  ServedModel model;
  model.names = names_of(options, stack);
  model.tokenizer = stack.tokenizer.get();
  model.chat_template = stack.chat_template.get();
  model.chat_template_problem = stack.chat_template_problem;
  model.thinking = find_thinking_marks(stack.chat_template_source);
  model.max_model_len_tokens = stack.engine_config.max_model_len_tokens;
  model.default_sampling = default_sampling(stack);
  model.default_max_tokens = stack.generation.max_new_tokens;
  model.kv = kv_contract(stack);
  model.created_unix_s = static_cast<int64_t>(std::time(nullptr));
  return model;
}

// A command that works when pasted into a shell.
std::string curl_line(const ServeOptions& options, const ServedModel& model, uint16_t port) {
  const ListenConfig& listen = options.server.listen;
  const bool tls = !listen.tls_certificate_file.empty();
  std::string host = listen.host == "0.0.0.0" || listen.host == "::" || listen.host.empty() ? "127.0.0.1" : listen.host;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  std::string line = "curl";
  if (tls) line += " -k";
  if (!listen.unix_socket.empty()) line += " --unix-socket '" + listen.unix_socket + "'";
  line += fmt::format(" {}://{}{}/v1/", tls ? "https" : "http", listen.unix_socket.empty() ? host : "localhost",
                      listen.unix_socket.empty() ? fmt::format(":{}", port) : "");
  nlohmann::ordered_json body = {{"model", model.names.front()}};
  if (model.chat_template != nullptr) {
    line += "chat/completions";
    body["messages"] = {{{"role", "user"}, {"content", "What is a tide mill?"}}};
  } else {
    line += "completions";
    body["prompt"] = "A tide mill is";
  }
  body["max_tokens"] = 60;
  line += " -H 'Content-Type: application/json'";
  if (!options.server.keys.keys.empty()) line += " -H 'Authorization: Bearer YOUR_KEY'";
  std::string json = body.dump();
  // In single quotes, the shell ends the text at a single quote.
  for (size_t at = 0; (at = json.find('\'', at)) != std::string::npos; at += 4) json.replace(at, 1, "'\\''");
  return line + " -d '" + json + "'";
}

void print_banner(const ServeOptions& options, const EngineStack& stack, const ServedModel& model, uint16_t port) {
  const ModelInfo& info = stack.model->info();
  const MemoryPlan& memory = stack.memory;
  const EngineConfig& engine = stack.engine_config;
  std::printf("Tidemill %s serves %s (%s, %.0f million parameters) as \"%s\"\n", version_text(), stack.name.c_str(),
              stack.family.c_str(), static_cast<double>(info.num_parameters) / 1e6, model.names.front().c_str());
  std::printf("Compute: %s kernels, %d threads, up to %d sequences and %d tokens in a step\n",
              std::string(stack.backend->kernels()).c_str(), stack.backend->num_threads(), engine.max_num_seqs,
              engine.max_num_batched_tokens);
  if (const Profile* profile = find_profile(options.profile)) {
    std::printf("Profile: %s, which sets what was not given by itself of %s\n", options.profile.c_str(),
                profile_options_text(*profile).c_str());
  }
  std::printf("Memory:  weights %s, scratch %s, KV cache %s (%s; %lld blocks of %d tokens, %s a token)\n",
              bytes_text(memory.weight_bytes).c_str(), bytes_text(memory.scratch_bytes).c_str(),
              bytes_text(memory.kv_budget_bytes).c_str(), kv_formats_text(stack.kv_formats).c_str(),
              static_cast<long long>(memory.num_blocks), memory.block_size_tokens,
              bytes_text(static_cast<uint64_t>(
                             kv_bytes_per_token(stack.model->kv_layout(), memory.block_size_tokens, stack.kv_formats)))
                  .c_str());
  if (!stack.kv_better.empty()) {
    std::string names;
    for (const KvFormatsWithLevel& better : stack.kv_better)
      names += (names.empty() ? "" : ", ") + kv_formats_text(better.formats);
    std::printf("         requests may ask for a KV cache in %s\n", names.c_str());
  }
  if (stack.kv_reencoded) {
    std::printf("         cold blocks are encoded anew in %s\n", kv_formats_text(stack.kv_reencoded->formats).c_str());
  }
  const int32_t tokens = std::min(example_tokens, engine.max_model_len_tokens);
  const auto fit = [&](int32_t length) {
    return static_cast<long long>(num_sequences_that_fit(memory, stack.model->kv_layout(), stack.kv_formats, length));
  };
  std::printf("Users:   %lld fit with %d tokens each", fit(tokens), tokens);
  if (engine.max_model_len_tokens > tokens) {
    std::printf(", %lld with the longest, %d", fit(engine.max_model_len_tokens), engine.max_model_len_tokens);
  }
  if (fit(engine.max_model_len_tokens) == 0) {
    std::printf("\nLimit:   the KV cache is smaller than the longest request; %d tokens of one request fit into it",
                longest_that_fits(stack, engine.max_model_len_tokens));
  }
  std::printf("\nTry:     %s\n", curl_line(options, model, port).c_str());
  std::fflush(stdout);
}

class ServeCommand final : public Command {
 public:
  CommandDescription description() const override {
    return {
        "serve", "Serve a model through the OpenAI HTTP API.",
        profiles_help() +
            "\nSIGTERM or Ctrl-C lets running requests finish within --shutdown-timeout; a second one ends at once."};
  }

  void add_options(OptionList& options) override {
    options.positional("[PATH]", &positional_path_, "Model: a GGUF file, or a folder as published on model hubs.");
    add_serve_options(options, options_);
  }

  Result<void> check() override {
    if (!positional_path_.empty()) options_.run.model_path = positional_path_;
    if (options_.run.model_path.empty()) {
      return error(
          "serve needs a model: tidemill serve PATH, where PATH is a GGUF file or a model folder; `make serve` brings "
          "a small one");
    }
    return finish_serve_options(options_);
  }

  Result<int> run() override {
    Log log(options_.log_level, colors_wanted(STDERR_FILENO));
    if (options_.log_requests) {
      options_.server.request_log = [&log](std::string_view line) { log.info("{}", line); };
    }
    const StopSignals signals([this](int signal) { stop(signal); });
    raise_descriptor_limit();
    Result<std::unique_ptr<ApiServer>> server = ApiServer::make(options_.server);
    if (!server) return server.error();
    if (Result<void> started = (*server)->start(); !started) return started.error();
    const Result<int> code = serve(**server, log);
    (*server)->stop();
    return code;
  }

 private:
  Result<int> serve(ApiServer& server, Log& log) {
    Result<std::unique_ptr<EngineStack>> stack = load_engine_stack(options_.run, show_loading);
    if (!stack) return stack.error();
    for (const std::string& warning : (*stack)->warnings) log.warning("{}", warning);
    const SystemClock clock;
    const std::unique_ptr<Engine> engine = make_engine(**stack, clock, server.events());
    const ServedModel model = served_model(options_, **stack);
    engine->start();
    const std::optional<Breathing> breathing = start_breathing(**stack, *engine);
    loaded_ = true;
    server.set_ready(*engine, model);
    std::fputs((*stack)->kv_explanation.c_str(), stdout);
    print_banner(options_, **stack, model, server.port());
    stop_signal_.wait(0);
    log.info("{}: {} requests are open, {} seconds to finish them", stop_signal_ == SIGINT ? "SIGINT" : "SIGTERM",
             server.num_open_requests(), options_.run.engine.shutdown_timeout.count() / 1000.0);
    shut_down(server);
    server.stop();  // before the engine goes
    log.info("stopped");
    return 0;
  }

  std::optional<Breathing> start_breathing(const EngineStack& stack, Engine& engine) const {
    const RunOptions& run = options_.run;
    if (run.kv_min_bytes == 0) return std::nullopt;
    const BreathingRules rules{.min_bytes = std::max(run.kv_min_bytes, 2 * stack.memory.block_bytes),
                               .max_bytes = run.kv_max_bytes};
    return std::optional<Breathing>(std::in_place, engine, rules);
  }

  // While the model is still loading nothing is worth waiting for.
  void stop(int signal) {
    stop_signal_ = signal;
    if (!loaded_) std::_Exit(0);
    stop_signal_.notify_all();
  }

  void shut_down(ApiServer& server) const {
    const milliseconds limit = options_.run.engine.shutdown_timeout;
    const auto end = std::chrono::steady_clock::now() + limit + milliseconds(1500);
    server.begin_shutdown(limit);
    while (!server.finished() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
  }

  ServeOptions options_;
  std::string positional_path_;
  std::atomic<bool> loaded_{false};
  std::atomic<int> stop_signal_{0};
};

}  // namespace

std::unique_ptr<Command> make_serve_command() {
  return std::make_unique<ServeCommand>();
}

}  // namespace tidemill
