// A small HTTP client for talking to an OpenAI-compatible server: one request per connection, blocking, plain http.
//
// One thread. A body can be followed while it arrives; the call returns early where should_stop turns true, which
// closes the connection, so that the server stops its work. Errors name the server's address.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemill {

// "http://127.0.0.1:8000/v1/" in its parts.
struct HttpUrl {
  std::string host;  // an IPv6 address without its brackets
  std::string port;  // "80" where there is none
  std::string path;  // "/v1", without the slash at its end; may be ""
  static Result<HttpUrl> parse(std::string_view text);
};

struct HttpCall {
  std::string method;  // "GET", "POST"
  std::string path;
  std::string api_key;  // "" = none
  std::string body;     // JSON
};

struct HttpAnswer {
  int status = 0;
  std::string body;  // of a call whose body nobody followed
  bool stopped = false;
};

Result<HttpAnswer> http_call(const HttpUrl& url, const HttpCall& call,
                             const std::function<void(std::string_view)>& on_success_body = {},
                             const std::function<bool()>& should_stop = {});

}  // namespace tidemill
