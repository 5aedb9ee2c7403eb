// Texts that people write on a command line or in a configuration file, as numbers.
//
// Every parser takes the whole text or answers an Error that quotes it and says what is accepted; the caller adds the
// option's name.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace tidemill {

// Counts and sizes: "4096", "32k", "25.6k", "2GiB". A lower-case k, m, g or t multiplies by powers of 1000, an
// upper-case one by powers of 1024, as in vLLM; kB, MB, GB, TB are decimal, KiB, MiB, GiB, TiB binary.
Result<int64_t> parse_scaled(std::string_view text);

Result<double> parse_number(std::string_view text);

// "1.5" (seconds), "250ms", "30s", "5min", "2h". Not negative.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

// true/false, on/off, yes/no, 1/0, enabled/disabled, in any case.
Result<bool> parse_boolean(std::string_view text);

// "1.5 GiB", "512 KiB": three significant digits, for people.
std::string bytes_text(uint64_t bytes);

}  // namespace tidemill
