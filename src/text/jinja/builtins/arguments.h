// The arguments of a call, and the way builtin functions take them apart.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace tidemill::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Matches arguments with the parameter names of a builtin, as Python does: by position first, then by name.
// Fails on surplus, unknown and doubled arguments. Views into the Arguments; both must outlive it.
class Parameters {
 public:
  Parameters(const char* callee, const Arguments& arguments, std::initializer_list<const char*> names);

  // Null where the caller gave nothing.
  const Value* optional(size_t index) const { return index < values_.size() ? values_[index] : nullptr; }
  bool given(size_t index) const { return optional(index) != nullptr; }
  // As given(), but none counts as nothing.
  bool given_some(size_t index) const { return given(index) && !optional(index)->is_none(); }
  const Value& required(size_t index) const;

  // These fail if the argument has another type, and on integers beyond +-2^100.
  const Text& text(size_t index) const;
  Integer integer(size_t index) const;
  Integer integer_or(size_t index, Integer fallback) const { return given(index) ? integer(index) : fallback; }
  // Python's truth of the argument.
  bool flag_or(size_t index, bool fallback) const { return given(index) ? optional(index)->truthy() : fallback; }

 private:
  const char* callee_;
  std::initializer_list<const char*> names_;
  std::vector<const Value*> values_;
};

}  // namespace tidemill::jinja
