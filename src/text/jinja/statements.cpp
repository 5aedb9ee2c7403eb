// The statement half of the evaluator: scopes, loops, macros, output.
#include <algorithm>

#include "text/jinja/builtins/callables.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace tidemill::jinja {

// Opens a scope inside `parent` and makes it current; closes it at the end of the C++ block. A scope that a macro was
// defined in is kept.
class Evaluator::ScopeGuard {
 public:
  ScopeGuard(Evaluator& evaluator, Scope* parent)
      : evaluator_(evaluator), outer_(evaluator.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    evaluator.scope_ = scope_.get();
  }
  ~ScopeGuard() {
    evaluator_.scope_ = outer_;
    if (scope_->captured) evaluator_.kept_scopes_.push_back(std::move(scope_));
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Evaluator& evaluator_;
  Scope* outer_;
  std::unique_ptr<Scope> scope_;
};

Text Evaluator::run() {
  execute(template_.body);
  return std::move(output_);
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  const Runtime::Level level(runtime_);
  for (const Statement& statement : body) {
    runtime_.charge_steps(1);
    const Flow flow = std::visit([this](const auto& node) { return execute_node(node); }, statement.node);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

void Evaluator::write(const Text& text) {
  append_checked(runtime_, *out_, text);
}

Evaluator::Flow Evaluator::execute_node(const RawText& node) {
  write(node.text);
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute_node(const Output& node) {
  const Value value = evaluate(*node.value);
  if (value.is_string()) {
    write(value.as_text());
  } else {
    write(to_text(runtime_, value));
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute_node(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (evaluate(*condition).truthy()) return execute(body);
  }
  return execute(node.otherwise);
}

Evaluator::Flow Evaluator::execute_node(const For& node) {
  run_loop(node, evaluate(*node.iterable), 1);
  return Flow::normal;
}

std::vector<Value> Evaluator::filtered_elements(const For& node, const Value& iterable) {
  std::vector<Value> elements = elements_of(runtime_, iterable);
  if (node.condition == nullptr) return elements;
  std::vector<Value> kept;
  for (Value& element : elements) {
    const ScopeGuard scope(*this, scope_);
    assign(node.target, element);
    if (evaluate(*node.condition).truthy()) kept.push_back(std::move(element));
  }
  return kept;
}

void Evaluator::run_loop(const For& node, const Value& iterable, int depth) {
  std::vector<Value> elements = filtered_elements(node, iterable);
  if (elements.empty()) {
    const ScopeGuard scope(*this, scope_);
    execute(node.otherwise);
    return;
  }
  auto* loop = runtime_.make<LoopState>(std::move(elements), depth, &node, scope_);
  if (node.recursive) {
    for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  }
  for (size_t i = 0; i < loop->num_items; ++i) {
    loop->index = i;
    const ScopeGuard scope(*this, scope_);
    scope_->set(template_.well_known.loop, Value::object(loop));
    assign(node.target, loop->items[i]);
    if (execute(node.body) == Flow::break_loop) break;
  }
  loop->items = {};
}

Value Evaluator::call_loop(const LoopState& loop, const Arguments& arguments) {
  if (!loop.statement->recursive) fail("loop() can only be called in a recursive loop");
  const Parameters parameters("loop", arguments, {"iterable"});
  const Runtime::Level level(runtime_);
  Text text;
  Text* const outer_out = std::exchange(out_, &text);
  Scope* const outer_scope = std::exchange(scope_, loop.outer);
  run_loop(*loop.statement, parameters.required(0), loop.depth + 1);
  scope_ = outer_scope;
  out_ = outer_out;
  return make_string(runtime_, std::move(text));
}

void Evaluator::assign(const Target& target, Value value) {
  if (target.is_tuple) {
    std::vector<Value> parts = elements_of(runtime_, value);
    if (parts.size() != target.elements.size()) {
      fail("cannot unpack {} values into {} names", parts.size(), target.elements.size());
    }
    for (size_t i = 0; i < parts.size(); ++i) assign(target.elements[i], std::move(parts[i]));
    return;
  }
  if (target.namespace_attribute.empty()) return scope_->set(target.symbol, std::move(value));
  auto* space = evaluate_node(NameReference{target.symbol}).as<Namespace>();
  if (space == nullptr) fail("an attribute can only be assigned on a namespace object");
  runtime_.charge_bytes(sizeof(Dict::Entry));
  space->attributes.set(Value::literal(target.namespace_attribute), std::move(value));
}

Evaluator::Flow Evaluator::execute_node(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::normal;
}

Value Evaluator::captured_text(const Body& body) {
  Text text;
  Text* const outer_out = std::exchange(out_, &text);
  const ScopeGuard scope(*this, scope_);
  execute(body);
  out_ = outer_out;
  return make_string(runtime_, std::move(text));
}

Evaluator::Flow Evaluator::execute_node(const SetBlock& node) {
  Value value = captured_text(node.body);
  if (node.filter != nullptr) value = apply_filter(*node.filter, value);
  assign(node.target, std::move(value));
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute_node(const FilterBlock& node) {
  const Value body = captured_text(node.body);
  write(to_text(runtime_, apply_filter(*node.filter, body)));
  return Flow::normal;
}

MacroObject* Evaluator::make_macro(const MacroDefinition& definition) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
    runtime_.charge_bytes(sizeof(Scope));
  }
  return runtime_.make<MacroObject>(&definition, scope_);
}

Evaluator::Flow Evaluator::execute_node(const Macro& node) {
  scope_->set(node.symbol, Value::object(make_macro(*node.definition)));
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute_node(const CallBlock& node) {
  const auto& invocation = std::get<Call>(node.call->node);
  const Value callee = evaluate(*invocation.callee);
  Arguments arguments = evaluate_arguments(invocation.arguments);
  arguments.named.emplace_back("caller", Value::object(make_macro(*node.caller)));
  write(to_text(runtime_, call(callee, std::move(arguments))));
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute_node(const With& node) {
  std::vector<Value> values;
  for (const auto& binding : node.bindings) values.push_back(evaluate(*binding.second));
  const ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(node.bindings[i].first, std::move(values[i]));
  return execute(node.body);
}

Evaluator::Flow Evaluator::execute_node(const Generation& node) {
  const ScopeGuard scope(*this, scope_);
  return execute(node.body);
}

Value Evaluator::call_macro(const MacroObject& macro, Arguments arguments) {
  const Runtime::Level level(runtime_);
  Text text;
  Text* const outer_out = std::exchange(out_, &text);
  const ScopeGuard scope(*this, macro.scope);
  bind_parameters(*macro.definition, arguments);
  execute(macro.definition->body);
  out_ = outer_out;
  return make_string(runtime_, std::move(text));
}

void Evaluator::bind_parameters(const MacroDefinition& definition, Arguments& arguments) {
  const auto take_named = [&arguments](const std::string& name) -> std::optional<Value> {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&name](const auto& named) { return named.first == name; });
    if (found == arguments.named.end()) return {};
    Value value = std::move(found->second);
    arguments.named.erase(found);
    return value;
  };
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const Parameter& parameter = definition.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(parameter.name);
    }
    if (!value && parameter.fallback != nullptr) value = evaluate(*parameter.fallback);
    if (!value) value = Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    scope_->set(parameter.symbol, *std::move(value));
  }
  if (definition.mentions_caller) {
    const auto caller = take_named("caller");
    if (caller) scope_->set(template_.well_known.caller, *caller);
  }
  const size_t num_parameters = definition.parameters.size();
  if (definition.mentions_varargs) {
    std::vector<Value> rest;
    for (size_t i = num_parameters; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
    scope_->set(template_.well_known.varargs, Value::sequence(std::move(rest), Sequence::Flavor::tuple));
  } else if (arguments.positional.size() > num_parameters) {
    fail("macro '{}' takes not more than {} argument(s)", definition.name, num_parameters);
  }
  if (definition.mentions_kwargs) {
    Dict rest;
    for (auto& [name, value] : arguments.named) rest.set(Value::literal(name), std::move(value));
    scope_->set(template_.well_known.kwargs, Value::dict(std::move(rest)));
  } else if (!arguments.named.empty()) {
    fail("macro '{}' takes no keyword argument '{}'", definition.name, arguments.named.front().first);
  }
}

}  // namespace tidemill::jinja
