#include "text/jinja/loop_state.h"

#include "text/jinja/builtins/callables.h"
#include "text/jinja/operators.h"

namespace tidemill::jinja {
namespace {

Value cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("loop.cycle() needs values to cycle through");
  return arguments.positional[self.as<LoopState>()->index % arguments.positional.size()];
}

Value changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  auto* loop = self.as<LoopState>();
  bool same = loop->has_changed_before && loop->last_changed.size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = is_equal(runtime, loop->last_changed[i], arguments.positional[i]);
  }
  loop->last_changed = arguments.positional;
  loop->has_changed_before = true;
  return Value::boolean(!same);
}

}  // namespace

std::optional<Value> LoopState::attribute(Runtime& runtime, std::string_view name) {
  const auto count = [](size_t value) { return Value::integer(static_cast<Integer>(value)); };
  if (name == "index") return count(index + 1);
  if (name == "index0") return count(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 >= num_items);
  if (name == "length") return count(num_items);
  if (name == "revindex") return count(num_items - index);
  if (name == "revindex0") return count(num_items - index - 1);
  if (name == "depth") return count(static_cast<size_t>(depth));
  if (name == "depth0") return count(static_cast<size_t>(depth - 1));
  if (name == "cycle") return Value::object(runtime.make<BoundMethod>(Value::object(this), cycle));
  if (name == "changed") return Value::object(runtime.make<BoundMethod>(Value::object(this), changed));
  if (name == "previtem") {
    if (index == 0 || index > items.size()) return Value::undefined("there is no previous item");
    return items[index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 >= items.size()) return Value::undefined("there is no next item");
    return items[index + 1];
  }
  return {};
}

}  // namespace tidemill::jinja
