// Template source cut into tokens, with Jinja's rules for white space around tags.
//
// trim_blocks and lstrip_blocks are on: the newline after a block tag and the blanks before one on its line are
// dropped;
// "-" strips all white space on its side, "+" keeps it. Newlines become "\n", and one at the end of the source is
// dropped. Comments and raw blocks do not appear as tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace tidemill::jinja {

struct Token {
  enum class Kind : uint8_t {
    data,
    output_begin,
    output_end,
    tag_begin,
    tag_end,
    name,
    string,
    number,
    punctuation,  // operators and brackets; text is the operator
    end
  };
  Kind kind = Kind::end;
  int line = 1;
  std::string text;  // the characters of data, the unescaped string, the name or the operator
  Value number;
};

// Throws Fault with the line on malformed source. The last token is `end`.
std::vector<Token> tokenize(std::string_view source);

}  // namespace tidemill::jinja
