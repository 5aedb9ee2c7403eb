#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/builtins/format.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

[[noreturn]] void fail_types(std::string_view op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) throw Fault{value->undefined_message()};
  }
  fail("unsupported operand types for {}: '{}' and '{}'", op, left.type_name(), right.type_name());
}

bool sequences_equal(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (a.flavor != b.flavor || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!is_equal(runtime, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool dicts_equal(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (other == nullptr || !is_equal(runtime, value, *other)) return false;
  }
  return true;
}

// What a comparison of two strings looks at, at most.
void charge_comparison(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge_steps(static_cast<int64_t>(std::min(a.as_text().size(), b.as_text().size()) / 64));
}

constexpr std::string_view symbol_of(BinaryOperator op) {
  constexpr std::string_view symbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return symbols[static_cast<size_t>(op)];
}

[[noreturn]] void fail_overflow() {
  fail("an integer does not fit in 128 bits");
}

Integer floor_divide(Integer left, Integer right) {
  if (right == -1) {
    Integer result;
    if (__builtin_sub_overflow(Integer{0}, left, &result)) fail_overflow();
    return result;
  }
  const Integer quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Integer floor_modulo(Integer left, Integer right) {
  if (right == -1) return 0;
  const Integer remainder = left % right;
  return remainder != 0 && (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

Integer integer_power(Integer base, Integer exponent) {
  Integer result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

Value integer_arithmetic(BinaryOperator op, Integer left, Integer right) {
  Integer result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::add:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOperator::subtract:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOperator::multiply:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOperator::power:
      if (right < 0) return Value::real(std::pow(static_cast<double>(left), static_cast<double>(right)));
      return Value::integer(integer_power(left, right));
    default:
      if (right == 0) fail("division by zero");
      if (op == BinaryOperator::divide) return Value::real(static_cast<double>(left) / static_cast<double>(right));
      result = op == BinaryOperator::modulo ? floor_modulo(left, right) : floor_divide(left, right);
  }
  if (overflow) fail_overflow();
  return Value::integer(result);
}

Value real_arithmetic(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::add:
      return Value::real(left + right);
    case BinaryOperator::subtract:
      return Value::real(left - right);
    case BinaryOperator::multiply:
      return Value::real(left * right);
    case BinaryOperator::power:
      return Value::real(std::pow(left, right));
    default:
      break;
  }
  if (right == 0) fail("division by zero");
  if (op == BinaryOperator::divide) return Value::real(left / right);
  const double remainder = std::fmod(left, right);
  const bool off = remainder != 0 && (remainder < 0) != (right < 0);
  if (op == BinaryOperator::modulo) return Value::real(off ? remainder + right : remainder);
  return Value::real(std::floor((left - remainder) / right + (off ? -0.5 : 0.5)));
}

Value add_strings(Runtime& runtime, const Value& left, const Value& right) {
  const bool markup = left.as_string().markup || right.as_string().markup;
  Text joined = markup ? escape_html(runtime, left) : left.as_text();
  append_checked(runtime, joined, markup ? escape_html(runtime, right) : right.as_text());
  return make_string(runtime, std::move(joined), markup);
}

Value add_sequences(Runtime& runtime, const Value& left, const Value& right) {
  std::vector<Value> items = elements_of(runtime, left);
  const std::vector<Value> more = elements_of(runtime, right);
  items.insert(items.end(), more.begin(), more.end());
  return Value::sequence(std::move(items), left.as_sequence().flavor);
}

Value repeat(Runtime& runtime, const Value& value, Integer count) {
  const Integer times = std::max<Integer>(count, 0);
  if (value.is_string()) {
    if (value.as_text().empty()) return value;
    const Integer limit = std::numeric_limits<int32_t>::max() / static_cast<Integer>(value.as_text().size());
    if (times > limit) fail("a repeated string is too long");
    Text repeated;
    for (Integer i = 0; i < times; ++i) append_checked(runtime, repeated, value.as_text());
    return make_string(runtime, std::move(repeated), value.as_string().markup);
  }
  const auto& items = value.as_sequence().items;
  std::vector<Value> repeated;
  for (Integer i = 0; i < times && !items.empty(); ++i) {
    runtime.charge_steps(static_cast<int64_t>(items.size()));
    runtime.charge_bytes(items.size() * sizeof(Value));
    repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return Value::sequence(std::move(repeated), value.as_sequence().flavor);
}

bool is_concatenable(const Value& value) {
  return value.is_sequence() && value.as_sequence().flavor <= Sequence::Flavor::tuple;
}

void append_escaped(std::string& out, std::string_view run) {
  for (const char c : run) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
}

}  // namespace

bool is_equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge_steps(1);
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_sequence() && b.is_sequence()) return sequences_equal(runtime, a.as_sequence(), b.as_sequence());
  if (a.is_dict() && b.is_dict()) return dicts_equal(runtime, a.as_dict(), b.as_dict());
  if (a.is_string() && b.is_string() && a.as_text().size() == b.as_text().size()) charge_comparison(runtime, a, b);
  return keys_equal(a, b);
}

bool is_less(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge_steps(1);
  if (a.is_integral() && b.is_integral()) return a.as_integral() < b.as_integral();
  if (a.is_number() && b.is_number()) return a.as_number() < b.as_number();
  // Byte order of UTF-8 is the order of code points.
  if (a.is_string() && b.is_string()) {
    charge_comparison(runtime, a, b);
    return a.as_text().bytes() < b.as_text().bytes();
  }
  if (!is_concatenable(a) || !is_concatenable(b) || a.as_sequence().flavor != b.as_sequence().flavor) {
    fail_types("<", a, b);
  }
  const auto& left = a.as_sequence().items;
  const auto& right = b.as_sequence().items;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!is_equal(runtime, left[i], right[i])) return is_less(runtime, left[i], right[i]);
  }
  return left.size() < right.size();
}

