#include "cli/options/option_parser.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <set>
#include <sstream>

#include "base/printable.h"
#include "cli/options/config_file.h"

namespace tidemill {
namespace {

// Variables of the project that are not options.
const std::set<std::string, std::less<>> other_variables = {"TIDEMILL_CACHE", "TIDEMILL_DATA", "TIDEMILL_GOLDEN",
                                                            "TIDEMILL_BINARY"};

std::string did_you_mean(const std::string& nearest, std::string_view prefix) {
  return nearest.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, nearest);
}

std::string cli11_names(const Option& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ",") + name;
  if (option.value_name.empty()) {
    for (const std::string& name : option.names) {
      if (name.starts_with("--")) names += ",!--no-" + name.substr(2);
    }
  }
  return names;
}

Result<void> set_all(const Option& option, const std::vector<std::string>& values, const std::string& source) {
  const size_t first = option.repeatable || values.empty() ? 0 : values.size() - 1;
  for (size_t i = first; i < values.size(); ++i) {
    if (Result<void> done = option.set(values[i]); !done) return error("{}: {}", source, done.error().message);
  }
  return {};
}

// Options of the list as CLI11 sees them, and what it found.
struct CommandLine {
  CLI::App app;
  std::vector<CLI::Option*> options;  // in the list's order
  std::vector<CLI::Option*> positionals;

  explicit CommandLine(const OptionList& list) {
    app.set_help_flag("-h,--help");
    app.allow_extras();
    for (const Option& option : list.options()) {
      CLI::Option* added = option.value_name.empty()
                               ? app.add_flag(cli11_names(option))
                               : app.add_option(cli11_names(option), CLI::callback_t([](const auto&) { return true; }));
      added->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      options.push_back(added);
    }
    for (const Positional& positional : list.positionals()) {
      std::string name = positional.name;
      std::erase_if(name, [](char c) { return c == '[' || c == ']'; });
      positionals.push_back(app.add_option(name, CLI::callback_t([](const auto&) { return true; })));
    }
  }
};

Result<void> check_leftovers(const OptionList& list, const std::vector<std::string>& leftovers) {
  for (const std::string& word : leftovers) {
    if (word.size() > 1 && word[0] == '-') {
      const std::string name = word.substr(0, word.find('='));
      return error("there is no option {}{}", printable(name), did_you_mean(list.nearest(name), "--"));
    }
  }
  if (!leftovers.empty()) return error("'{}' is one argument too many", printable(leftovers.front()));
  return {};
}

// The values of --kv-cache-dtype --port: the second name is no value of the first.
Result<void> check_swallowed(const OptionList& list, const Option& option, const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    if (value.starts_with("--") && list.find(value.substr(0, value.find('='))) != nullptr) {
      return error("{} needs a value ({})", option.names.front(), option.value_name);
    }
  }
  return {};
}

struct FileSettings {
  std::string path;
  std::map<std::string, std::vector<std::string>> by_main_name;
};

Result<FileSettings> read_settings(const OptionList& list, const std::string& path) {
  FileSettings settings{path, {}};
  if (path.empty()) return settings;
  Result<ConfigEntries> entries = read_config_file(path);
  if (!entries) return entries.error();
  for (auto& [key, values] : *entries) {
    const Option* option = list.find(key);
    if (option == nullptr) {
      return error("configuration file {}: there is no option '{}'{}", path, printable(key),
                   did_you_mean(list.nearest(key), ""));
    }
    settings.by_main_name[option->names.front()] = std::move(values);
  }
  return settings;
}

