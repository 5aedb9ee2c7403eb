#include "server/router.h"

namespace tidemill {
namespace {

constexpr Route routes[] = {
    {"GET", "/health", RouteId::health, true, false},
    {"GET", "/v1/health", RouteId::health, true, false},
    {"GET", "/ping", RouteId::health, true, false},
    {"GET", "/version", RouteId::version, false, false},
    {"GET", "/metrics", RouteId::metrics, false, true},
    {"GET", "/v1/models", RouteId::models, false, true},
    {"GET", "/models", RouteId::models, false, true},
    {"GET", "/v1/models/", RouteId::model, false, true},
    {"POST", "/v1/chat/completions", RouteId::chat_completions, false, true},
    {"POST", "/chat/completions", RouteId::chat_completions, false, true},
    {"POST", "/v1/completions", RouteId::completions, false, true},
    {"POST", "/tokenize", RouteId::tokenize, false, true},
    {"POST", "/detokenize", RouteId::detokenize, false, true},
    {"GET", "/v1/kv-audit", RouteId::kv_audit, false, true},
    {"GET", "/v1/kv-audit/", RouteId::kv_audit, false, true},
    {"POST", "/apply-template", RouteId::apply_template, false, true},
    {"GET", "/v1/cache", RouteId::cache, false, true, RouteAccess::observer},
    {"GET", "/v1/cache/events", RouteId::cache_events, false, true, RouteAccess::observer},
    {"POST", "/v1/cache/pin", RouteId::cache_pin, false, true, RouteAccess::admin},
    {"POST", "/v1/cache/resize", RouteId::cache_resize, false, true, RouteAccess::admin},
};

bool covers(std::string_view pattern, std::string_view path) {
  if (pattern.back() == '/') return path.size() > pattern.size() && path.starts_with(pattern);
  return path == pattern;
}

}  // namespace

std::span<const Route> route_table() {
  return routes;
}

const char* route_name(RouteId id) {
  switch (id) {
    case RouteId::health:
      return "/health";
    case RouteId::metrics:
      return "/metrics";
    case RouteId::version:
      return "/version";
    case RouteId::models:
      return "/v1/models";
    case RouteId::model:
      return "/v1/models/{id}";
    case RouteId::chat_completions:
      return "/v1/chat/completions";
    case RouteId::completions:
      return "/v1/completions";
    case RouteId::tokenize:
      return "/tokenize";
    case RouteId::detokenize:
      return "/detokenize";
    case RouteId::apply_template:
      return "/apply-template";
    case RouteId::kv_audit:
      return "/v1/kv-audit";
    case RouteId::cache:
      return "/v1/cache";
    case RouteId::cache_events:
      return "/v1/cache/events";
    case RouteId::cache_pin:
      return "/v1/cache/pin";
    case RouteId::cache_resize:
      return "/v1/cache/resize";
    case RouteId::none:
      return "none";
  }
  return "none";
}

RouteMatch match_route(std::string_view method, std::string_view path) {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  RouteMatch match;
  for (const Route& route : routes) {
    if (!covers(route.path, path)) continue;
    if (wanted == route.method) return {&route, {}};
    match.allowed_methods = std::string(route.method) == "GET" ? "GET, HEAD" : route.method;
  }
  return match;
}

}  // namespace tidemill
