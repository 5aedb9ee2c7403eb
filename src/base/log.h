// Where the server's own messages go: one line each, with time and level, to standard error.
//
// Passed in, never global. Any thread may write; lines of different threads never mix. Texts from outside must have
// gone through printable(), so that nobody can forge a line.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace spdlog {
class logger;
}

namespace tidemill {

enum class LogLevel : uint8_t { debug, info, warning, error, off };

class Log {
 public:
  // Lines below `level` are dropped. Colors are ANSI sequences around the level.
  Log(LogLevel level, bool colors);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool writes(LogLevel level) const { return level >= level_ && level_ != LogLevel::off; }
  void write(LogLevel level, std::string_view line);

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    if (writes(LogLevel::debug)) write(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    if (writes(LogLevel::info)) write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    if (writes(LogLevel::warning)) write(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    if (writes(LogLevel::error)) write(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  LogLevel level_;
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace tidemill
