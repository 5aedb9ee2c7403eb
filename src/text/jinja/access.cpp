// Items, attributes and slices of values.
#include <algorithm>

#include "text/jinja/builtins/callables.h"
#include "text/jinja/loop_state.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

// The element at a Python index (negative from the end), if there is one.
std::optional<size_t> position_of(Integer index, size_t length) {
  if (index < 0) index += static_cast<Integer>(length);
  if (index < 0 || index >= static_cast<Integer>(length)) return {};
  return static_cast<size_t>(index);
}

Value character_at(Runtime& runtime, const String& string, size_t index) {
  const std::string_view bytes = string.text.view();
  const bool is_ascii = string.num_code_points == bytes.size();
  if (!is_ascii) runtime.charge_steps(static_cast<int64_t>(index / 64));
  const size_t begin = is_ascii ? index : offset_of_code_point(bytes, index);
  return make_string(runtime, string.text.slice(begin, begin + code_point_at(bytes, begin).size_bytes), string.markup);
}

std::optional<Value> find_item(Runtime& runtime, const Value& object, const Value& index) {
  if (object.is_dict()) {
    const Value* found = object.as_dict().find(index);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (!index.is_integral()) return {};
  if (object.is_sequence() && object.as_sequence().indexable()) {
    const auto& items = object.as_sequence().items;
    const auto position = position_of(index.as_integral(), items.size());
    return position ? std::optional<Value>(items[*position]) : std::nullopt;
  }
  if (object.is_string()) {
    const auto position = position_of(index.as_integral(), object.as_string().num_code_points);
    if (position) return character_at(runtime, object.as_string(), *position);
  }
  return {};
}

Value cycler_next(Runtime&, const Value& self, const Arguments&) {
  auto* cycler = self.as<Cycler>();
  Value item = cycler->items[cycler->position];
  cycler->position = (cycler->position + 1) % cycler->items.size();
  return item;
}

Value cycler_reset(Runtime&, const Value& self, const Arguments&) {
  self.as<Cycler>()->position = 0;
  return Value();
}

std::optional<Value> find_object_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (const auto* space = object.as<Namespace>()) {
    const Value* found = space->attributes.find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (auto* loop = object.as<LoopState>()) return loop->attribute(runtime, name);
  if (const auto* cycler = object.as<Cycler>()) {
    if (name == "current") return cycler->items[cycler->position];
    if (name == "next") return Value::object(runtime.make<BoundMethod>(object, cycler_next));
    if (name == "reset") return Value::object(runtime.make<BoundMethod>(object, cycler_reset));
  }
  return {};
}

std::optional<Value> find_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.kind() == Value::Kind::object) return find_object_attribute(runtime, object, name);
  if (object.is_sequence() && object.as_sequence().is_group) {
    if (name == "grouper") return object.as_sequence().items[0];
    if (name == "list") return object.as_sequence().items[1];
  }
  const Method method = object.is_string() ? find_string_method(name) : find_container_method(object, name);
  if (method == nullptr) return {};
  return Value::object(runtime.make<BoundMethod>(object, method));
}

Value missing(Runtime& runtime, const Value& object, const Value& name) {
  if (object.is_undefined()) throw Fault{object.undefined_message()};
  if (name.is_string() && is_forbidden_method(object, name.as_text().view())) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name.as_text().view(), object.type_name()));
  }
  constexpr size_t max_shown_bytes = 80;
  std::string shown = to_text(runtime, name).bytes();
  if (shown.size() > max_shown_bytes) shown.resize(offset_of_code_point(shown, max_shown_bytes / 4));
  if (object.is_none()) return Value::undefined(fmt::format("'None' has no attribute '{}'", shown));
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", object.type_name(), shown));
}

// Python's slice.indices: the positions that a slice of `length` elements visits.
struct SliceRange {
  Integer start, step, count;
};

SliceRange resolve_slice(const SliceBounds& bounds, size_t length_of_object) {
  const Integer length = static_cast<Integer>(length_of_object);
  const Integer step = bounds.step.value_or(1);
  if (step == 0) fail("the step of a slice is zero");
  const Integer lowest = step < 0 ? -1 : 0;
  const Integer highest = step < 0 ? length - 1 : length;
  const auto clamp = [&](std::optional<Integer> bound, Integer fallback) {
    if (!bound) return fallback;
    return std::clamp(*bound < 0 ? *bound + length : *bound, lowest, highest);
  };
  const Integer start = clamp(bounds.start, step < 0 ? highest : lowest);
  const Integer stop = clamp(bounds.stop, step < 0 ? lowest : highest);
  const Integer distance = step < 0 ? start - stop : stop - start;
  const Integer stride = step < 0 ? -step : step;
  return {start, step, distance <= 0 ? 0 : (distance - 1) / stride + 1};
}

Value slice_string(Runtime& runtime, const Value& object, const SliceRange& range) {
  const String& string = object.as_string();
  if (range.step == 1) {
    const size_t begin = offset_of_code_point(string.text.view(), static_cast<size_t>(range.start));
    const size_t size = offset_of_code_point(string.text.view().substr(begin), static_cast<size_t>(range.count));
    return make_string(runtime, string.text.slice(begin, begin + size), string.markup);
  }
  std::vector<size_t> offsets;
  for (size_t offset = 0; offset < string.text.size();) {
    offsets.push_back(offset);
    offset += code_point_at(string.text.view(), offset).size_bytes;
  }
  Text picked;
  for (Integer i = 0; i < range.count; ++i) {
    const size_t offset = offsets[static_cast<size_t>(range.start + i * range.step)];
    picked.append(string.text, offset, offset + code_point_at(string.text.view(), offset).size_bytes);
  }
  return make_string(runtime, std::move(picked), string.markup);
}

}  // namespace

Value get_item(Runtime& runtime, const Value& object, const Value& index) {
  if (auto found = find_item(runtime, object, index)) return *std::move(found);
  if (index.is_string()) {
    if (auto found = find_attribute(runtime, object, index.as_text().view())) return *std::move(found);
  }
  return missing(runtime, object, index);
}

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (auto found = find_attribute(runtime, object, name)) return *std::move(found);
  if (object.is_dict() && !is_forbidden_method(object, name)) {
    if (const Value* found = object.as_dict().find(name)) return *found;
  }
  return missing(runtime, object, Value::literal(name));
}

Value get_slice(Runtime& runtime, const Value& object, const SliceBounds& bounds) {
  if (object.is_undefined()) throw Fault{object.undefined_message()};
  if (object.is_string()) {
    runtime.charge_steps(static_cast<int64_t>(object.as_text().size() / 64));
    return slice_string(runtime, object, resolve_slice(bounds, object.as_string().num_code_points));
  }
  if (!object.is_sequence() || !object.as_sequence().indexable()) {
    return Value::undefined(fmt::format("'{} object' cannot be sliced", object.type_name()));
  }
  const Sequence& sequence = object.as_sequence();
  const SliceRange range = resolve_slice(bounds, sequence.items.size());
  runtime.charge_steps(static_cast<int64_t>(range.count));
  runtime.charge_bytes(static_cast<size_t>(range.count) * sizeof(Value));
  std::vector<Value> picked;
  picked.reserve(static_cast<size_t>(range.count));
  for (Integer i = 0; i < range.count; ++i) {
    picked.push_back(sequence.items[static_cast<size_t>(range.start + i * range.step)]);
  }
  return Value::sequence(std::move(picked), sequence.flavor);
}

}  // namespace tidemill::jinja
