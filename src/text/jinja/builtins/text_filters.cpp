// Filters whose operand is one value: text, numbers, JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/builtins/format.h"
#include "text/jinja/builtins/text_functions.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

bool is_markup(const Value& value) {
  return value.is_string() && value.as_string().markup;
}

Value text_like(Runtime& runtime, const Value& operand, Text text) {
  return make_string(runtime, std::move(text), is_markup(operand));
}

template <Text (*map)(const Text&)>
Value mapped(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("a case filter", arguments, {});
  const Text text = to_text(runtime, operand);
  runtime.charge_steps(static_cast<int64_t>(text.size() / 16));
  return text_like(runtime, operand, map(text));
}

// The filter's own rule: a word begins after white space, '-' or an opening bracket (str.title differs).
Text title_words(const Text& text) {
  Text result;
  bool word_begins = true;
  for (size_t offset = 0; offset < text.size();) {
    const CodePoint point = code_point_at(text.view(), offset);
    std::string mapped;
    if (word_begins) {
      append_upper(mapped, point.value);
    } else {
      append_lower(mapped, point.value);
    }
    result.append(mapped, text.trusted_at(offset));
    word_begins = is_space(point.value) ||
                  std::string_view("-({[<").find(static_cast<char>(point.value)) != std::string_view::npos;
    if (point.value >= 0x80 && !is_space(point.value)) word_begins = false;
    offset += point.size_bytes;
  }
  return result;
}

Value string_filter(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("string", arguments, {});
  return operand.is_string() ? operand : make_string(runtime, to_text(runtime, operand));
}

Value trim(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("trim", arguments, {"chars"});
  const Text* chars = parameters.given_some(0) ? &parameters.text(0) : nullptr;
  return text_like(runtime, operand, stripped(to_text(runtime, operand), Sides::both, chars));
}

Value replace(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"});
  const Integer limit = parameters.given_some(2) ? parameters.integer(2) : -1;
  const Text old_text = to_text(runtime, parameters.required(0));
  const Text new_text = to_text(runtime, parameters.required(1));
  return make_string(runtime, replaced(runtime, to_text(runtime, operand), old_text.view(), new_text, limit));
}

Value safe(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("safe", arguments, {});
  return make_string(runtime, to_text(runtime, operand), true);
}

Value escape(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("escape", arguments, {});
  return make_string(runtime, escape_html(runtime, operand), true);
}

Value force_escape(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("forceescape", arguments, {});
  return make_string(runtime, escape_html(runtime, make_string(runtime, to_text(runtime, operand))), true);
}

Value indent(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("indent", arguments, {"width", "first", "blank"});
  if (!operand.is_string()) fail("indent() needs a string, not '{}'", operand.type_name());
  Text indention;
  if (parameters.given(0) && parameters.optional(0)->is_string()) {
    indention = parameters.text(0);
  } else {
    const Integer width = parameters.integer_or(0, 4);
    constexpr Integer max_indent = 1024;
    if (width > max_indent) fail("indent() takes at most {} columns", static_cast<int64_t>(max_indent));
    indention = Text(std::string(static_cast<size_t>(std::max<Integer>(width, 0)), ' '), true);
  }
  Text ended = operand.as_text();
  ended.append("\n", true);
  const std::vector<Text> lines = lines_of(runtime, ended, false);
  Text result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) append_checked(runtime, result, "\n", true);
    const bool indented = i == 0 ? parameters.flag_or(1, false) : parameters.flag_or(2, false) || !lines[i].empty();
    if (indented) append_checked(runtime, result, indention);
    append_checked(runtime, result, lines[i]);
  }
  return text_like(runtime, operand, std::move(result));
}

Value word_count(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("wordcount", arguments, {});
  const Text text = to_text(runtime, operand);
  runtime.charge_steps(static_cast<int64_t>(text.size() / 16));
  Integer words = 0;
  bool in_word = false;
  for (size_t offset = 0; offset < text.size();) {
    const CodePoint point = code_point_at(text.view(), offset);
    const bool word = point.value == '_' || is_alphabetic(point.value) || is_numeric(point.value);
    if (word && !in_word) ++words;
    in_word = word;
    offset += point.size_bytes;
  }
  return Value::integer(words);
}

Value center(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("center", arguments, {"width"});
  const Text text = to_text(runtime, operand);
  const Integer width = parameters.integer_or(0, 80);
  const Integer missing = std::max<Integer>(width - static_cast<Integer>(count_code_points(text.view())), 0);
  constexpr Integer max_width = 1 << 16;
  if (missing > max_width) fail("center() takes a width of at most {}", static_cast<int64_t>(max_width));
  const Integer before = missing / 2 + (missing & width & 1);
  Text centered(std::string(static_cast<size_t>(before), ' '), true);
  append_checked(runtime, centered, text);
  append_checked(runtime, centered, std::string(static_cast<size_t>(missing - before), ' '), true);
  return text_like(runtime, operand, std::move(centered));
}

