#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace tidemill {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

Log::Log(LogLevel level, bool colors) : level_(level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(colors ? spdlog::color_mode::always
                                                                           : spdlog::color_mode::never);
  logger_ = std::make_unique<spdlog::logger>("tidemill", std::move(sink));
  logger_->set_level(spdlog_level(level));
  logger_->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger_->flush_on(spdlog::level::debug);
}

Log::~Log() = default;

void Log::write(LogLevel level, std::string_view line) {
  logger_->log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace tidemill
