#include "text/jinja/builtins/arguments.h"

namespace tidemill::jinja {

Parameters::Parameters(const char* callee, const Arguments& arguments, std::initializer_list<const char*> names)
    : callee_(callee), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    fail("{}() takes at most {} arguments, but {} were given", callee, names.size(), arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t index = 0;
    while (index < names.size() && name != names.begin()[index]) ++index;
    if (index == names.size()) fail("{}() has no argument named '{}'", callee, name);
    if (values_[index] != nullptr) fail("{}() got two values for its argument '{}'", callee, name);
    values_[index] = &value;
  }
}

const Value& Parameters::required(size_t index) const {
  if (!given(index)) fail("{}() needs its argument '{}'", callee_, names_.begin()[index]);
  return *values_[index];
}

const Text& Parameters::text(size_t index) const {
  const Value& value = required(index);
  if (!value.is_string()) {
    fail("{}() needs a string as its argument '{}', not '{}'", callee_, names_.begin()[index], value.type_name());
  }
  return value.as_text();
}

Integer Parameters::integer(size_t index) const {
  const Value& value = required(index);
  if (!value.is_integral()) {
    fail("{}() needs an integer as its argument '{}', not '{}'", callee_, names_.begin()[index], value.type_name());
  }
  // So far beyond any length, width or step that sums of a few of them fit into 128 bits.
  constexpr Integer far = Integer{1} << 100;
  if (value.as_integral() > far || value.as_integral() < -far) {
    fail("{}() got an integer above 2^100 as its argument '{}'", callee_, names_.begin()[index]);
  }
  return value.as_integral();
}

}  // namespace tidemill::jinja
