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

// A first word that has kinds of its own, each a command named "WORD KIND".
struct CommandFamily {
  std::string word;
  std::string summary;
  std::vector<std::unique_ptr<Command>> (*commands)();
  std::string more;  // said at the end of its overview
  bool takes_model;  // a first argument that names no kind is the model of the first one
};

std::vector<CommandFamily> all_families() {
  return {{"bench", "Measure the engine, a server, or two against each other.", bench_commands,
           "`tidemill bench MODEL` is short for `tidemill bench latency MODEL`.\n", true},
          {"eval", "Measure what a setting costs in truth.", eval_commands, "", false}};
}

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
  for (const CommandFamily& family : all_families()) text += fmt::format("  {:<12}{}\n", family.word, family.summary);
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

std::string kind_of(const Command& command) {
  const std::string name = command.description().name;
  return name.substr(name.find(' ') + 1);
}

std::string overview(const CommandFamily& family) {
  std::string text = fmt::format("Usage: tidemill {} KIND [options]\n\nKinds:\n", family.word);
  for (const auto& command : family.commands())
    text += fmt::format("  {:<12}{}\n", kind_of(*command), command->description().summary);
  return text + fmt::format("\n`tidemill {} KIND --help` shows its options.\n", family.word) + family.more;
}

// `tidemill WORD KIND ...`.
int run_family(const CommandFamily& family, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(overview(family).c_str(), stderr);
    return exit_usage;
  }
  const std::string& kind = arguments.front();
  if (kind == "--help" || kind == "-h" || kind == "help") {
    std::fputs(overview(family).c_str(), stdout);
    return 0;
  }
  std::vector<std::string> kinds;
  const auto commands = family.commands();
  for (const auto& command : commands) {
    kinds.push_back(kind_of(*command));
    if (kinds.back() == kind) return run_command(*command, {arguments.begin() + 1, arguments.end()});
  }
  std::error_code ignored;
  if (family.takes_model && (kind.starts_with('-') || std::filesystem::exists(kind, ignored)))
    return run_command(*commands.front(), arguments);
  const std::string nearest = nearest_word(kind, kinds);
  const std::string what = family.takes_model ? fmt::format("is neither a kind of {} nor a model", family.word)
                                              : fmt::format("is not a kind of {}", family.word);
  return complain(fmt::format("'{}' {}{} (tidemill {} --help)", printable(kind), what,
                              nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest), family.word),
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
  std::vector<std::string> names = {"version", "help"};
  for (const CommandFamily& family : all_families()) {
    if (family.word == name) return run_family(family, {arguments.begin() + 1, arguments.end()});
    names.push_back(family.word);
  }
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
