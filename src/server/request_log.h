// One line for each answered request: key=value pairs, no text of prompts or answers, no keys.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace tidemill {

struct LoggedRequest {
  std::string request_id;
  std::string tenant;
  std::string peer;
  std::string method;
  std::string path;
  int status = 0;
  std::chrono::steady_clock::duration time{};
  size_t body_bytes = 0;
  // Of generations; counts below zero are left out.
  int64_t prompt_tokens = -1;
  int64_t completion_tokens = -1;
  std::string finish_reasons;
};

// Values from a client are made printable and cut.
std::string log_line(const LoggedRequest& request);

class RequestLog {
 public:
  explicit RequestLog(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {}
  bool on() const { return static_cast<bool>(sink_); }
  void write(const LoggedRequest& request);

 private:
  std::function<void(std::string_view)> sink_;
  std::mutex mutex_;
};

}  // namespace tidemill
