// Python's operators over template values. All fail (throw Fault) where Python raises.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace tidemill::jinja {

bool is_equal(Runtime& runtime, const Value& a, const Value& b);
// a < b, for numbers, strings and sequences of one kind.
bool is_less(Runtime& runtime, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& element);
bool compare(Runtime& runtime, Comparison comparison, const Value& left, const Value& right);

Value apply_unary(UnaryOperator op, const Value& operand);
Value apply_binary(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right);

// object[index] and object.name, undefined where there is nothing. Attributes that the sandbox forbids are undefined,
// too, so that only their use fails.
Value get_item(Runtime& runtime, const Value& object, const Value& index);
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
// object[start:stop:step]; null bounds are absent ones.
struct SliceBounds {
  std::optional<Integer> start, stop, step;
};
Value get_slice(Runtime& runtime, const Value& object, const SliceBounds& bounds);

// The text of a value as an HTML-safe one: &, <, >, ' and " escaped unless it is markup already.
Text escape_html(Runtime& runtime, const Value& value);

}  // namespace tidemill::jinja
