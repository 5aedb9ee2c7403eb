// The filters of the language ({{ value | name(arguments) }}), by name.
#pragma once

#include <string_view>

#include "text/jinja/builtins/arguments.h"

namespace tidemill::jinja {

// May consume generators among its arguments; fails (throws Fault) on values it cannot take.
using Filter = Value (*)(Runtime& runtime, const Value& operand, const Arguments& arguments);

// Null for an unknown name.
Filter find_filter(std::string_view name);

// The parts of the table; find_filter searches both.
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);

}  // namespace tidemill::jinja
