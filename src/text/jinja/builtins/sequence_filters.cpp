// Filters whose operand is a sequence or a mapping.
#include <algorithm>
#include <charconv>
#include <optional>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/builtins/tests.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

Value generator(Runtime& runtime, std::vector<Value> items) {
  runtime.charge_bytes(items.size() * sizeof(Value));
  return Value::object(runtime.make<Generator>(std::move(items)));
}

// "a.b.0" or 3, as filters name what they look at in each element.
class ElementKey {
 public:
  ElementKey() = default;
  explicit ElementKey(const Value& attribute) {
    if (attribute.is_none()) return;
    if (!attribute.is_string()) {
      path_.push_back(attribute);
      return;
    }
    std::string_view rest = attribute.as_text().view();
    while (true) {
      const size_t dot = rest.find('.');
      path_.push_back(step_of(rest.substr(0, dot)));
      if (dot == std::string_view::npos) break;
      rest.remove_prefix(dot + 1);
    }
  }

  bool is_whole() const { return path_.empty(); }
  Value of(Runtime& runtime, const Value& element) const {
    Value value = element;
    for (const Value& step : path_) value = get_item(runtime, value, step);
    return value;
  }

 private:
  static Value step_of(std::string_view part) {
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && part[0] != '-' && parsed.ptr == part.data() + part.size();
    return is_index ? Value::integer(index) : Value::literal(part);
  }

  std::vector<Value> path_;
};

Value without_case(Runtime& runtime, const Value& value) {
  return value.is_string() ? make_string(runtime, to_lower(value.as_text())) : value;
}

// Orders by comparison keys; several for sort(attribute="a,b").
using Keyed = std::pair<std::vector<Value>, Value>;

void sort_keyed(Runtime& runtime, std::vector<Keyed>& keyed, bool reverse) {
  const auto less = [&runtime](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.first.size(); ++i) {
      if (!is_equal(runtime, a.first[i], b.first[i])) return is_less(runtime, a.first[i], b.first[i]);
    }
    return false;
  };
  // Equal elements keep their order in both directions, as in Python.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(), less);
  if (reverse) std::reverse(keyed.begin(), keyed.end());
}

Value length(Runtime&, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("length", arguments, {});
  return Value::integer(static_cast<Integer>(length_of(operand)));
}

Value default_filter(Runtime&, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("default", arguments, {"default_value", "boolean"});
  const bool replaces = operand.is_undefined() || (parameters.flag_or(1, false) && !operand.truthy());
  if (!replaces) return operand;
  return parameters.given(0) ? *parameters.optional(0) : Value::literal("");
}

Value items(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("items", arguments, {});
  if (operand.is_undefined()) return generator(runtime, {});
  if (!operand.is_dict()) fail("items() needs a mapping, not '{}'", operand.type_name());
  std::vector<Value> pairs;
  runtime.charge_steps(static_cast<int64_t>(operand.as_dict().size()));
  runtime.charge_bytes(operand.as_dict().size() * sizeof(Sequence));
  for (const auto& [key, value] : operand.as_dict().entries()) {
    pairs.push_back(Value::sequence({key, value}, Sequence::Flavor::tuple));
  }
  return generator(runtime, std::move(pairs));
}

Value dict_sort(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!operand.is_dict()) fail("dictsort() needs a mapping, not '{}'", operand.type_name());
  const std::string by = parameters.given(1) ? parameters.text(1).bytes() : "key";
  if (by != "key" && by != "value") fail("dictsort() sorts by \"key\" or \"value\"");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : operand.as_dict().entries()) {
    const Value& compared = by == "key" ? key : value;
    keyed.push_back({{parameters.flag_or(0, false) ? compared : without_case(runtime, compared)},
                     Value::sequence({key, value}, Sequence::Flavor::tuple)});
  }
  runtime.charge_bytes(keyed.size() * sizeof(Sequence));
  sort_keyed(runtime, keyed, parameters.flag_or(2, false));
  std::vector<Value> sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.second));
  return Value::sequence(std::move(sorted));
}

