// The `loop` variable: where a for loop stands.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace tidemill::jinja {

struct Scope;

// Lives as long as the rendering, like every object, because a template may keep it; its items are let go when the loop
// ends, after which previtem and nextitem are undefined.
class LoopState : public Object {
 public:
  LoopState(std::vector<Value> items, int depth, const For* statement, Scope* outer)
      : items(std::move(items)), num_items(this->items.size()), depth(depth), statement(statement), outer(outer) {}
  const char* type_name() const override { return "LoopContext"; }

  std::optional<Value> attribute(Runtime& runtime, std::string_view name);

  std::vector<Value> items;
  size_t num_items;
  size_t index = 0;      // of the running iteration, from 0
  int depth;             // recursion of loop(...), from 1
  const For* statement;  // what loop(...) runs again, in the scope `outer`
  Scope* outer;
  std::vector<Value> last_changed;
  bool has_changed_before = false;
};

}  // namespace tidemill::jinja