std::vector<std::string> environment_warnings(const OptionList& list, const Environment& environment) {
  std::vector<std::string> known;
  for (const Option& option : list.options()) known.push_back(option.environment_name());
  std::vector<std::string> warnings;
  for (const auto& [name, value] : environment) {
    if (other_variables.contains(name) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    // A variable of another command is nobody's mistake; a near miss is.
    const std::string nearest = nearest_word(name, known);
    if (!nearest.empty()) {
      warnings.push_back(
          fmt::format("the environment variable {} means nothing here; did you mean {}?", printable(name), nearest));
    }
  }
  return warnings;
}

// What options like --profile say of others: by main name the text, and where it comes from.
std::map<std::string, std::pair<std::string, std::string>> find_presets(const OptionList& list, const CommandLine& line,
                                                                        const Environment& environment,
                                                                        const FileSettings& settings) {
  std::map<std::string, std::pair<std::string, std::string>> presets;
  for (size_t i = 0; i < list.options().size(); ++i) {
    const Option& option = list.options()[i];
    if (!option.presets) continue;
    std::string word;
    const auto variable = environment.find(option.environment_name());
    const auto entry = settings.by_main_name.find(option.names.front());
    if (line.options[i]->count() > 0) {
      word = line.options[i]->results().back();
    } else if (variable != environment.end()) {
      word = variable->second;
    } else if (entry != settings.by_main_name.end() && !entry->second.empty()) {
      word = entry->second.back();
    }
    for (auto& [name, value] : option.presets(word)) {
      presets["--" + name] = {value, fmt::format("{} {}, --{}", option.names.front(), word, name)};
    }
  }
  return presets;
}

Result<void> apply_sources(const OptionList& list, const CommandLine& line, const Environment& environment) {
  std::string config_path;
  const Option* config = list.find("config");
  for (size_t i = 0; i < list.options().size(); ++i) {
    if (&list.options()[i] != config) continue;
    const auto variable = environment.find(config->environment_name());
    if (line.options[i]->count() > 0) {
      config_path = line.options[i]->results().back();
    } else if (variable != environment.end()) {
      config_path = variable->second;
    }
  }
  const Result<FileSettings> settings = read_settings(list, config_path);
  if (!settings) return settings.error();
  const std::map<std::string, std::pair<std::string, std::string>> presets =
      find_presets(list, line, environment, *settings);

  for (size_t i = 0; i < list.options().size(); ++i) {
    const Option& option = list.options()[i];
    Result<void> done;
    const auto variable = environment.find(option.environment_name());
    const auto entry = settings->by_main_name.find(option.names.front());
    if (line.options[i]->count() > 0) {
      const std::vector<std::string> values = line.options[i]->results();
      if (Result<void> fine = check_swallowed(list, option, values); !fine) return fine;
      done = set_all(option, values, option.names.front());
    } else if (variable != environment.end()) {
      done = set_all(option, {variable->second}, option.environment_name());
    } else if (entry != settings->by_main_name.end()) {
      done = set_all(option, entry->second,
                     fmt::format("configuration file {}, {}", settings->path, option.names.front().substr(2)));
    } else if (const auto preset = presets.find(option.names.front()); preset != presets.end()) {
      done = set_all(option, {preset->second.first}, preset->second.second);
    }
    if (!done) return done;
  }
  return {};
}

std::string option_head(const Option& option) {
  std::string head;
  for (const std::string& name : option.names) {
    head += head.empty() ? "" : ", ";
    const bool negatable = option.value_name.empty() && option.default_text == "on" && name.starts_with("--");
    head += negatable ? "--[no-]" + name.substr(2) : name;
  }
  if (!option.value_name.empty()) head += " " + option.value_name;
  return head;
}

// Breaks text into lines of at most `width` columns, each after the first indented.
std::string wrapped(const std::string& text, size_t indent, size_t width) {
  std::istringstream words(text);
  std::string result, word;
  size_t column = 0;
  while (words >> word) {
    if (column > 0 && column + 1 + word.size() > width) {
      result += "\n" + std::string(indent, ' ');
      column = 0;
    }
    if (column > 0) result += ' ';
    result += word;
    column += word.size() + 1;
  }
  return result;
}

}  // namespace

Environment tidemill_environment() {
  Environment found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (text.starts_with("TIDEMILL_") && equals != std::string_view::npos) {
      found.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return found;
}

Result<ParsedCommand> parse_options(const OptionList& list, const std::vector<std::string>& arguments,
                                    const Environment& environment) {
  CommandLine line(list);
  try {
    line.app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    return ParsedCommand{.help_wanted = true, .warnings = {}};
  } catch (const CLI::ParseError& fault) {
    return error("{}", fault.what());
  }
  if (Result<void> fine = check_leftovers(list, line.app.remaining()); !fine) return fine.error();
  for (size_t i = 0; i < line.positionals.size(); ++i) {
    if (line.positionals[i]->count() > 0) *list.positionals()[i].target = line.positionals[i]->results().back();
  }
  if (Result<void> done = apply_sources(list, line, environment); !done) return done.error();
  return ParsedCommand{.help_wanted = false, .warnings = environment_warnings(list, environment)};
}

std::string help_text(const CommandDescription& command, const OptionList& list) {
  constexpr size_t indent = 30, width = 78;
  std::string text = fmt::format("Usage: tidemill {}", command.name);
  for (const Positional& positional : list.positionals()) text += " " + positional.name;
  text += fmt::format(" [options]\n\n{}\n", command.summary);
  for (const Positional& positional : list.positionals()) {
    text += fmt::format("\n  {:<26}  {}\n", positional.name, wrapped(positional.help, indent, width));
  }
  std::string group;
  for (const Option& option : list.options()) {
    if (option.group != group) text += fmt::format("\n{}:\n", option.group);
    group = option.group;
    const std::string head = option_head(option);
    text += "  " + head;
    text += head.size() <= indent - 4 ? std::string(indent - 2 - head.size(), ' ') : "\n" + std::string(indent, ' ');
    std::string help = option.help;
    if (option.repeatable) help += " (repeatable)";
    if (!option.default_text.empty()) help += fmt::format(" [default: {}]", option.default_text);
    text += wrapped(help, indent, width) + "\n";
  }
  text += "  -h, --help" + std::string(indent - 12, ' ') + "Show this.\n";
  if (!command.notes.empty()) text += "\n" + command.notes + "\n";
  return text;
}

}  // namespace tidemill
