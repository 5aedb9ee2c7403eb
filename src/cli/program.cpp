#include "cli/program.h"

#include <cstdio>
#include <filesystem>

#include "base/printable.h"
#include "cli/commands/command.h"
#include "cli/version.h"

namespace tidemill {
namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr std::string_view bench_prefix = "bench ";

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_serve_command());
  commands.push_back(make_chat_command());
  commands.push_back(make_complete_command());
  commands.push_back(make_tokenize_command());
  commands.push_back(make_inspect_command());
  commands.push_back(make_perplexity_command());
  return commands;
}

std::string overview() {
  std::string text =
      "Usage: tidemill COMMAND [options]\n\nServes language models through the OpenAI HTTP API.\n\nCommands:\n";
  for (const auto& command : all_commands()) {
    const CommandDescription description = command->description();
    text += fmt::format("  {:<12}{}\n", description.name, description.summary);
  }
  text += fmt::format("  {:<12}{}\n", "bench", "Measure the engine, a server, or two against each other.");
  text += fmt::format("  {:<12}{}\n", "version", "Print the version.");
  return text +
         "\n`tidemill COMMAND --help` shows a command's options. Each can also be set by an environment variable\n"
         "(--max-num-seqs is TIDEMILL_MAX_NUM_SEQS); the command line counts more.\n";
}

int complain(const std::string& sentence, int exit_code) {
  std::fprintf(stderr, "tidemill: %s\n", sentence.c_str());
  return exit_code;
}

int run_command(Command& command, const std::vector<std::string>& arguments) {
  OptionList options;
  command.add_options(options);
  command.remember_arguments(arguments);
  const std::string name = command.description().name;
  const Result<ParsedCommand> parsed = parse_options(options, arguments, tidemill_environment());
  if (!parsed) return complain(fmt::format("{} (tidemill {} --help)", parsed.error().message, name), exit_usage);
  if (parsed->help_wanted) {
    std::fputs(help_text(command.description(), options).c_str(), stdout);
    return 0;
  }
  for (const std::string& warning : parsed->warnings) std::fprintf(stderr, "tidemill: warning: %s\n", warning.c_str());
  if (const Result<void> fine = command.check(); !fine) return complain(fine.error().message, exit_usage);
  const Result<int> code = command.run();
  return code ? *code : complain(code.error().message, exit_failed);
}

std::string bench_overview() {
  std::string text = "Usage: tidemill bench KIND [options]\n\nKinds:\n";
  for (const auto& command : bench_commands()) {
    const CommandDescription description = command->description();
    text += fmt::format("  {:<12}{}\n", description.name.substr(bench_prefix.size()), description.summary);
  }
  return text +
         "\n`tidemill bench KIND --help` shows its options; `tidemill bench MODEL` is short for `tidemill bench "
         "latency\n"
         "MODEL`.\n";
}

// `tidemill bench KIND ...`; what names no kind is the model of `bench latency`, where it could be one.
int run_bench(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(bench_overview().c_str(), stderr);
    return exit_usage;
  }
  const std::string& kind = arguments.front();
  if (kind == "--help" || kind == "-h" || kind == "help") {
    std::fputs(bench_overview().c_str(), stdout);
    return 0;
  }
  std::vector<std::string> kinds;
  const auto commands = bench_commands();
  for (const auto& command : commands) {
    kinds.push_back(command->description().name.substr(bench_prefix.size()));
    if (kinds.back() == kind) return run_command(*command, {arguments.begin() + 1, arguments.end()});
  }
  std::error_code ignored;
  if (kind.starts_with('-') || std::filesystem::exists(kind, ignored)) return run_command(*commands.front(), arguments);
  const std::string nearest = nearest_word(kind, kinds);
  return complain(fmt::format("'{}' is neither a kind of bench nor a model{} (tidemill bench --help)", printable(kind),
                              nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)),
                  exit_usage);
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(overview().c_str(), stderr);
    return exit_usage;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(overview().c_str(), stdout);
    return 0;
  }
  if (name == "version" || name == "--version" || name == "-V") {
    std::printf("tidemill %s\n", version_text());
    return 0;
  }
  if (name == "bench") return run_bench({arguments.begin() + 1, arguments.end()});
  std::vector<std::string> names = {"version", "help", "bench"};
  for (const auto& command : all_commands()) {
    if (command->description().name == name) return run_command(*command, {arguments.begin() + 1, arguments.end()});
    names.push_back(command->description().name);
  }
  const std::string nearest = nearest_word(name, names);
  return complain(fmt::format("there is no command '{}'{} (tidemill --help)", printable(name),
                              nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)),
                  exit_usage);
}

}  // namespace tidemill
