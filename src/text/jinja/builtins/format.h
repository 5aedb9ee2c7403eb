// Python's two ways to fill a pattern: "%s" % values and "{}".format(values).
#pragma once

#include "text/jinja/builtins/arguments.h"

namespace tidemill::jinja {

// `values` is a tuple, a dictionary for %(name)s, or one value.
Value format_percent(Runtime& runtime, const Value& pattern, const Value& values);
Value format_braces(Runtime& runtime, const Value& pattern, const Arguments& arguments);

}  // namespace tidemill::jinja