bool contains(Runtime& runtime, const Value& container, const Value& element) {
  if (container.is_string()) {
    if (!element.is_string()) fail("'in' of a string needs a string on its left, not '{}'", element.type_name());
    runtime.charge_steps(static_cast<int64_t>(container.as_text().size() / 64));
    return container.as_text().bytes().find(element.as_text().bytes()) != std::string::npos;
  }
  if (container.is_dict()) return container.as_dict().find(element) != nullptr;
  if (container.is_sequence()) {
    for (const Value& item : container.as_sequence().items) {
      if (is_equal(runtime, item, element)) return true;
    }
    return false;
  }
  for (const Value& item : elements_of(runtime, container)) {
    if (is_equal(runtime, item, element)) return true;
  }
  return false;
}

bool compare(Runtime& runtime, Comparison comparison, const Value& left, const Value& right) {
  const bool has_nan = (left.kind() == Value::Kind::real && std::isnan(left.as_real())) ||
                       (right.kind() == Value::Kind::real && std::isnan(right.as_real()));
  switch (comparison) {
    case Comparison::equal:
      return is_equal(runtime, left, right);
    case Comparison::not_equal:
      return !is_equal(runtime, left, right);
    case Comparison::less:
      return is_less(runtime, left, right);
    case Comparison::less_equal:
      return !is_less(runtime, right, left) && !has_nan;
    case Comparison::greater:
      return is_less(runtime, right, left);
    case Comparison::greater_equal:
      return !is_less(runtime, left, right) && !has_nan;
    case Comparison::in:
      return contains(runtime, right, left);
    case Comparison::not_in:
      return !contains(runtime, right, left);
  }
  return false;
}

Value apply_unary(UnaryOperator op, const Value& operand) {
  if (op == UnaryOperator::logical_not) return Value::boolean(!operand.truthy());
  if (!operand.is_number()) fail_types(op == UnaryOperator::negate ? "unary -" : "unary +", operand, operand);
  if (operand.kind() == Value::Kind::real) {
    return op == UnaryOperator::negate ? Value::real(-operand.as_real()) : operand;
  }
  if (op == UnaryOperator::plus) return Value::integer(operand.as_integral());
  return integer_arithmetic(BinaryOperator::subtract, 0, operand.as_integral());
}

Value apply_binary(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return integer_arithmetic(op, left.as_integral(), right.as_integral());
  if (left.is_number() && right.is_number()) return real_arithmetic(op, left.as_number(), right.as_number());
  if (op == BinaryOperator::add) {
    if (left.is_string() && right.is_string()) return add_strings(runtime, left, right);
    if (is_concatenable(left) && is_concatenable(right) && left.as_sequence().flavor == right.as_sequence().flavor) {
      return add_sequences(runtime, left, right);
    }
  }
  if (op == BinaryOperator::multiply) {
    if ((left.is_string() || is_concatenable(left)) && right.is_integral()) {
      return repeat(runtime, left, right.as_integral());
    }
    if (left.is_integral() && (right.is_string() || is_concatenable(right))) {
      return repeat(runtime, right, left.as_integral());
    }
  }
  if (op == BinaryOperator::modulo && left.is_string()) return format_percent(runtime, left, right);
  fail_types(symbol_of(op), left, right);
}

Text escape_html(Runtime& runtime, const Value& value) {
  const Text text = to_text(runtime, value);
  if (value.is_string() && value.as_string().markup) return text;
  Text result;
  text.for_each_run([&](std::string_view run, bool trusted) {
    std::string escaped;
    append_escaped(escaped, run);
    append_checked(runtime, result, escaped, trusted);
  });
  return result;
}

}  // namespace tidemill::jinja