Value sort(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<ElementKey> keys;
  if (parameters.given_some(2) && parameters.optional(2)->is_string()) {
    std::string_view rest = parameters.text(2).view();
    while (true) {
      const size_t comma = rest.find(',');
      keys.emplace_back(Value::literal(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    keys.emplace_back(parameters.given(2) ? *parameters.optional(2) : Value());
  }
  std::vector<Keyed> keyed;
  for (Value& element : elements_of(runtime, operand)) {
    std::vector<Value> compared;
    for (const ElementKey& key : keys) {
      const Value value = key.of(runtime, element);
      compared.push_back(parameters.flag_or(1, false) ? value : without_case(runtime, value));
    }
    keyed.push_back({std::move(compared), std::move(element)});
  }
  sort_keyed(runtime, keyed, parameters.flag_or(0, false));
  std::vector<Value> sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.second));
  return Value::sequence(std::move(sorted));
}

Value unique(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("unique", arguments, {"case_sensitive", "attribute"});
  const ElementKey key(parameters.given(1) ? *parameters.optional(1) : Value());
  Dict seen;
  std::vector<Value> kept;
  for (Value& element : elements_of(runtime, operand)) {
    Value compared = key.of(runtime, element);
    if (!parameters.flag_or(0, false)) compared = without_case(runtime, compared);
    if (seen.find(compared) != nullptr) continue;
    seen.set(std::move(compared), Value());
    kept.push_back(std::move(element));
  }
  return generator(runtime, std::move(kept));
}

template <bool wants_greatest>
Value extreme(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters(wants_greatest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const ElementKey key(parameters.given(1) ? *parameters.optional(1) : Value());
  std::optional<Value> best;
  Value best_key;
  for (Value& element : elements_of(runtime, operand)) {
    Value compared = key.of(runtime, element);
    if (!parameters.flag_or(0, false)) compared = without_case(runtime, compared);
    if (best && !(wants_greatest ? is_less(runtime, best_key, compared) : is_less(runtime, compared, best_key))) {
      continue;
    }
    best = std::move(element);
    best_key = std::move(compared);
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

Value join(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("join", arguments, {"d", "attribute"});
  const Text separator = parameters.given(0) ? to_text(runtime, *parameters.optional(0)) : Text();
  const ElementKey key(parameters.given(1) ? *parameters.optional(1) : Value());
  Text joined;
  bool first = true;
  for (const Value& element : elements_of(runtime, operand)) {
    if (!first) append_checked(runtime, joined, separator);
    first = false;
    append_checked(runtime, joined, to_text(runtime, key.is_whole() ? element : key.of(runtime, element)));
  }
  return make_string(runtime, std::move(joined));
}

Value first(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("first", arguments, {});
  if (auto* iterator = operand.as<Generator>()) {
    if (iterator->next < iterator->items.size()) return iterator->items[iterator->next++];
    return Value::undefined("No first item, sequence was empty.");
  }
  if (operand.is_sequence()) {
    const auto& elements = operand.as_sequence().items;
    return elements.empty() ? Value::undefined("No first item, sequence was empty.") : elements.front();
  }
  std::vector<Value> elements = elements_of(runtime, operand);
  return elements.empty() ? Value::undefined("No first item, sequence was empty.") : elements.front();
}

Value last(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("last", arguments, {});
  if (operand.kind() == Value::Kind::object) fail("'{}' object is not reversible", operand.type_name());
  if (operand.is_sequence()) {
    const auto& elements = operand.as_sequence().items;
    return elements.empty() ? Value::undefined("No last item, sequence was empty.") : elements.back();
  }
  std::vector<Value> elements = elements_of(runtime, operand);
  return elements.empty() ? Value::undefined("No last item, sequence was empty.") : elements.back();
}

Value list(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("list", arguments, {});
  return Value::sequence(elements_of(runtime, operand));
}

Value reverse(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("reverse", arguments, {});
  std::vector<Value> elements = elements_of(runtime, operand);
  std::reverse(elements.begin(), elements.end());
  if (!operand.is_string()) return generator(runtime, std::move(elements));
  Text reversed;
  for (const Value& character : elements) reversed.append(character.as_text());
  return make_string(runtime, std::move(reversed), operand.as_string().markup);
}

Value batch(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("batch", arguments, {"linecount", "fill_with"});
  const Integer size = parameters.integer(0);
  std::vector<Value> batches;
  std::vector<Value> current;
  for (Value& element : elements_of(runtime, operand)) {
    if (static_cast<Integer>(current.size()) == size) batches.push_back(Value::sequence(std::exchange(current, {})));
    current.push_back(std::move(element));
  }
  if (!current.empty()) {
    while (parameters.given_some(1) && static_cast<Integer>(current.size()) < size) {
      runtime.charge_steps(1);
      runtime.charge_bytes(sizeof(Value));
      current.push_back(*parameters.optional(1));
    }
    batches.push_back(Value::sequence(std::move(current)));
  }
  return generator(runtime, std::move(batches));
}

Value slice(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("slice", arguments, {"slices", "fill_with"});
  const Integer num_slices = parameters.integer(0);
  if (num_slices <= 0) fail("slice() needs a positive number of slices");
  const std::vector<Value> elements = elements_of(runtime, operand);
  const Integer base = static_cast<Integer>(elements.size()) / num_slices;
  const Integer num_longer = static_cast<Integer>(elements.size()) % num_slices;
  std::vector<Value> slices;
  auto next = elements.begin();
  for (Integer i = 0; i < num_slices; ++i) {
    runtime.charge_steps(1);
    runtime.charge_bytes(sizeof(Sequence));
    const auto end = next + static_cast<ptrdiff_t>(base + (i < num_longer ? 1 : 0));
    std::vector<Value> part(next, end);
    if (parameters.given_some(1) && i >= num_longer) part.push_back(*parameters.optional(1));
    slices.push_back(Value::sequence(std::move(part)));
    next = end;
  }
  return generator(runtime, std::move(slices));
}

Value group_by(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const ElementKey key(parameters.required(0));
  std::vector<Keyed> keyed;
  std::vector<std::pair<Value, std::vector<Value>>> groups;
  for (Value& element : elements_of(runtime, operand)) {
    Value value = key.of(runtime, element);
    if (value.is_undefined() && parameters.given(1)) value = *parameters.optional(1);
    Value compared = parameters.flag_or(2, false) ? value : without_case(runtime, value);
    keyed.push_back({{std::move(compared)}, Value::sequence({std::move(value), std::move(element)})});
  }
  sort_keyed(runtime, keyed, false);
  const Value* previous = nullptr;
  for (Keyed& entry : keyed) {
    const auto& pair = entry.second.as_sequence().items;
    if (previous == nullptr || !is_equal(runtime, *previous, entry.first[0])) groups.push_back({pair[0], {}});
    previous = &entry.first[0];
    groups.back().second.push_back(pair[1]);
  }
  std::vector<Value> result;
  for (auto& [grouper, members] : groups) {
    result.push_back(Value::group(grouper, Value::sequence(std::move(members))));
  }
  return Value::sequence(std::move(result));
}

Value sum(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Parameters parameters("sum", arguments, {"attribute", "start"});
  const ElementKey key(parameters.given(0) ? *parameters.optional(0) : Value());
  Value total = parameters.given(1) ? *parameters.optional(1) : Value::integer(0);
  for (const Value& element : elements_of(runtime, operand)) {
    const Value value = key.of(runtime, element);
    if (total.is_string() || value.is_string()) fail("sum() cannot add strings");
    total = apply_binary(runtime, BinaryOperator::add, total, value);
  }
  return total;
}

// The arguments of map, select and their kin after the first `count`.
Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<ptrdiff_t>(count));
  return rest;
}

std::string name_argument(const char* callee, const Arguments& arguments, size_t index) {
  if (index >= arguments.positional.size() || !arguments.positional[index].is_string()) {
    fail("{}() needs a name as its argument", callee);
  }
  return arguments.positional[index].as_text().bytes();
}

Value map_attribute(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  Value attribute;
  std::optional<Value> fallback;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      fallback = value;
    } else {
      fail("map() has no argument named '{}'", name);
    }
  }
  const ElementKey key(attribute);
  std::vector<Value> mapped;
  for (const Value& element : elements_of(runtime, operand)) {
    Value value = key.of(runtime, element);
    mapped.push_back(value.is_undefined() && fallback ? *fallback : std::move(value));
  }
  return generator(runtime, std::move(mapped));
}