Value truncate(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Text text = to_text(runtime, operand);
  const Integer length = parameters.integer_or(0, 255);
  const Text end = parameters.given(2) ? parameters.text(2) : Text("...", true);
  const Integer leeway = parameters.given_some(3) ? parameters.integer(3) : 5;
  const auto end_length = static_cast<Integer>(count_code_points(end.view()));
  if (length < end_length || leeway < 0) fail("truncate() needs a length of at least {}", end.size());
  if (static_cast<Integer>(count_code_points(text.view())) <= length + leeway) return operand;
  Text kept = text.slice(0, offset_of_code_point(text.view(), static_cast<size_t>(length - end_length)));
  if (!parameters.flag_or(1, false)) {
    const size_t blank = kept.view().rfind(' ');
    if (blank != std::string_view::npos) kept = kept.slice(0, blank);
  }
  append_checked(runtime, kept, end);
  return text_like(runtime, operand, std::move(kept));
}

Value format(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("format() takes positional or named arguments, not both");
  }
  const Value pattern = make_string(runtime, to_text(runtime, operand), is_markup(operand));
  if (arguments.named.empty()) {
    return format_percent(runtime, pattern, Value::sequence(arguments.positional, Sequence::Flavor::tuple));
  }
  Dict names;
  for (const auto& [name, value] : arguments.named) names.set(Value::literal(name), value);
  return format_percent(runtime, pattern, Value::dict(std::move(names)));
}

// Characters that stay as they are in a URL.
bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.-~").find(c) != std::string_view::npos;
}

// A path keeps its slashes and writes a blank as %20; a query writes + for a blank.
void append_url_quoted(Runtime& runtime, Text& out, const Text& text, bool is_path) {
  text.for_each_run([&](std::string_view run, bool trusted) {
    std::string quoted;
    for (const char c : run) {
      if (is_unreserved(c) || (is_path && c == '/')) {
        quoted += c;
      } else if (c == ' ' && !is_path) {
        quoted += '+';
      } else {
        quoted += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      }
    }
    append_checked(runtime, out, quoted, trusted);
  });
}

Value url_encode(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("urlencode", arguments, {});
  Text encoded;
  if (operand.is_string() || !is_iterable(operand)) {
    append_url_quoted(runtime, encoded, to_text(runtime, operand), true);
    return make_string(runtime, std::move(encoded));
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (operand.is_dict()) {
    pairs = operand.as_dict().entries();
  } else {
    for (const Value& item : elements_of(runtime, operand)) {
      const std::vector<Value> parts = elements_of(runtime, item);
      if (parts.size() != 2) fail("urlencode() needs pairs, but got an element of length {}", parts.size());
      pairs.emplace_back(parts[0], parts[1]);
    }
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i > 0) append_checked(runtime, encoded, "&", true);
    append_url_quoted(runtime, encoded, to_text(runtime, pairs[i].first), false);
    append_checked(runtime, encoded, "=", true);
    append_url_quoted(runtime, encoded, to_text(runtime, pairs[i].second), false);
  }
  return make_string(runtime, std::move(encoded));
}

Value to_json_filter(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = parameters.flag_or(0, false);
  style.sort_keys = parameters.flag_or(3, false);
  if (parameters.given_some(1)) {
    if (parameters.optional(1)->is_string()) {
      style.indent = parameters.text(1);
    } else {
      constexpr Integer max_indent = 64;
      const Integer width = std::clamp<Integer>(parameters.integer(1), 0, max_indent);
      style.indent = Text(std::string(static_cast<size_t>(width), ' '), true);
    }
    style.item_separator = Text(",", true);
  }
  if (parameters.given_some(2)) {
    const std::vector<Value> separators = elements_of(runtime, parameters.required(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail("tojson() needs a pair of strings as separators");
    }
    style.item_separator = separators[0].as_text();
    style.key_separator = separators[1].as_text();
  }
  return make_string(runtime, to_json(runtime, operand, style));
}

Value absolute(Runtime&, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("abs", arguments, {});
  if (!operand.is_number()) fail("abs() needs a number, not '{}'", operand.type_name());
  if (operand.kind() == Value::Kind::real) return Value::real(std::fabs(operand.as_real()));
  return operand.as_integral() < 0 ? apply_unary(UnaryOperator::negate, operand)
                                   : Value::integer(operand.as_integral());
}

std::string without_underscores(std::string_view text) {
  std::string digits(text);
  std::erase(digits, '_');
  return digits;
}

std::optional<Integer> parse_integer(std::string text, int base) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.erase(0, 1);
  if (text.size() > 2 && text[0] == '0') {
    const char prefix = static_cast<char>(text[1] | 0x20);
    if ((base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') || (base == 2 && prefix == 'b')) {
      text.erase(0, 2);
    }
  }
  if (text.empty()) return {};
  Integer value = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) return {};
    if (__builtin_mul_overflow(value, Integer{base}, &value) || __builtin_add_overflow(value, Integer{digit}, &value)) {
      fail("an integer does not fit in 128 bits");
    }
  }
  return negative ? -value : value;
}

