#include "server/request_log.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace tidemill {

std::string log_line(const LoggedRequest& request) {
  const double ms = std::chrono::duration<double, std::milli>(request.time).count();
  std::string line =
      fmt::format("request={} peer={} {} {} status={} ms={:.1f} bytes={}", printable(request.request_id, 128),
                  printable(request.peer), printable(request.method, 16), printable(request.path, 120), request.status,
                  ms, request.body_bytes);
  if (!request.tenant.empty()) line += fmt::format(" tenant={}", request.tenant);
  if (request.prompt_tokens >= 0) line += fmt::format(" prompt_tokens={}", request.prompt_tokens);
  if (request.completion_tokens >= 0) line += fmt::format(" completion_tokens={}", request.completion_tokens);
  if (!request.finish_reasons.empty()) line += fmt::format(" finish={}", request.finish_reasons);
  return line;
}

void RequestLog::write(const LoggedRequest& request) {
  if (!on()) return;
  const std::string line = log_line(request);
  const std::lock_guard lock(mutex_);
  sink_(line);
}

}  // namespace tidemill
