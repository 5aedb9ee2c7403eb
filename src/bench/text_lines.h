// The lines of a text file, one after the other, with bounded length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace tidemill {

// Calls `use` with each line that has more than blanks in it, without its end (LF or CRLF) and without a byte order
// mark in front of the first, until `most` lines were used. An Error of `use` stops it and gets file and line number in
// front ("w.jsonl line 3: ..."); a file without any such line is an Error, too.
Result<void> for_each_line(const std::filesystem::path& path, int64_t most,
                           const std::function<Result<void>(std::string_view)>& use);

}  // namespace tidemill
