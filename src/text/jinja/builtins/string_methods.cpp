// The methods of Python's str.
#include <algorithm>
#include <optional>

#include "text/jinja/builtins/callables.h"
#include "text/jinja/builtins/format.h"
#include "text/jinja/builtins/text_functions.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

Value same_kind(Runtime& runtime, const Value& self, Text text) {
  return make_string(runtime, std::move(text), self.as_string().markup);
}

std::optional<Text> optional_text(const Parameters& parameters, size_t index) {
  if (!parameters.given_some(index)) return {};
  return parameters.text(index);
}

template <Sides sides>
Value strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("strip", arguments, {"chars"});
  const auto chars = optional_text(parameters, 0);
  return same_kind(runtime, self, stripped(self.as_text(), sides, chars ? &*chars : nullptr));
}

template <Text (*map)(const Text&)>
Value mapped(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("a case method", arguments, {});
  runtime.charge_steps(static_cast<int64_t>(self.as_text().size() / 16));
  return same_kind(runtime, self, map(self.as_text()));
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("split", arguments, {"sep", "maxsplit"});
  const auto separator = optional_text(parameters, 0);
  const Integer limit = parameters.integer_or(1, -1);
  if (separator && separator->empty()) fail("split() got an empty separator");
  std::vector<Value> parts;
  for (Text& part : split_text(runtime, self.as_text(), separator ? &*separator : nullptr, limit, from_right)) {
    parts.push_back(same_kind(runtime, self, std::move(part)));
  }
  return Value::sequence(std::move(parts));
}

Value split_lines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("splitlines", arguments, {"keepends"});
  std::vector<Value> lines;
  for (Text& line : lines_of(runtime, self.as_text(), parameters.flag_or(0, false))) {
    lines.push_back(same_kind(runtime, self, std::move(line)));
  }
  return Value::sequence(std::move(lines));
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Text& separator = Parameters("partition", arguments, {"sep"}).text(0);
  if (separator.empty()) fail("partition() got an empty separator");
  const Text& text = self.as_text();
  const size_t found = from_right ? text.view().rfind(separator.view()) : text.view().find(separator.view());
  Text before = found != std::string_view::npos ? text.slice(0, found) : from_right ? Text() : text;
  Text after = found != std::string_view::npos ? text.slice(found + separator.size(), text.size())
               : from_right                    ? text
                                               : Text();
  return Value::sequence({same_kind(runtime, self, std::move(before)),
                          same_kind(runtime, self, found == std::string_view::npos ? Text() : separator),
                          same_kind(runtime, self, std::move(after))},
                         Sequence::Flavor::tuple);
}

// The part of the string that "start" and "end" arguments select, in bytes.
struct Window {
  size_t begin, end;
  bool possible;  // false if start lies beyond the end
};

Window window_of(const String& string, const Parameters& parameters) {
  const auto length = static_cast<Integer>(string.num_code_points);
  const auto resolve = [&](size_t index, Integer fallback) {
    if (!parameters.given_some(index)) return fallback;
    const Integer value = parameters.integer(index);
    return std::max<Integer>(value < 0 ? value + length : value, 0);
  };
  const Integer start = resolve(1, 0);
  const Integer end = std::min(resolve(2, length), length);
  if (start > length || start > end) return {0, 0, false};
  const std::string_view bytes = string.text.view();
  return {offset_of_code_point(bytes, static_cast<size_t>(start)),
          offset_of_code_point(bytes, static_cast<size_t>(end)), true};
}

// Index in code points, or -1.
Integer find_in(Runtime& runtime, const Value& self, const Arguments& arguments, bool from_right) {
  const Parameters parameters("find", arguments, {"sub", "start", "end"});
  const String& string = self.as_string();
  runtime.charge_steps(static_cast<int64_t>(string.text.size() / 64));
  const Window window = window_of(string, parameters);
  if (!window.possible) return -1;
  const std::string_view part = string.text.view().substr(window.begin, window.end - window.begin);
  const std::string_view wanted = parameters.text(0).view();
  const size_t found = from_right ? part.rfind(wanted) : part.find(wanted);
  if (found == std::string_view::npos) return -1;
  return static_cast<Integer>(count_code_points(string.text.view().substr(0, window.begin + found)));
}

template <bool from_right>
Value find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Value::integer(find_in(runtime, self, arguments, from_right));
}

