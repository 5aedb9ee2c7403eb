// One command's options as a table: their names, their place in the help, and the variable that each one sets.
//
// The variables belong to the caller and must outlive the list. Their values at the time of adding are the defaults
// that the help shows. An option is set from a text, whether that comes from the command line, the environment or a
// configuration file (cli/options/option_parser.h); a text that does not fit gives an Error that names neither source
// nor option.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tidemill {

struct Option {
  std::vector<std::string> names;  // "--port"; the first is the main one, after which environment and file name it
  std::string group;
  std::string help;
  std::string value_name;    // "" = a flag, which needs no value
  std::string default_text;  // "" = none is shown
  bool repeatable = false;
  std::function<Result<void>(const std::string&)> set;
  // What a value of this option says of others: main names without dashes, and texts. Counts where nobody else says
  // anything of them; empty = nothing.
  std::function<std::vector<std::pair<std::string, std::string>>(const std::string&)> presets;

  // Environment variable of the main name: "--kv-cache" is TIDEMILL_KV_CACHE.
  std::string environment_name() const;
};

// What a command takes besides options.
struct Positional {
  std::string name;  // "PATH", or "[PATH]" where it may be left out
  std::string help;
  std::string* target = nullptr;
};

class OptionList {
 public:
  // Options added from here on stand under this heading.
  void group(std::string name) { group_ = std::move(name); }

  void text(std::string names, std::string* target, std::string value_name, std::string help);
  void texts(std::string names, std::vector<std::string>* target, std::string value_name, std::string help);
  // A flag that also exists as --no-NAME.
  void flag(std::string names, bool* target, std::string help);
  void duration(std::string names, std::chrono::milliseconds* target, std::string help);
  // Anything else: `set` reads the text.
  void custom(std::string names, std::string value_name, std::string help, std::string shown_default,
              std::function<Result<void>(const std::string&)> set);
  // A word out of a few, each of which sets other options of the list where they are not given (Option::presets).
  void preset(std::string names, std::string* target, std::vector<std::string> words, std::string help,
              std::function<std::vector<std::pair<std::string, std::string>>(const std::string&)> presets);
  // A number in [low, high].
  void number(std::string names, double* target, double low, double high, std::string help);
  void optional_number(std::string names, std::optional<double>* target, double low, double high, std::string help);

  // A count or a size, which may be written as 32k or 2GiB. `shown_default` replaces the value in the help.
  template <typename Integer>
  void integer(std::string names, Integer* target, std::string value_name, int64_t low, int64_t high, std::string help,
               std::string shown_default = "") {
    if (shown_default.empty()) shown_default = fmt::format("{}", *target);
    add_integer(
        std::move(names), [target](int64_t value) { *target = static_cast<Integer>(value); }, std::move(value_name),
        low, high, std::move(help), std::move(shown_default));
  }
  template <typename Integer>
  void integer(std::string names, std::optional<Integer>* target, std::string value_name, int64_t low, int64_t high,
               std::string help, std::string shown_default = "") {
    add_integer(
        std::move(names), [target](int64_t value) { *target = static_cast<Integer>(value); }, std::move(value_name),
        low, high, std::move(help), std::move(shown_default));
  }

  // One of the given words. Several words may mean one value; the first that means the default is shown.
  template <typename T>
  void choice(std::string names, T* target, std::vector<std::pair<std::string, T>> words, std::string help) {
    std::vector<std::string> accepted;
    std::string shown_default;
    for (const auto& [word, value] : words) {
      accepted.push_back(word);
      if (shown_default.empty() && value == *target) shown_default = word;
    }
    add_choice(
        std::move(names), std::move(accepted),
        [target, words = std::move(words)](size_t i) { *target = words[i].second; }, std::move(help),
        std::move(shown_default));
  }

  void positional(std::string name, std::string* target, std::string help) {
    positionals_.push_back({std::move(name), std::move(help), target});
  }

  const std::vector<Option>& options() const { return options_; }
  const std::vector<Positional>& positionals() const { return positionals_; }
  // By any of its names, with or without the leading dashes, with "_" for "-".
  const Option* find(std::string_view name) const;
  // The known long name most like a mistyped one, or "" where nothing comes near.
  std::string nearest(std::string_view name) const;

 private:
  Option& add(std::string names, std::string value_name, std::string help);
  void add_integer(std::string names, std::function<void(int64_t)> store, std::string value_name, int64_t low,
                   int64_t high, std::string help, std::string shown_default);
  void add_number(std::string names, std::function<void(double)> store, double low, double high, std::string help,
                  std::string shown_default);
  void add_choice(std::string names, std::vector<std::string> words, std::function<void(size_t)> store,
                  std::string help, std::string shown_default);

  std::string group_ = "Options";
  std::vector<Option> options_;
  std::vector<Positional> positionals_;
};

// The word of `known` with the smallest edit distance, where that is at most a third of the word's length, or else one
// that begins with it; or "".
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace tidemill
