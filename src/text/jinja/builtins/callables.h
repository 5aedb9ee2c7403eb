// Objects that a template can call, and the mutable ones it can hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/builtins/arguments.h"

namespace tidemill::jinja {

// The result of namespace(); the only thing `set x.y = z` can change.
class Namespace : public Object {
 public:
  const char* type_name() const override { return "Namespace"; }
  Dict attributes;
};

// A global function such as range.
using Function = Value (*)(Runtime& runtime, const Arguments& arguments);
class BuiltinFunction : public Object {
 public:
  explicit BuiltinFunction(Function function) : function(function) {}
  const char* type_name() const override { return "function"; }
  Function function;
};

// "abc".split, {}.get: a method with the value it belongs to.
using Method = Value (*)(Runtime& runtime, const Value& self, const Arguments& arguments);
class BoundMethod : public Object {
 public:
  BoundMethod(Value self, Method method) : self(std::move(self)), method(method) {}
  const char* type_name() const override { return "builtin_function_or_method"; }
  Value self;
  Method method;
};

// cycler(...) and joiner(...).
class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items(std::move(items)) {}
  const char* type_name() const override { return "Cycler"; }
  std::vector<Value> items;
  size_t position = 0;
};
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator(std::move(separator)) {}
  const char* type_name() const override { return "Joiner"; }
  Value separator;
  bool used = false;
};

// Null for a name that the type has no method for, or that the sandbox forbids.
Method find_string_method(std::string_view name);
Method find_container_method(const Value& self, std::string_view name);
// Names like "append" that exist in Python but change their object.
bool is_forbidden_method(const Value& self, std::string_view name);

// range, dict, namespace, raise_exception, ...; null for an unknown name.
Function find_global(std::string_view name);

}  // namespace tidemill::jinja
