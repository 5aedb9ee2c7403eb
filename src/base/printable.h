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

}  // namespace tidemill
