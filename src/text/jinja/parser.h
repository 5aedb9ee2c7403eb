// Tokens to tree, by the grammar of Jinja2.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/ast.h"

namespace tidemill::jinja {

// Throws Fault, whose message names the line. Takes at most max_source_bytes of valid UTF-8.
std::shared_ptr<const Template> parse_template(std::string_view source);

inline constexpr size_t max_source_bytes = size_t{1} << 20;
inline constexpr int max_expression_height = 400;  // nesting plus length of a chain such as a + b + c
inline constexpr int max_parse_depth = 120;        // blocks and brackets open at once

}  // namespace tidemill::jinja
