// Fills a command's options from the command line, the environment and a configuration file, in this order of
// precedence.
//
// What one source says replaces what a lower one says, also for options that may be given several times. Names that do
// not exist are errors on the command line and in the file, and warnings in the environment; all suggest the nearest
// name that does. Every Error is a sentence for the person at the terminal and names where the text came from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/option_list.h"

namespace tidemill {

// A command of the program, apart from what it does.
struct CommandDescription {
  std::string name;     // "serve"
  std::string summary;  // one line
  std::string notes;    // shown under the options; "" = nothing
};

// The variables TIDEMILL_* of the process.
using Environment = std::map<std::string, std::string>;
Environment tidemill_environment();

struct ParsedCommand {
  bool help_wanted = false;
  std::vector<std::string> warnings;
};

// An option named --config, where the list has one, names the configuration file.
Result<ParsedCommand> parse_options(const OptionList& list, const std::vector<std::string>& arguments,
                                    const Environment& environment);

// What --help prints: options by group, with defaults and units.
std::string help_text(const CommandDescription& command, const OptionList& list);

}  // namespace tidemill
