// The methods of lists, tuples, ranges, dictionaries and numbers that the sandbox permits.
#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/builtins/callables.h"
#include "text/jinja/operators.h"

namespace tidemill::jinja {
namespace {

Value dict_get(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters parameters("get", arguments, {"key", "default"});
  const Value* found = self.as_dict().find(parameters.required(0));
  if (found != nullptr) return *found;
  return parameters.given(1) ? *parameters.optional(1) : Value();
}

template <Sequence::Flavor flavor>
Value dict_view(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("a dictionary view", arguments, {});
  const auto& entries = self.as_dict().entries();
  runtime.charge_steps(static_cast<int64_t>(entries.size()));
  runtime.charge_bytes(entries.size() * sizeof(Sequence));
  std::vector<Value> items;
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    if (flavor == Sequence::Flavor::keys) items.push_back(key);
    if (flavor == Sequence::Flavor::values) items.push_back(value);
    if (flavor == Sequence::Flavor::items) items.push_back(Value::sequence({key, value}, Sequence::Flavor::tuple));
  }
  return Value::sequence(std::move(items), flavor);
}

// Values are immutable, so that a copy is the value itself.
Value copy(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters parameters("copy", arguments, {});
  return self;
}

Value count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("count", arguments, {"value"});
  const Value& wanted = parameters.required(0);
  Integer total = 0;
  for (const Value& item : self.as_sequence().items) total += is_equal(runtime, item, wanted) ? 1 : 0;
  return Value::integer(total);
}

Value index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("index", arguments, {"value", "start", "stop"});
  const auto& items = self.as_sequence().items;
  const auto length = static_cast<Integer>(items.size());
  const auto bound = [&](size_t which, Integer fallback) {
    const Integer value = parameters.integer_or(which, fallback);
    return std::clamp<Integer>(value < 0 ? value + length : value, 0, length);
  };
  const Integer stop = bound(2, length);
  for (Integer i = bound(1, 0); i < stop; ++i) {
    if (is_equal(runtime, items[static_cast<size_t>(i)], parameters.required(0))) return Value::integer(i);
  }
  fail("the value is not in the {}", self.type_name());
}

Value is_integer(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters parameters("is_integer", arguments, {});
  return Value::boolean(std::isfinite(self.as_real()) && std::floor(self.as_real()) == self.as_real());
}

template <size_t size>
bool is_among(const std::array<std::string_view, size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Method find_container_method(const Value& self, std::string_view name) {
  if (self.is_dict()) {
    if (name == "get") return dict_get;
    if (name == "items") return dict_view<Sequence::Flavor::items>;
    if (name == "keys") return dict_view<Sequence::Flavor::keys>;
    if (name == "values") return dict_view<Sequence::Flavor::values>;
    if (name == "copy") return copy;
  }
  if (self.is_sequence() && self.as_sequence().indexable()) {
    if (name == "count") return count;
    if (name == "index") return index;
    if (name == "copy" && self.as_sequence().flavor == Sequence::Flavor::list) return copy;
  }
  if (self.kind() == Value::Kind::real && name == "is_integer") return is_integer;
  return nullptr;
}

bool is_forbidden_method(const Value& self, std::string_view name) {
  static constexpr std::array<std::string_view, 8> list_methods = {"append", "clear",  "extend",  "insert",
                                                                   "pop",    "remove", "reverse", "sort"};
  static constexpr std::array<std::string_view, 5> dict = {"clear", "pop", "popitem", "setdefault", "update"};
  if (name.starts_with("__")) return true;
  if (self.is_dict()) return is_among(dict, name);
  return self.is_sequence() && self.as_sequence().flavor == Sequence::Flavor::list && is_among(list_methods, name);
}

}  // namespace tidemill::jinja
