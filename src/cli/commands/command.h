// A command of the program: its description, its options, and what it does.
//
// One object lives for one invocation. add_options registers variables that belong to the object; run is called once
// they are set. An Error is printed as one line and makes the exit code 1; otherwise run says the exit code.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/option_list.h"
#include "cli/options/option_parser.h"

namespace tidemill {

class Command {
 public:
  virtual ~Command() = default;
  virtual CommandDescription description() const = 0;
  virtual void add_options(OptionList& options) = 0;
  // Whether the given options make sense together; a failure is a mistake in usage (exit code 2).
  virtual Result<void> check() { return {}; }
  virtual Result<int> run() = 0;

  // What stood on the command line, for results that say how they came about.
  void remember_arguments(std::vector<std::string> arguments) { arguments_ = std::move(arguments); }
  const std::vector<std::string>& arguments() const { return arguments_; }

 private:
  std::vector<std::string> arguments_;
};

std::unique_ptr<Command> make_serve_command();
std::unique_ptr<Command> make_chat_command();
std::unique_ptr<Command> make_complete_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_inspect_command();
std::unique_ptr<Command> make_perplexity_command();

// `tidemill bench NAME`: their descriptions are named "bench NAME".
std::vector<std::unique_ptr<Command>> bench_commands();
// The same for `tidemill eval NAME`.
std::vector<std::unique_ptr<Command>> eval_commands();

}  // namespace tidemill
