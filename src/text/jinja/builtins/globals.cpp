// The global functions: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <ctime>

#include "text/chat_template.h"
#include "text/jinja/builtins/callables.h"
#include "text/jinja/print.h"

namespace tidemill::jinja {
namespace {

constexpr Integer max_range = 100000;  // the sandbox of Jinja2 has the same limit

Value make_range(Runtime& runtime, const Arguments& arguments) {
  const Parameters parameters("range", arguments, {"start", "stop", "step"});
  const bool only_stop = !parameters.given(1);
  const Integer start = only_stop ? 0 : parameters.integer(0);
  const Integer stop = parameters.integer(only_stop ? 0 : 1);
  const Integer step = parameters.integer_or(2, 1);
  if (step == 0) fail("the step of range() is zero");
  const Integer distance = step > 0 ? stop - start : start - stop;
  const Integer stride = step > 0 ? step : -step;
  const Integer count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (count > max_range) fail("range() is too large, the limit is {} numbers", static_cast<int64_t>(max_range));
  runtime.charge_steps(static_cast<int64_t>(count));
  runtime.charge_bytes(static_cast<size_t>(count) * sizeof(Value));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (Integer i = 0; i < count; ++i) items.push_back(Value::integer(start + i * step));
  return Value::sequence(std::move(items), Sequence::Flavor::range);
}

Dict dict_from(Runtime& runtime, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) fail("dict() takes at most one argument without a name");
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
    dict = arguments.positional[0].as_dict();
    runtime.charge_steps(static_cast<int64_t>(dict.size()));
    runtime.charge_bytes(dict.size() * sizeof(Dict::Entry));
  } else if (!arguments.positional.empty()) {
    for (const Value& pair : elements_of(runtime, arguments.positional[0])) {
      std::vector<Value> parts = elements_of(runtime, pair);
      if (parts.size() != 2) fail("dict() needs pairs, but got an element of length {}", parts.size());
      dict.set(std::move(parts[0]), std::move(parts[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::literal(name), value);
  return dict;
}

Value make_dict(Runtime& runtime, const Arguments& arguments) {
  return Value::dict(dict_from(runtime, arguments));
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
  auto* made = runtime.make<Namespace>();
  made->attributes = dict_from(runtime, arguments);
  return Value::object(made);
}

Value make_cycler(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("cycler() needs at least one value");
  return Value::object(runtime.make<Cycler>(arguments.positional));
}

Value make_joiner(Runtime& runtime, const Arguments& arguments) {
  const Parameters parameters("joiner", arguments, {"sep"});
  return Value::object(runtime.make<Joiner>(parameters.given(0) ? *parameters.optional(0) : Value::literal(", ")));
}

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
  const Parameters parameters("raise_exception", arguments, {"message"});
  throw Fault{to_text(runtime, parameters.required(0)).bytes(), true};
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return parts;
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
  const Parameters parameters("strftime_now", arguments, {"format"});
  const Text& format = parameters.text(0);
  constexpr size_t max_format_bytes = 256;
  if (format.size() > max_format_bytes) fail("the format of strftime_now() has more than {} bytes", max_format_bytes);
  const std::tm now = runtime.options().now ? runtime.options().now() : local_now();
  char buffer[16 * max_format_bytes];
  // The blank in front tells an empty result from a buffer that is too small.
  const size_t size = std::strftime(buffer, sizeof(buffer), (" " + format.bytes()).c_str(), &now);
  if (size == 0) fail("the result of strftime_now() is too long");
  bool trusted = true;
  format.for_each_run([&](std::string_view, bool run_trusted) { trusted = trusted && run_trusted; });
  return make_string(runtime, Text(std::string(buffer + 1, size - 1), trusted));
}

struct Row {
  std::string_view name;
  Function function;
};
constexpr Row globals[] = {{"range", make_range},         {"dict", make_dict},     {"namespace", make_namespace},
                           {"cycler", make_cycler},       {"joiner", make_joiner}, {"raise_exception", raise_exception},
                           {"strftime_now", strftime_now}};

}  // namespace

Function find_global(std::string_view name) {
  for (const Row& row : globals) {
    if (row.name == name) return row.function;
  }
  return nullptr;
}

}  // namespace tidemill::jinja
