#include "cli/options/values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/printable.h"

namespace tidemill {
namespace {

struct NumberAndUnit {
  double number = 0;
  std::string_view unit;
};

Result<NumberAndUnit> split_unit(std::string_view text) {
  NumberAndUnit parts;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), parts.number);
  if (code != std::errc() || !std::isfinite(parts.number)) return error("'{}' is not a number", printable(text));
  parts.unit = text.substr(end - text.data());
  while (!parts.unit.empty() && parts.unit.front() == ' ') parts.unit.remove_prefix(1);
  return parts;
}

// The power of 1000 or 1024 that a unit means, or 0 for a unit that there is not.
double unit_factor(std::string_view unit) {
  if (unit.empty()) return 1;
  constexpr std::string_view letters = "kmgt";
  const size_t power = letters.find(static_cast<char>(std::tolower(static_cast<unsigned char>(unit[0]))));
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = unit.substr(1);
  const bool upper = std::isupper(static_cast<unsigned char>(unit[0])) != 0;
  if (rest.empty()) return std::pow(upper ? 1024.0 : 1000.0, power + 1);
  if (rest == "B" || rest == "b") return std::pow(1000.0, power + 1);
  if (rest == "iB" || rest == "ib" || rest == "i") return std::pow(1024.0, power + 1);
  return 0;
}

}  // namespace

Result<int64_t> parse_scaled(std::string_view text) {
  Result<NumberAndUnit> parts = split_unit(text);
  if (!parts) return parts.error();
  const double factor = unit_factor(parts->unit);
  if (factor == 0) {
    return error("'{}' has the unit '{}'; known are k, m, g, t (powers of 1000), K, M, G, T and KiB, MiB, GiB, TiB",
                 printable(text), printable(parts->unit));
  }
  const double value = parts->number * factor;
  if (std::abs(value) > 9e15) return error("'{}' is larger than 9e15", printable(text));
  if (value != std::floor(value)) return error("'{}' is not a whole number", printable(text));
  return static_cast<int64_t>(value);
}

Result<double> parse_number(std::string_view text) {
  Result<NumberAndUnit> parts = split_unit(text);
  if (!parts) return parts.error();
  if (!parts->unit.empty()) return error("'{}' is not a number", printable(text));
  return parts->number;
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  Result<NumberAndUnit> parts = split_unit(text);
  if (!parts) return parts.error();
  double factor = 0;
  if (parts->unit.empty() || parts->unit == "s") factor = 1000;
  if (parts->unit == "ms") factor = 1;
  if (parts->unit == "m" || parts->unit == "min") factor = 60e3;
  if (parts->unit == "h") factor = 3600e3;
  if (factor == 0) return error("'{}' is not a time; write seconds, or 250ms, 30s, 5min, 2h", printable(text));
  const double value = parts->number * factor;
  if (value < 0 || value > 1e12) return error("'{}' is not a time between 0 and 1e9 seconds", printable(text));
  return std::chrono::milliseconds(std::llround(value));
}

Result<bool> parse_boolean(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (std::string_view yes : {"true", "on", "yes", "1", "enabled"}) {
    if (lower == yes) return true;
  }
  for (std::string_view no : {"false", "off", "no", "0", "disabled"}) {
    if (lower == no) return false;
  }
  return error("'{}' is neither true nor false (on/off, yes/no, 1/0)", printable(text));
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 5> units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, units[unit]);
}

}  // namespace tidemill