template <bool from_right>
Value index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Integer found = find_in(runtime, self, arguments, from_right);
  if (found < 0) fail("substring not found");
  return Value::integer(found);
}

Value count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("count", arguments, {"sub", "start", "end"});
  const String& string = self.as_string();
  runtime.charge_steps(static_cast<int64_t>(string.text.size() / 64));
  const Window window = window_of(string, parameters);
  if (!window.possible) return Value::integer(0);
  const std::string_view part = string.text.view().substr(window.begin, window.end - window.begin);
  const std::string_view wanted = parameters.text(0).view();
  if (wanted.empty()) return Value::integer(static_cast<Integer>(count_code_points(part)) + 1);
  Integer total = 0;
  for (size_t found = part.find(wanted); found != std::string_view::npos; ++total) {
    found = part.find(wanted, found + wanted.size());
  }
  return Value::integer(total);
}

template <bool at_end>
Value has_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"});
  const Window window = window_of(self.as_string(), parameters);
  if (!window.possible) return Value::boolean(false);
  const std::string_view part = self.as_text().view().substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) fail("startswith() and endswith() take a string or a tuple of strings");
    return at_end ? part.ends_with(affix.as_text().view()) : part.starts_with(affix.as_text().view());
  };
  const Value& wanted = parameters.required(0);
  if (!wanted.is_sequence() || wanted.as_sequence().flavor != Sequence::Flavor::tuple) {
    return Value::boolean(matches(wanted));
  }
  const auto& affixes = wanted.as_sequence().items;
  runtime.charge_steps(static_cast<int64_t>(affixes.size()));
  return Value::boolean(std::any_of(affixes.begin(), affixes.end(), matches));
}

template <bool at_end>
Value remove_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const std::string_view affix = Parameters("removeprefix", arguments, {"prefix"}).text(0).view();
  const Text& text = self.as_text();
  const bool has = at_end ? text.view().ends_with(affix) : text.view().starts_with(affix);
  if (!has) return self;
  return same_kind(runtime, self,
                   at_end ? text.slice(0, text.size() - affix.size()) : text.slice(affix.size(), text.size()));
}

Value replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"});
  return same_kind(
      runtime, self,
      replaced(runtime, self.as_text(), parameters.text(0).view(), parameters.text(1), parameters.integer_or(2, -1)));
}

Value join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("join", arguments, {"iterable"});
  Text joined;
  bool first = true;
  for (const Value& item : elements_of(runtime, parameters.required(0))) {
    if (!item.is_string()) fail("join() needs strings, not '{}'", item.type_name());
    if (!first) append_checked(runtime, joined, self.as_text());
    first = false;
    append_checked(runtime, joined, item.as_text());
  }
  return same_kind(runtime, self, std::move(joined));
}

Value format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return format_braces(runtime, self, arguments);
}

enum class Padding { left, right, center, zeros };

template <Padding padding>
Value pad(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("a padding method", arguments, {"width", "fillchar"});
  Text fill = padding == Padding::zeros ? Text("0", true) : Text(" ", true);
  if (padding != Padding::zeros && parameters.given(1)) fill = parameters.text(1);
  if (count_code_points(fill.view()) != 1) fail("the fill of a padded string must be one character");
  const auto length = static_cast<Integer>(self.as_string().num_code_points);
  const Integer missing = std::max<Integer>(parameters.integer(0) - length, 0);
  if (missing == 0) return self;
  const Text& text = self.as_text();
  // CPython puts the odd blank of center() on the left when the width is odd.
  const Integer centered = missing / 2 + (missing & parameters.integer(0) & 1);
  const Integer before = padding == Padding::right ? 0 : padding == Padding::center ? centered : missing;
  const bool has_sign = padding == Padding::zeros && !text.empty() && (text.view()[0] == '-' || text.view()[0] == '+');
  Text padded = has_sign ? text.slice(0, 1) : Text();
  for (Integer i = 0; i < before; ++i) append_checked(runtime, padded, fill);
  append_checked(runtime, padded, text.slice(has_sign ? 1 : 0, text.size()));
  for (Integer i = before; i < missing; ++i) append_checked(runtime, padded, fill);
  runtime.charge_steps(static_cast<int64_t>(missing / 16));
  return same_kind(runtime, self, std::move(padded));
}