std::optional<double> parse_real(const Text& text) {
  const std::string trimmed = without_underscores(stripped(text, Sides::both, nullptr).view());
  std::string_view digits = trimmed;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || digits[0] == '-' || parsed.ptr != digits.data() + digits.size()) return {};
  if (parsed.ec == std::errc::result_out_of_range) value = digits.find("e-") != std::string_view::npos ? 0 : HUGE_VAL;
  return negative ? -value : value;
}

std::optional<Integer> integer_from(double value) {
  if (!std::isfinite(value) || std::fabs(value) >= 1e38) return {};
  return static_cast<Integer>(value);
}

Value to_integer(Runtime&, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("int", arguments, {"default", "base"});
  const Value fallback = parameters.given(0) ? *parameters.optional(0) : Value::integer(0);
  if (operand.is_integral()) return Value::integer(operand.as_integral());
  std::optional<Integer> value;
  if (operand.kind() == Value::Kind::real) value = integer_from(operand.as_real());
  if (operand.is_string()) {
    const Integer base = std::clamp<Integer>(parameters.integer_or(1, 10), 2, 36);
    value = parse_integer(without_underscores(stripped(operand.as_text(), Sides::both, nullptr).view()),
                          static_cast<int>(base));
    const auto real = value ? std::nullopt : parse_real(operand.as_text());
    if (real) value = integer_from(*real);
  }
  return value ? Value::integer(*value) : fallback;
}

Value to_real(Runtime&, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("float", arguments, {"default"});
  if (operand.is_number()) return Value::real(operand.as_number());
  const auto parsed = operand.is_string() ? parse_real(operand.as_text()) : std::nullopt;
  if (parsed) return Value::real(*parsed);
  return parameters.given(0) ? *parameters.optional(0) : Value::real(0);
}

// Half to even on the decimal expansion, as Python's round() does.
double round_half_even(double value, int precision) {
  if (precision < 0) {
    const double scale = std::pow(10.0, -precision);
    return std::nearbyint(value / scale) * scale;
  }
  return std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr);
}

Value round_filter(Runtime&, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("round", arguments, {"precision", "method"});
  if (!operand.is_number()) fail("round() needs a number, not '{}'", operand.type_name());
  const auto precision = static_cast<int>(std::clamp<Integer>(parameters.integer_or(0, 0), -300, 300));
  const std::string method = parameters.given(1) ? parameters.text(1).bytes() : "common";
  const double value = operand.as_number();
  if (method == "common") {
    if (operand.is_integral() && precision >= 0) return Value::integer(operand.as_integral());
    if (operand.is_integral()) return Value::integer(integer_from(round_half_even(value, precision)).value_or(0));
    return std::isfinite(value) ? Value::real(round_half_even(value, precision)) : operand;
  }
  const double scale = std::pow(10.0, precision);
  if (method == "ceil") return Value::real(std::ceil(value * scale) / scale);
  if (method == "floor") return Value::real(std::floor(value * scale) / scale);
  fail("round() knows the methods common, ceil and floor");
}

struct Row {
  std::string_view name;
  Filter filter;
};
constexpr Row filters[] = {
    {"abs", absolute},
    {"capitalize", mapped<to_capitalized>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"float", to_real},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"int", to_integer},
    {"lower", mapped<to_lower>},
    {"replace", replace},
    {"round", round_filter},
    {"safe", safe},
    {"string", string_filter},
    {"title", mapped<title_words>},
    {"tojson", to_json_filter},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", mapped<to_upper>},
    {"urlencode", url_encode},
    {"wordcount", word_count},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(filters), std::end(filters), [name](const Row& row) { return row.name == name; });
  return found == std::end(filters) ? nullptr : found->filter;
}

Filter find_filter(std::string_view name) {
  const Filter found = find_text_filter(name);
  return found != nullptr ? found : find_sequence_filter(name);
}

}  // namespace tidemill::jinja