Value map(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  // None and every other empty operand gives nothing, whatever the arguments, as in Jinja2.
  if (!operand.truthy()) return generator(runtime, {});
  if (arguments.positional.empty()) return map_attribute(runtime, operand, arguments);
  const std::string name = name_argument("map", arguments, 0);
  const Filter filter = find_filter(name);
  if (filter == nullptr) fail("no filter named '{}'", name);
  const Arguments rest = without_first(arguments, 1);
  const Runtime::Level level(runtime);
  std::vector<Value> mapped;
  for (const Value& element : elements_of(runtime, operand)) mapped.push_back(filter(runtime, element, rest));
  return generator(runtime, std::move(mapped));
}

template <bool by_attribute, bool keeps>
Value select(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  if (!operand.truthy()) return generator(runtime, {});
  constexpr size_t name_at = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) fail("selectattr() and rejectattr() need an attribute");
  const ElementKey key = by_attribute ? ElementKey(arguments.positional[0]) : ElementKey();
  Test test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > name_at) {
    const std::string name = name_argument("select", arguments, name_at);
    test = find_test(name);
    if (test == nullptr) fail("no test named '{}'", name);
    rest = without_first(arguments, name_at + 1);
  }
  std::vector<Value> kept;
  for (Value& element : elements_of(runtime, operand)) {
    const Value value = key.of(runtime, element);
    const bool passes = test == nullptr ? value.truthy() : test(runtime, value, rest);
    if (passes == keeps) kept.push_back(std::move(element));
  }
  return generator(runtime, std::move(kept));
}

Value attribute(Runtime& runtime, const Value& operand, const Arguments& arguments) {
  const Text& name = Parameters("attr", arguments, {"name"}).text(0);
  // Unlike x.name, the filter does not look at items.
  if (operand.is_dict() && get_attribute(runtime, Value::dict({}), name.view()).is_undefined()) {
    return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name.view().substr(0, 80)));
  }
  return get_attribute(runtime, operand, name.view());
}

struct Row {
  std::string_view name;
  Filter filter;
};
constexpr Row filters[] = {
    {"attr", attribute},
    {"batch", batch},
    {"count", length},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dict_sort},
    {"first", first},
    {"groupby", group_by},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"reverse", reverse},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(filters), std::end(filters), [name](const Row& row) { return row.name == name; });
  return found == std::end(filters) ? nullptr : found->filter;
}

}  // namespace tidemill::jinja