template <bool (*accepts)(int32_t)>
Value all_of(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("a class method", arguments, {});
  const std::string_view bytes = self.as_text().view();
  runtime.charge_steps(static_cast<int64_t>(bytes.size() / 16));
  for (size_t offset = 0; offset < bytes.size();) {
    const CodePoint point = code_point_at(bytes, offset);
    if (!accepts(point.value)) return Value::boolean(false);
    offset += point.size_bytes;
  }
  return Value::boolean(!bytes.empty());
}

bool is_alphanumeric(int32_t value) {
  return is_alphabetic(value) || is_numeric(value);
}

// isupper and islower: at least one cased character, and all of them of this case.
template <bool (*wanted)(int32_t)>
Value is_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("a case test", arguments, {});
  return Value::boolean(has_only_case(runtime, self.as_text(), wanted));
}

Value is_title(Runtime& runtime, const Value& self, const Arguments&) {
  runtime.charge_steps(static_cast<int64_t>(self.as_text().size() / 16));
  bool in_word = false;
  bool found = false;
  const std::string_view bytes = self.as_text().view();
  for (size_t offset = 0; offset < bytes.size();) {
    const CodePoint point = code_point_at(bytes, offset);
    if (is_lower(point.value) ? !in_word : is_cased(point.value) && in_word) return Value::boolean(false);
    in_word = is_cased(point.value);
    found |= in_word;
    offset += point.size_bytes;
  }
  return Value::boolean(found);
}

Value is_ascii(Runtime&, const Value& self, const Arguments&) {
  return Value::boolean(self.as_string().num_code_points == self.as_text().size());
}

Value is_identifier_method(Runtime& runtime, const Value& self, const Arguments&) {
  runtime.charge_steps(static_cast<int64_t>(self.as_text().size() / 16));
  return Value::boolean(is_identifier(self.as_text().view()));
}

Value expand_tabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("expandtabs", arguments, {"tabsize"});
  const Integer size = std::clamp<Integer>(parameters.integer_or(0, 8), 0, 256);
  const Text& text = self.as_text();
  Text expanded;
  Integer column = 0;
  for (size_t offset = 0; offset < text.size();) {
    const CodePoint point = code_point_at(text.view(), offset);
    if (point.value == '\t') {
      const Integer blanks = size == 0 ? 0 : size - column % size;
      append_checked(runtime, expanded, std::string(static_cast<size_t>(blanks), ' '), text.trusted_at(offset));
      column += blanks;
    } else {
      append_checked(runtime, expanded, text.view().substr(offset, point.size_bytes), text.trusted_at(offset));
      column = point.value == '\n' || point.value == '\r' ? 0 : column + 1;
    }
    offset += point.size_bytes;
  }
  return same_kind(runtime, self, std::move(expanded));
}

struct Row {
  std::string_view name;
  Method method;
};

constexpr Row methods[] = {
    {"capitalize", mapped<to_capitalized>},
    {"casefold", mapped<to_lower>},
    {"center", pad<Padding::center>},
    {"count", count},
    {"endswith", has_affix<true>},
    {"expandtabs", expand_tabs},
    {"find", find<false>},
    {"format", format},
    {"index", index<false>},
    {"isalnum", all_of<is_alphanumeric>},
    {"isalpha", all_of<is_alphabetic>},
    {"isascii", is_ascii},
    {"isdecimal", all_of<is_decimal>},
    {"isdigit", all_of<is_digit>},
    {"isidentifier", is_identifier_method},
    {"islower", is_case<is_lower>},
    {"isnumeric", all_of<is_numeric>},
    {"isspace", all_of<is_space>},
    {"istitle", is_title},
    {"isupper", is_case<is_upper>},
    {"join", join},
    {"ljust", pad<Padding::right>},
    {"lower", mapped<to_lower>},
    {"lstrip", strip<Sides::left>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find<true>},
    {"rindex", index<true>},
    {"rjust", pad<Padding::left>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<Sides::right>},
    {"split", split<false>},
    {"splitlines", split_lines},
    {"startswith", has_affix<false>},
    {"strip", strip<Sides::both>},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<to_title>},
    {"upper", mapped<to_upper>},
    {"zfill", pad<Padding::zeros>},
};

}  // namespace

Method find_string_method(std::string_view name) {
  const auto* found = std::lower_bound(std::begin(methods), std::end(methods), name,
                                       [](const Row& row, std::string_view key) { return row.name < key; });
  return found != std::end(methods) && found->name == name ? found->method : nullptr;
}

}  // namespace tidemill::jinja
