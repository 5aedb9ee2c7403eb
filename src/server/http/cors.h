// Cross-origin requests from web pages: which origins may read our replies.
//
// "*" stands for every origin and is never combined with credentials; with credentials on, only the listed origins are
// answered, each by its own name. Origins are compared byte for byte.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/http/http_message.h"

namespace tidemill {

struct CorsConfig {
  std::vector<std::string> origins{"*"};  // empty = no cross-origin access
  std::string methods = "GET, POST, OPTIONS";
  std::string headers = "*";
  bool credentials = false;
};

class Cors {
 public:
  // Refuses "*" together with credentials.
  static Result<Cors> make(CorsConfig config);

  // What a reply to this request carries, error replies and streams included.
  HttpHeaders reply_headers(const HttpRequest& request) const;
  // The answer to a preflight (OPTIONS with Origin), to which reply_headers come; nothing for other requests.
  std::optional<HttpReply> preflight(const HttpRequest& request) const;

 private:
  bool allows_any() const;
  std::optional<std::string> allowed_origin(const HttpRequest& request) const;
  CorsConfig config_;
};

}  // namespace tidemill
