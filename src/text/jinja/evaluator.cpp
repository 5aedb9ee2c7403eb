#include "text/jinja/evaluator.h"

#include <algorithm>

#include "text/jinja/builtins/callables.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace tidemill::jinja {

void Scope::set(Symbol symbol, Value value) {
  for (auto& [known, slot] : variables) {
    if (known == symbol) {
      slot = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

const Value* Scope::find(Symbol symbol) const {
  for (const auto& [known, value] : variables) {
    if (known == symbol) return &value;
  }
  return nullptr;
}

Value Evaluator::evaluate(const Expression& expression) {
  runtime_.charge_steps(1);
  const Runtime::Level level(runtime_);
  return std::visit([this](const auto& node) { return evaluate_node(node); }, expression.node);
}

Value Evaluator::evaluate_node(const NameReference& node) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* found = scope->find(node.symbol)) return *found;
  }
  const std::string& name = template_.symbols[static_cast<size_t>(node.symbol)];
  if (const Function function = find_global(name)) {
    return Value::object(runtime_.make<BuiltinFunction>(function));
  }
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Evaluator::evaluate_node(const ListLiteral& node) {
  runtime_.charge_bytes(sizeof(Sequence) + node.items.size() * sizeof(Value));
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& item : node.items) items.push_back(evaluate(*item));
  return Value::sequence(std::move(items), node.flavor);
}

Value Evaluator::evaluate_node(const DictLiteral& node) {
  runtime_.charge_bytes(sizeof(Dict) + node.entries.size() * sizeof(Dict::Entry));
  Dict dict;
  for (const auto& [key, value] : node.entries) {
    Value evaluated_key = evaluate(*key);
    dict.set(std::move(evaluated_key), evaluate(*value));
  }
  return Value::dict(std::move(dict));
}

Value Evaluator::evaluate_node(const Unary& node) {
  return apply_unary(node.op, evaluate(*node.operand));
}

Value Evaluator::evaluate_node(const Binary& node) {
  const Value left = evaluate(*node.left);
  return apply_binary(runtime_, node.op, left, evaluate(*node.right));
}

Value Evaluator::evaluate_node(const Logical& node) {
  Value left = evaluate(*node.left);
  return left.truthy() == node.is_and ? evaluate(*node.right) : left;
}

Value Evaluator::evaluate_node(const ComparisonChain& node) {
  Value left = evaluate(*node.first);
  for (const auto& [comparison, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!compare(runtime_, comparison, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_node(const Concatenation& node) {
  Text joined;
  for (const auto& part : node.parts) append_checked(runtime_, joined, to_text(runtime_, evaluate(*part)));
  return make_string(runtime_, std::move(joined));
}

Value Evaluator::evaluate_node(const Conditional& node) {
  if (evaluate(*node.condition).truthy()) return evaluate(*node.then);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Evaluator::evaluate_node(const Attribute& node) {
  return get_attribute(runtime_, evaluate(*node.object), node.name);
}

Value Evaluator::evaluate_node(const Subscript& node) {
  const Value object = evaluate(*node.object);
  return get_item(runtime_, object, evaluate(*node.index));
}

Value Evaluator::evaluate_node(const Slice& node) {
  const Value object = evaluate(*node.object);
  const auto bound = [this](const ExpressionPtr& expression) -> std::optional<Integer> {
    if (expression == nullptr) return {};
    const Value value = evaluate(*expression);
    if (value.is_none()) return {};
    if (value.is_undefined()) throw Fault{value.undefined_message()};
    if (!value.is_integral()) fail("slice bounds must be integers, not '{}'", value.type_name());
    // Far beyond any length, and safe to add to one.
    constexpr Integer far = Integer{1} << 62;
    return std::clamp(value.as_integral(), -far, far);
  };
  SliceBounds bounds;
  bounds.start = bound(node.start);
  bounds.stop = bound(node.stop);
  bounds.step = bound(node.step);
  return get_slice(runtime_, object, bounds);
}

Value Evaluator::evaluate_node(const Call& node) {
  const Value callee = evaluate(*node.callee);
  return call(callee, evaluate_arguments(node.arguments));
}

Value Evaluator::evaluate_node(const FilterCall& node) {
  const Value operand = evaluate(*node.operand);
  if (node.filter == nullptr) fail("no filter named '{}'", node.name);
  return node.filter(runtime_, operand, evaluate_arguments(node.arguments));
}

Value Evaluator::apply_filter(const Expression& expression, const Value& body) {
  const auto& node = std::get<FilterCall>(expression.node);
  const Runtime::Level level(runtime_);
  runtime_.charge_steps(1);
  const Value operand = node.operand == nullptr ? body : apply_filter(*node.operand, body);
  if (node.filter == nullptr) fail("no filter named '{}'", node.name);
  return node.filter(runtime_, operand, evaluate_arguments(node.arguments));
}

Value Evaluator::evaluate_node(const TestCall& node) {
  const Value operand = evaluate(*node.operand);
  if (node.test == nullptr) fail("no test named '{}'", node.name);
  return Value::boolean(node.test(runtime_, operand, evaluate_arguments(node.arguments)));
}

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments) {
  Arguments evaluated;
  evaluated.positional.reserve(arguments.positional.size());
  for (const auto& argument : arguments.positional) evaluated.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : arguments.named) evaluated.named.emplace_back(name, evaluate(*argument));
  if (arguments.all_positional != nullptr) {
    for (Value& value : elements_of(runtime_, evaluate(*arguments.all_positional))) {
      evaluated.positional.push_back(std::move(value));
    }
  }
  if (arguments.all_named != nullptr) {
    const Value names = evaluate(*arguments.all_named);
    if (!names.is_dict()) fail("** needs a mapping, not '{}'", names.type_name());
    for (const auto& [name, value] : names.as_dict().entries()) {
      if (!name.is_string()) fail("argument names must be strings, not '{}'", name.type_name());
      evaluated.named.emplace_back(name.as_text().bytes(), value);
    }
    runtime_.charge_steps(static_cast<int64_t>(names.as_dict().size()));
  }
  return evaluated;
}

Value Evaluator::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) throw Fault{callee.undefined_message()};
  if (const auto* method = callee.as<BoundMethod>()) return method->method(runtime_, method->self, arguments);
  if (const auto* function = callee.as<BuiltinFunction>()) return function->function(runtime_, arguments);
  if (const auto* macro = callee.as<MacroObject>()) return call_macro(*macro, std::move(arguments));
  if (const auto* loop = callee.as<LoopState>()) return call_loop(*loop, arguments);
  if (auto* joiner = callee.as<Joiner>()) {
    return std::exchange(joiner->used, true) ? joiner->separator : Value::literal("");
  }
  fail("'{}' object is not callable", callee.type_name());
}

}  // namespace tidemill::jinja
