#include "text/jinja/builtins/tests.h"

#include <algorithm>

#include "text/jinja/builtins/callables.h"
#include "text/jinja/builtins/filters.h"
#include "text/jinja/builtins/text_functions.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

bool is_defined(Runtime&, const Value& value, const Arguments&) {
  return !value.is_undefined();
}
bool is_undefined(Runtime&, const Value& value, const Arguments&) {
  return value.is_undefined();
}
bool is_none(Runtime&, const Value& value, const Arguments&) {
  return value.is_none();
}
bool is_string(Runtime&, const Value& value, const Arguments&) {
  return value.is_string();
}
bool is_mapping(Runtime&, const Value& value, const Arguments&) {
  return value.is_dict();
}
bool is_number(Runtime&, const Value& value, const Arguments&) {
  return value.is_number();
}
bool is_integer(Runtime&, const Value& value, const Arguments&) {
  return value.kind() == Value::Kind::integer;
}
bool is_float(Runtime&, const Value& value, const Arguments&) {
  return value.kind() == Value::Kind::real;
}
bool is_boolean(Runtime&, const Value& value, const Arguments&) {
  return value.is_boolean();
}
bool is_true(Runtime&, const Value& value, const Arguments&) {
  return value.is_boolean() && value.as_boolean();
}
bool is_false(Runtime&, const Value& value, const Arguments&) {
  return value.is_boolean() && !value.as_boolean();
}
bool is_iterable_test(Runtime&, const Value& value, const Arguments&) {
  return is_iterable(value);
}
bool is_escaped(Runtime&, const Value& value, const Arguments&) {
  return value.is_string() && value.as_string().markup;
}

bool is_sequence(Runtime&, const Value& value, const Arguments&) {
  return value.is_string() || value.is_dict() || value.is_undefined() ||
         (value.is_sequence() && value.as_sequence().indexable());
}

bool is_callable(Runtime&, const Value& value, const Arguments&) {
  if (value.is_undefined()) return true;  // Python's Undefined has __call__
  return value.kind() == Value::Kind::object && value.as<Namespace>() == nullptr && value.as<Generator>() == nullptr &&
         value.as<Cycler>() == nullptr;
}

Integer remainder(const char* name, const Value& value, Integer divisor) {
  if (value.is_undefined()) throw Fault{value.undefined_message()};
  if (!value.is_integral()) fail("the test '{}' needs an integer, not '{}'", name, value.type_name());
  if (divisor == 0) fail("division by zero");
  return divisor == -1 ? 0 : value.as_integral() % divisor;
}

bool is_odd(Runtime&, const Value& value, const Arguments&) {
  return remainder("odd", value, 2) != 0;
}
bool is_even(Runtime&, const Value& value, const Arguments&) {
  return remainder("even", value, 2) == 0;
}
bool is_divisible_by(Runtime&, const Value& value, const Arguments& arguments) {
  return remainder("divisibleby", value, Parameters("divisibleby", arguments, {"num"}).integer(0)) == 0;
}

bool is_lower_test(Runtime& runtime, const Value& value, const Arguments&) {
  return value.is_string() && has_only_case(runtime, value.as_text(), is_lower);
}
bool is_upper_test(Runtime& runtime, const Value& value, const Arguments&) {
  return value.is_string() && has_only_case(runtime, value.as_text(), is_upper);
}

bool is_same_as(Runtime&, const Value& value, const Arguments& arguments) {
  return value.same_as(Parameters("sameas", arguments, {"other"}).required(0));
}

bool is_filter(Runtime&, const Value& value, const Arguments&) {
  return value.is_string() && find_filter(value.as_text().view()) != nullptr;
}
bool is_test(Runtime&, const Value& value, const Arguments&) {
  return value.is_string() && find_test(value.as_text().view()) != nullptr;
}

template <Comparison comparison>
bool compares(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return compare(runtime, comparison, value, Parameters("a comparison", arguments, {"other"}).required(0));
}

struct Row {
  std::string_view name;
  Test test;
};
constexpr Row tests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_none},
    {"string", is_string},
    {"mapping", is_mapping},
    {"sequence", is_sequence},
    {"iterable", is_iterable_test},
    {"number", is_number},
    {"integer", is_integer},
    {"float", is_float},
    {"boolean", is_boolean},
    {"true", is_true},
    {"false", is_false},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible_by},
    {"lower", is_lower_test},
    {"upper", is_upper_test},
    {"callable", is_callable},
    {"sameas", is_same_as},
    {"escaped", is_escaped},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compares<Comparison::in>},
    {"==", compares<Comparison::equal>},
    {"eq", compares<Comparison::equal>},
    {"equalto", compares<Comparison::equal>},
    {"!=", compares<Comparison::not_equal>},
    {"ne", compares<Comparison::not_equal>},
    {">", compares<Comparison::greater>},
    {"gt", compares<Comparison::greater>},
    {"greaterthan", compares<Comparison::greater>},
    {">=", compares<Comparison::greater_equal>},
    {"ge", compares<Comparison::greater_equal>},
    {"<", compares<Comparison::less>},
    {"lt", compares<Comparison::less>},
    {"lessthan", compares<Comparison::less>},
    {"<=", compares<Comparison::less_equal>},
    {"le", compares<Comparison::less_equal>},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(tests), std::end(tests), [name](const Row& row) { return row.name == name; });
  return found == std::end(tests) ? nullptr : found->test;
}

}  // namespace tidemill::jinja
