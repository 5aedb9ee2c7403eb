#include "text/jinja/builtins/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

constexpr int max_field_width = 4096;

// One conversion, in the terms of the format mini-language: [[fill]align][sign][#][0][width][,][.precision][type].
struct FieldSpec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool group = false;
  int width = 0;
  std::optional<int> precision;
  char type = '\0';
};

void check_width(int64_t value) {
  if (value > max_field_width) fail("a format asks for a width or precision above {}", max_field_width);
}

int take_number(std::string_view& rest) {
  int64_t value = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    value = value * 10 + (rest[0] - '0');
    check_width(value);
    rest.remove_prefix(1);
  }
  return static_cast<int>(value);
}

std::string with_thousands(const std::string& digits) {
  std::string result;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

// Sign, prefix and digits of a number; padding is done by the caller.
struct NumberText {
  std::string prefix;  // sign and 0x
  std::string digits;
};

std::string sign_of(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

NumberText format_integer(Integer value, const FieldSpec& spec) {
  NumberText result{sign_of(value < 0, spec.sign), {}};
  const auto magnitude = value < 0 ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  switch (spec.type) {
    case 'x':
      result.digits = fmt::format("{:x}", magnitude);
      break;
    case 'X':
      result.digits = fmt::format("{:X}", magnitude);
      break;
    case 'o':
      result.digits = fmt::format("{:o}", magnitude);
      break;
    case 'b':
      result.digits = fmt::format("{:b}", magnitude);
      break;
    default:
      result.digits = fmt::format("{}", magnitude);
  }
  if (spec.alternate && spec.type != 'd') result.prefix += std::string("0") + spec.type;
  if (spec.group) result.digits = with_thousands(result.digits);
  return result;
}

NumberText format_real(double value, const FieldSpec& spec) {
  NumberText result{sign_of(std::signbit(value), spec.sign), {}};
  const double magnitude = std::fabs(value);
  if (!std::isfinite(value)) {
    result.digits = std::isnan(value) ? "nan" : "inf";
    return result;
  }
  const int precision = spec.precision.value_or(6);
  switch (spec.type) {
    case 'e':
      result.digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      result.digits = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'g':
      result.digits = fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
      break;
    case 'G':
      result.digits = fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
      break;
    case '%':
      result.digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    case '\0':
      result.digits =
          spec.precision ? fmt::format("{:.{}g}", magnitude, std::max(precision, 1)) : real_to_string(magnitude);
      break;
    default:
      result.digits = fmt::format("{:.{}f}", magnitude, precision);
  }
  if (spec.group) {
    const size_t point = std::min(result.digits.find_first_of(".e%"), result.digits.size());
    result.digits = with_thousands(result.digits.substr(0, point)) + result.digits.substr(point);
  }
  return result;
}

void append_padded(Runtime& runtime, Text& out, const Text& text, const FieldSpec& spec, char default_align) {
  const size_t length = count_code_points(text.view());
  const size_t missing = static_cast<size_t>(spec.width) > length ? static_cast<size_t>(spec.width) - length : 0;
  const char align = spec.align == '\0' ? default_align : spec.align;
  const size_t before = align == '>' || align == '=' ? missing : align == '^' ? missing / 2 : 0;
  for (size_t i = 0; i < before; ++i) append_checked(runtime, out, spec.fill, true);
  append_checked(runtime, out, text);
  for (size_t i = before; i < missing; ++i) append_checked(runtime, out, spec.fill, true);
}

void append_number(Runtime& runtime, Text& out, const NumberText& number, const FieldSpec& spec) {
  if (spec.align == '=') {
    FieldSpec digits_spec = spec;
    digits_spec.width = std::max(0, spec.width - static_cast<int>(number.prefix.size()));
    append_checked(runtime, out, number.prefix, true);
    return append_padded(runtime, out, Text(number.digits, true), digits_spec, '>');
  }
  append_padded(runtime, out, Text(number.prefix + number.digits, true), spec, '>');
}

void append_string(Runtime& runtime, Text& out, const Text& text, const FieldSpec& spec) {
  const size_t kept =
      spec.precision ? offset_of_code_point(text.view(), static_cast<size_t>(*spec.precision)) : text.size();
  append_padded(runtime, out, text.slice(0, kept), spec, '<');
}

FieldSpec parse_spec(std::string_view rest) {
  static constexpr std::string_view aligns = "<>^=";
  const auto is_align = [](std::string_view text) { return !text.empty() && aligns.find(text[0]) != aligns.npos; };
  FieldSpec spec;
  const size_t fill_size = rest.empty() ? 0 : code_point_at(rest, 0).size_bytes;
  if (fill_size > 0 && is_align(rest.substr(fill_size))) {
    spec.fill = rest.substr(0, fill_size);
    spec.align = rest[fill_size];
    rest.remove_prefix(fill_size + 1);
  } else if (is_align(rest)) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  const auto skip = [&rest](char c) {
    if (rest.empty() || rest[0] != c) return false;
    rest.remove_prefix(1);
    return true;
  };
  for (const char sign : {'+', '-', ' '}) {
    if (skip(sign)) spec.sign = sign;
  }
  spec.alternate = skip('#');
  if (skip('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = take_number(rest);
  spec.group = skip(',');
  if (skip('.')) spec.precision = take_number(rest);
  if (!rest.empty()) {
    spec.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) fail("a format has an invalid specifier");
  return spec;
}

void append_field(Runtime& runtime, Text& out, const Value& value, const FieldSpec& spec) {
  static constexpr std::string_view real_types = "eEfFgG%";
  if (value.kind() == Value::Kind::real ||
      (value.is_number() && spec.type != '\0' && real_types.find(spec.type) != std::string_view::npos)) {
    return append_number(runtime, out, format_real(value.as_number(), spec), spec);
  }
  if (value.kind() == Value::Kind::integer || (value.is_boolean() && spec.type != '\0' && spec.type != 's')) {
    if (spec.type == 's') fail("a format asks for a string, but the value is an integer");
    FieldSpec integer_spec = spec;
    if (spec.type == '\0' || spec.type == 'n') integer_spec.type = 'd';
    if (std::string_view("dxXob").find(integer_spec.type) == std::string_view::npos) {
      fail("a format has the unknown type '{}' for an integer", spec.type);
    }
    return append_number(runtime, out, format_integer(value.as_integral(), integer_spec), integer_spec);
  }
  if (spec.type != '\0' && spec.type != 's') {
    fail("a format has the type '{}' for a value of type '{}'", spec.type, value.type_name());
  }
  append_string(runtime, out, to_text(runtime, value), spec);
}

// The value of a replacement field such as "0", "name", "user.name" or "list[2]".
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Text& pattern, const Arguments& arguments)
      : runtime_(runtime), pattern_(pattern), arguments_(arguments) {}

  Text run();

 private:
  void append_replacement(std::string_view field);
  Value lookup(std::string_view name);
  std::string expand_spec(std::string_view spec);

  Runtime& runtime_;
  const Text& pattern_;
  const Arguments& arguments_;
  size_t next_automatic_ = 0;
  Text out_;
};

Value BraceFormatter::lookup(std::string_view name) {
  const size_t head_size = std::min(name.find_first_of(".["), name.size());
  const std::string_view head = name.substr(0, head_size);
  Value value;
  const bool numeric = std::all_of(head.begin(), head.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (numeric) {
    std::string_view digits = head;
    const size_t index = head.empty() ? next_automatic_++ : static_cast<size_t>(take_number(digits));
    if (index >= arguments_.positional.size()) fail("a format asks for argument {}, which is not given", index);
    value = arguments_.positional[index];
  } else {
    const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                    [head](const auto& named) { return named.first == head; });
    if (found == arguments_.named.end()) fail("a format asks for the argument '{}', which is not given", head);
    value = found->second;
  }
  std::string_view rest = name.substr(head_size);
  while (!rest.empty()) {
    const bool is_item = rest[0] == '[';
    const size_t end = is_item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
    if (end == std::string_view::npos) fail("a format has a field name without ']'");
    const std::string_view key = rest.substr(1, end - 1);
    int64_t index = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool is_index = is_item && !key.empty() && parsed.ptr == key.data() + key.size();
    value = is_index  ? get_item(runtime_, value, Value::integer(index))
            : is_item ? get_item(runtime_, value, Value::literal(key))
                      : get_attribute(runtime_, value, key);
    if (value.is_undefined()) throw Fault{value.undefined_message()};
    rest.remove_prefix(is_item ? end + 1 : end);
  }
  return value;
}

// A specifier may itself hold fields, as in "{:{}}".
std::string BraceFormatter::expand_spec(std::string_view spec) {
  std::string expanded;
  while (true) {
    const size_t open = spec.find('{');
    expanded += spec.substr(0, open);
    if (open == std::string_view::npos) return expanded;
    const size_t close = spec.find('}', open);
    if (close == std::string_view::npos) fail("a format has a field without '}}'");
    expanded += to_text(runtime_, lookup(spec.substr(open + 1, close - open - 1))).bytes();
    spec.remove_prefix(close + 1);
  }
}

void BraceFormatter::append_replacement(std::string_view field) {
  std::string_view name = field.substr(0, field.find(':'));
  const std::string_view spec = name.size() < field.size() ? field.substr(name.size() + 1) : std::string_view();
  char conversion = '\0';
  if (name.size() >= 2 && name[name.size() - 2] == '!') {
    conversion = name.back();
    name.remove_suffix(2);
  }
  Value value = lookup(name);
  if (conversion == 'r') {
    value = make_string(runtime_, to_repr(runtime_, value));
  } else if (conversion == 's') {
    value = make_string(runtime_, to_text(runtime_, value));
  } else if (conversion != '\0') {
    fail("a format has the unknown conversion '{}'", conversion);
  }
  append_field(runtime_, out_, value, parse_spec(expand_spec(spec)));
}

Text BraceFormatter::run() {
  const std::string_view bytes = pattern_.view();
  for (size_t i = 0; i < bytes.size();) {
    runtime_.charge_steps(1);
    const size_t brace = std::min(bytes.find_first_of("{}", i), bytes.size());
    append_checked(runtime_, out_, pattern_.slice(i, brace));
    i = brace;
    if (i == bytes.size()) break;
    if (i + 1 < bytes.size() && bytes[i + 1] == bytes[i]) {
      append_checked(runtime_, out_, pattern_.slice(i, i + 1));
      i += 2;
      continue;
    }
    if (bytes[i] == '}') fail("a format has a single '}}'");
    size_t end = i + 1;
    for (int depth = 1; end < bytes.size(); ++end) {
      depth += bytes[end] == '{' ? 1 : bytes[end] == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    if (end >= bytes.size()) fail("a format has a single '{{'");
    append_replacement(bytes.substr(i + 1, end - i - 1));
    i = end + 1;
  }
  return std::move(out_);
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& pattern, const Value& values)
      : runtime_(runtime), pattern_(pattern), values_(values) {
    is_tuple_ = values.is_sequence() && values.as_sequence().flavor == Sequence::Flavor::tuple;
  }

  Text run();

 private:
  size_t append_conversion(size_t begin);
  Value take_next();

  Runtime& runtime_;
  const Text& pattern_;
  const Value& values_;
  bool is_tuple_ = false;
  size_t num_taken_ = 0;
  Text out_;
};

Value PercentFormatter::take_next() {
  const size_t available = is_tuple_ ? values_.as_sequence().items.size() : 1;
  if (num_taken_ >= available) fail("not enough arguments for a format string");
  return is_tuple_ ? values_.as_sequence().items[num_taken_++] : (++num_taken_, values_);
}

// Handles the conversion after the '%' at `begin` - 1 and returns where it ends.
size_t PercentFormatter::append_conversion(size_t begin) {
  std::string_view rest = pattern_.view().substr(begin);
  std::optional<Value> value;
  if (!rest.empty() && rest[0] == '(') {
    const size_t close = rest.find(')');
    if (close == std::string_view::npos || !values_.is_dict()) fail("a format asks for a name, which needs a mapping");
    const Value* found = values_.as_dict().find(rest.substr(1, close - 1));
    if (found == nullptr) fail("a format asks for '{}', which is not given", rest.substr(1, close - 1));
    value = *found;
    rest.remove_prefix(close + 1);
  }
  FieldSpec spec;
  for (; !rest.empty() && std::string_view("-+ #0").find(rest[0]) != std::string_view::npos; rest.remove_prefix(1)) {
    if (rest[0] == '-') spec.align = '<';
    if (rest[0] == '+' || rest[0] == ' ') spec.sign = rest[0];
    if (rest[0] == '#') spec.alternate = true;
    if (rest[0] == '0' && spec.align == '\0') spec.align = '=';
  }
  if (spec.align == '=') spec.fill = "0";
  spec.width = take_number(rest);
  if (!rest.empty() && rest[0] == '.') {
    rest.remove_prefix(1);
    spec.precision = take_number(rest);
  }
  if (rest.empty()) fail("a format string ends inside a conversion");
  const char type = rest[0];
  const size_t end = pattern_.size() - rest.size() + 1;
  if (type == '%') {
    append_checked(runtime_, out_, "%", pattern_.trusted_at(end - 1));
    return end;
  }
  if (!value) value = take_next();
  if (spec.align == '\0') spec.align = '>';
  if (type == 's' || type == 'r' || type == 'c') {
    if (spec.align == '=') spec.align = '>', spec.fill = " ";
    append_string(runtime_, out_, type == 'r' ? to_repr(runtime_, *value) : to_text(runtime_, *value), spec);
    return end;
  }
  if (!value->is_number()) fail("a format asks for a number, but the value is of type '{}'", value->type_name());
  const bool is_integer = std::string_view("diuxXo").find(type) != std::string_view::npos;
  if (!is_integer && std::string_view("eEfFgG").find(type) == std::string_view::npos) {
    fail("a format has the unknown type '{}'", type);
  }
  spec.type = type == 'i' || type == 'u' ? 'd' : type;
  Value number = *value;
  if (is_integer && number.kind() == Value::Kind::real) {
    if (!(std::fabs(number.as_real()) < 1e38)) fail("a format asks for an integer, but the value is too large");
    number = Value::integer(static_cast<Integer>(number.as_real()));
  }
  append_field(runtime_, out_, is_integer ? Value::integer(number.as_integral()) : number, spec);
  return end;
}

Text PercentFormatter::run() {
  const std::string_view bytes = pattern_.view();
  for (size_t i = 0; i < bytes.size();) {
    runtime_.charge_steps(1);
    const size_t percent = std::min(bytes.find('%', i), bytes.size());
    append_checked(runtime_, out_, pattern_.slice(i, percent));
    i = percent == bytes.size() ? percent : append_conversion(percent + 1);
  }
  if (is_tuple_ && num_taken_ < values_.as_sequence().items.size()) {
    fail("not all arguments were used by a format string");
  }
  if (!is_tuple_ && !values_.is_dict() && !values_.is_sequence() && num_taken_ == 0) {
    fail("not all arguments were used by a format string");
  }
  return std::move(out_);
}

// Markup escapes what is put into it.
Value escaped_if_string(Runtime& runtime, const Value& value) {
  return value.is_string() ? make_string(runtime, escape_html(runtime, value)) : value;
}

}  // namespace

Value format_percent(Runtime& runtime, const Value& pattern, const Value& values) {
  const bool markup = pattern.as_string().markup;
  Value safe_values = values;
  if (markup && values.is_sequence()) {
    std::vector<Value> items;
    for (const Value& item : values.as_sequence().items) items.push_back(escaped_if_string(runtime, item));
    safe_values = Value::sequence(std::move(items), values.as_sequence().flavor);
  } else if (markup) {
    safe_values = escaped_if_string(runtime, values);
  }
  return make_string(runtime, PercentFormatter(runtime, pattern.as_text(), safe_values).run(), markup);
}

Value format_braces(Runtime& runtime, const Value& pattern, const Arguments& arguments) {
  const bool markup = pattern.as_string().markup;
  if (!markup) return make_string(runtime, BraceFormatter(runtime, pattern.as_text(), arguments).run());
  Arguments safe;
  for (const Value& value : arguments.positional) safe.positional.push_back(escaped_if_string(runtime, value));
  for (const auto& [name, value] : arguments.named) safe.named.emplace_back(name, escaped_if_string(runtime, value));
  return make_string(runtime, BraceFormatter(runtime, pattern.as_text(), safe).run(), true);
}

}  // namespace tidemill::jinja
