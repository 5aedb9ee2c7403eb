// The parsed form of a template: expressions and statements as plain trees.
//
// Built by the parser, never changed afterwards, read by many renderings at once. Names are interned: a symbol is an
// index into Template::symbols. The parser bounds the height of every expression and the nesting of statements, so that
// recursion over the trees, their destruction included, needs little stack.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/builtins/tests.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace tidemill::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
using Symbol = int32_t;

enum class UnaryOperator : uint8_t { negate, plus, logical_not };
enum class BinaryOperator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

struct Literal {
  Value value;
};
struct NameReference {
  Symbol symbol;
};
struct ListLiteral {
  Sequence::Flavor flavor;  // list or tuple
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};
// a < b <= c: every neighbouring pair must hold.
struct ComparisonChain {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // otherwise may be null: undefined
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  // each bound may be null
};
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr all_positional, all_named;  // *args and **kwargs, or null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterCall {
  ExpressionPtr operand;  // null in a filter block or set block, whose body is the operand
  std::string name;
  Filter filter;  // null: unknown name inside a branch that may never run
  CallArguments arguments;
};
struct TestCall {
  ExpressionPtr operand;
  std::string name;
  Test test;  // null: as above
  CallArguments arguments;
};

struct Expression {
  std::variant<Literal, NameReference, ListLiteral, DictLiteral, Unary, Binary, Logical, ComparisonChain, Concatenation,
               Conditional, Attribute, Subscript, Slice, Call, FilterCall, TestCall>
      node;
  int line;
  int height;  // 1 + the highest operand
};

struct Statement;
using Body = std::vector<Statement>;

// What `set` and `for` assign to: a name, an attribute of a namespace, or a tuple of these.
struct Target {
  Symbol symbol = -1;
  std::string namespace_attribute;  // of the namespace held by `symbol`; empty for a plain name
  std::vector<Target> elements;
  bool is_tuple = false;
};

struct RawText {
  Text text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // or null
  Body body, otherwise;
  bool recursive = false;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // a chain of FilterCalls whose innermost operand is null; or null
  Body body;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct Parameter {
  Symbol symbol;
  std::string name;
  ExpressionPtr fallback;  // or null
};
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool mentions_varargs = false, mentions_kwargs = false, mentions_caller = false;
};
struct Macro {
  Symbol symbol;
  std::unique_ptr<MacroDefinition> definition;
};
struct CallBlock {
  ExpressionPtr call;  // a Call
  std::unique_ptr<MacroDefinition> caller;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Body body;
};
// A generation block: a scope of its own, otherwise its body.
struct Generation {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<RawText, Output, If, For, Set, SetBlock, FilterBlock, Macro, CallBlock, With, Generation, Break,
               Continue>
      node;
  int line;
};

// Symbols that the evaluator itself binds.
struct WellKnownSymbols {
  Symbol loop, caller, varargs, kwargs;
};

struct Template {
  Body body;
  std::vector<std::string> symbols;
  std::unordered_map<std::string, Symbol> symbol_of;
  WellKnownSymbols well_known;

  Symbol intern(const std::string& name) {
    const auto [it, added] = symbol_of.emplace(name, static_cast<Symbol>(symbols.size()));
    if (added) symbols.push_back(name);
    return it->second;
  }
};

}  // namespace tidemill::jinja
