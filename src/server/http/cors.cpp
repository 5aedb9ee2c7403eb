#include "server/http/cors.h"

#include <algorithm>

namespace tidemill {

Result<Cors> Cors::make(CorsConfig config) {
  Cors cors;
  cors.config_ = std::move(config);
  if (cors.allows_any() && cors.config_.credentials)
    return error("CORS credentials need listed origins, \"*\" would let every web page act with its user's rights");
  for (const std::string& origin : cors.config_.origins)
    if (origin.find_first_of("\r\n") != std::string::npos) return error("a CORS origin has a line break in it");
  return cors;
}

bool Cors::allows_any() const {
  return std::ranges::find(config_.origins, "*") != config_.origins.end();
}

std::optional<std::string> Cors::allowed_origin(const HttpRequest& request) const {
  if (request.count("Origin") != 1) return std::nullopt;
  if (allows_any()) return "*";
  const auto found = std::ranges::find(config_.origins, request.header("Origin"));
  return found == config_.origins.end() ? std::nullopt : std::optional(*found);
}

HttpHeaders Cors::reply_headers(const HttpRequest& request) const {
  HttpHeaders headers;
  // A cache must not hand one origin's reply to another, nor a refusal to a listed one.
  if (!allows_any() && !config_.origins.empty()) headers.emplace_back("Vary", "Origin");
  const std::optional<std::string> origin = allowed_origin(request);
  if (!origin) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", *origin);
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  if (config_.credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  return headers;
}

std::optional<HttpReply> Cors::preflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" || request.count("Origin") == 0) return std::nullopt;
  HttpReply reply;
  reply.status = 204;
  if (allowed_origin(request)) {
    reply.headers.emplace_back("Access-Control-Allow-Methods", config_.methods);
    // With "*" a browser still wants Authorization by its name.
    const std::string headers = config_.headers == "*" ? "Authorization, Content-Type, *" : config_.headers;
    reply.headers.emplace_back("Access-Control-Allow-Headers", headers);
    reply.headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return reply;
}

}  // namespace tidemill
