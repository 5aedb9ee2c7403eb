// The tests of the language ({{ value is name(arguments) }}), by name.
#pragma once

#include <string_view>

#include "text/jinja/builtins/arguments.h"

namespace tidemill::jinja {

using Test = bool (*)(Runtime& runtime, const Value& operand, const Arguments& arguments);

// Null for an unknown name.
Test find_test(std::string_view name);

}  // namespace tidemill::jinja
