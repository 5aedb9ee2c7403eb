// Text from outside (a file's keys, a client's names) made fit to stand in one of our messages.
//
// The result is valid UTF-8 on one line: control characters and invalid bytes become \xNN. At most `limit_bytes` of the
// input are used; a longer one ends with "...".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tidemill {

std::string printable(std::string_view text, size_t limit_bytes = 80);

// Length of the UTF-8 character that starts at text[pos], or 0 where the bytes there are not valid UTF-8 (overlong
// forms, surrogates and code points above U+10FFFF are invalid).
size_t utf8_length_at(std::string_view text, size_t pos);

bool is_valid_utf8(std::string_view text);

}  // namespace tidemill
