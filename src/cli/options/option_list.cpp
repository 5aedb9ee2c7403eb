#include "cli/options/option_list.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "base/printable.h"
#include "cli/options/values.h"

namespace tidemill {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string bare_name(std::string_view name) {
  while (!name.empty() && name.front() == '-') name.remove_prefix(1);
  std::string bare(name);
  std::replace(bare.begin(), bare.end(), '_', '-');
  return bare;
}

// Insertions, deletions, replacements and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  std::iota(cost[0].begin(), cost[0].end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    cost[i][0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]), cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::string duration_text(std::chrono::milliseconds time) {
  if (time.count() == 0) return "none";
  if (time.count() % 1000 == 0) return fmt::format("{}s", time.count() / 1000);
  return fmt::format("{}ms", time.count());
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

}  // namespace

std::string Option::environment_name() const {
  std::string name = "TIDEMILL_" + bare_name(names.front());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
  return name;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t longest_word = 100;
  if (word.size() > longest_word) return "";
  std::string best;
  size_t best_distance = std::string_view::npos;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  const size_t allowed = std::max<size_t>(1, std::max(word.size(), best.size()) / 3);
  if (best_distance <= allowed) return best;
  for (const std::string& candidate : known) {
    if (word.size() >= 4 && candidate.starts_with(word)) return candidate;
  }
  return "";
}

Option& OptionList::add(std::string names, std::string value_name, std::string help) {
  Option& option = options_.emplace_back();
  option.names = split(names, ',');
  option.group = group_;
  option.help = std::move(help);
  option.value_name = std::move(value_name);
  return option;
}

void OptionList::text(std::string names, std::string* target, std::string value_name, std::string help) {
  Option& option = add(std::move(names), std::move(value_name), std::move(help));
  option.default_text = *target;
  option.set = [target](const std::string& value) -> Result<void> {
    *target = value;
    return {};
  };
}

void OptionList::texts(std::string names, std::vector<std::string>* target, std::string value_name, std::string help) {
  Option& option = add(std::move(names), std::move(value_name), std::move(help));
  option.repeatable = true;
  option.set = [target](const std::string& value) -> Result<void> {
    target->push_back(value);
    return {};
  };
}

void OptionList::custom(std::string names, std::string value_name, std::string help, std::string shown_default,
                        std::function<Result<void>(const std::string&)> set) {
  Option& option = add(std::move(names), std::move(value_name), std::move(help));
  option.default_text = std::move(shown_default);
  option.set = std::move(set);
}

void OptionList::flag(std::string names, bool* target, std::string help) {
  Option& option = add(std::move(names), "", std::move(help));
  option.default_text = *target ? "on" : "";
  option.set = [target](const std::string& value) -> Result<void> {
    const Result<bool> parsed = parse_boolean(value);
    if (!parsed) return parsed.error();
    *target = *parsed;
    return {};
  };
}

void OptionList::duration(std::string names, std::chrono::milliseconds* target, std::string help) {
  Option& option = add(std::move(names), "SECONDS", std::move(help));
  option.default_text = duration_text(*target);
  option.set = [target](const std::string& value) -> Result<void> {
    const Result<std::chrono::milliseconds> parsed = parse_duration(value);
    if (!parsed) return parsed.error();
    *target = *parsed;
    return {};
  };
}

void OptionList::add_number(std::string names, std::function<void(double)> store, double low, double high,
                            std::string help, std::string shown_default) {
  Option& option = add(std::move(names), "X", std::move(help));
  option.default_text = std::move(shown_default);
  option.set = [=](const std::string& value) -> Result<void> {
    const Result<double> parsed = parse_number(value);
    if (!parsed) return parsed.error();
    if (*parsed < low || *parsed > high) return error("{} is not between {} and {}", printable(value), low, high);
    store(*parsed);
    return {};
  };
}

void OptionList::number(std::string names, double* target, double low, double high, std::string help) {
  add_number(
      std::move(names), [target](double value) { *target = value; }, low, high, std::move(help),
      fmt::format("{}", *target));
}

void OptionList::optional_number(std::string names, std::optional<double>* target, double low, double high,
                                 std::string help) {
  add_number(
      std::move(names), [target](double value) { *target = value; }, low, high, std::move(help), "the model's");
}

void OptionList::add_integer(std::string names, std::function<void(int64_t)> store, std::string value_name, int64_t low,
                             int64_t high, std::string help, std::string shown_default) {
  Option& option = add(std::move(names), std::move(value_name), std::move(help));
  option.default_text = std::move(shown_default);
  option.set = [store = std::move(store), low, high](const std::string& value) -> Result<void> {
    const Result<int64_t> parsed = parse_scaled(value);
    if (!parsed) return parsed.error();
    if (*parsed < low || *parsed > high) return error("{} is not between {} and {}", printable(value), low, high);
    store(*parsed);
    return {};
  };
}

void OptionList::add_choice(std::string names, std::vector<std::string> words, std::function<void(size_t)> store,
                            std::string help, std::string shown_default) {
  Option& option = add(std::move(names), joined(words, "|"), std::move(help));
  option.default_text = std::move(shown_default);
  option.set = [words = std::move(words), store = std::move(store)](const std::string& value) -> Result<void> {
    const auto found = std::find(words.begin(), words.end(), value);
    if (found == words.end()) return error("'{}' is not one of {}", printable(value), joined(words, ", "));
    store(static_cast<size_t>(found - words.begin()));
    return {};
  };
}

void OptionList::preset(std::string names, std::string* target, std::vector<std::string> words, std::string help,
                        std::function<std::vector<std::pair<std::string, std::string>>(const std::string&)> presets) {
  add_choice(
      std::move(names), words, [target, words](size_t i) { *target = words[i]; }, std::move(help), "none");
  options_.back().presets = std::move(presets);
}

const Option* OptionList::find(std::string_view name) const {
  const std::string bare = bare_name(name);
  for (const Option& option : options_) {
    for (const std::string& known : option.names) {
      if (bare_name(known) == bare) return &option;
    }
  }
  return nullptr;
}

std::string OptionList::nearest(std::string_view name) const {
  std::vector<std::string> known;
  for (const Option& option : options_) {
    for (const std::string& candidate : option.names) {
      if (candidate.starts_with("--")) known.push_back(bare_name(candidate));
      if (candidate.starts_with("--") && option.value_name.empty()) known.push_back("no-" + bare_name(candidate));
    }
  }
  return nearest_word(bare_name(name), known);
}

}  // namespace tidemill
