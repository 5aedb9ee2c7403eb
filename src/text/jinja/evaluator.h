// Runs a parsed template: expressions to values, statements to the text of the prompt.
//
// One Evaluator per rendering, used by one thread. Names are looked up through a chain of scopes; loops, macros, call
// blocks, `with`, set and filter blocks and generation blocks open one, `if` does not. Every node costs a step and
// every nested evaluation a level of Runtime.
#pragma once

#include <memory>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/builtins/arguments.h"
#include "text/jinja/loop_state.h"

namespace tidemill::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> variables;
  bool captured = false;  // a macro refers to it, so it must outlive its block

  void set(Symbol symbol, Value value);
  const Value* find(Symbol symbol) const;
};

// A macro, or the `caller` of a call block, with the scope it was written in.
class MacroObject : public Object {
 public:
  MacroObject(const MacroDefinition* definition, Scope* scope) : definition(definition), scope(scope) {}
  const char* type_name() const override { return "Macro"; }
  const MacroDefinition* definition;
  Scope* scope;
};

class Evaluator {
 public:
  // Both must outlive the evaluator.
  Evaluator(const Template& tree, Runtime& runtime) : template_(tree), runtime_(runtime) {}

  void define(Symbol symbol, Value value) { root_.set(symbol, std::move(value)); }
  // The text of the whole template; throws Fault.
  Text run();

 private:
  enum class Flow : uint8_t { normal, break_loop, continue_loop };
  class ScopeGuard;

  Value evaluate(const Expression& expression);
  Value evaluate_node(const Literal& node) { return node.value; }
  Value evaluate_node(const NameReference& node);
  Value evaluate_node(const ListLiteral& node);
  Value evaluate_node(const DictLiteral& node);
  Value evaluate_node(const Unary& node);
  Value evaluate_node(const Binary& node);
  Value evaluate_node(const Logical& node);
  Value evaluate_node(const ComparisonChain& node);
  Value evaluate_node(const Concatenation& node);
  Value evaluate_node(const Conditional& node);
  Value evaluate_node(const Attribute& node);
  Value evaluate_node(const Subscript& node);
  Value evaluate_node(const Slice& node);
  Value evaluate_node(const Call& node);
  Value evaluate_node(const FilterCall& node);
  Value evaluate_node(const TestCall& node);
  Arguments evaluate_arguments(const CallArguments& arguments);
  // The operand of an innermost filter that has none is `body`.
  Value apply_filter(const Expression& expression, const Value& body);

  Value call(const Value& callee, Arguments arguments);
  Value call_macro(const MacroObject& macro, Arguments arguments);
  Value call_loop(const LoopState& loop, const Arguments& arguments);
  void bind_parameters(const MacroDefinition& definition, Arguments& arguments);

  Flow execute(const Body& body);
  Flow execute_node(const RawText& node);
  Flow execute_node(const Output& node);
  Flow execute_node(const If& node);
  Flow execute_node(const For& node);
  Flow execute_node(const Set& node);
  Flow execute_node(const SetBlock& node);
  Flow execute_node(const FilterBlock& node);
  Flow execute_node(const Macro& node);
  Flow execute_node(const CallBlock& node);
  Flow execute_node(const With& node);
  Flow execute_node(const Generation& node);
  Flow execute_node(const Break&) { return Flow::break_loop; }
  Flow execute_node(const Continue&) { return Flow::continue_loop; }

  void run_loop(const For& node, const Value& iterable, int depth);
  std::vector<Value> filtered_elements(const For& node, const Value& iterable);
  void assign(const Target& target, Value value);
  // The body's text as a value, in a scope of its own.
  Value captured_text(const Body& body);
  void write(const Text& text);
  MacroObject* make_macro(const MacroDefinition& definition);

  const Template& template_;
  Runtime& runtime_;
  Scope root_;
  Scope* scope_ = &root_;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  Text output_;
  Text* out_ = &output_;
};

}  // namespace tidemill::jinja
