// The route table: which method and path leads where, and who may call it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tidemill {

enum class RouteId : uint8_t {
  health,
  metrics,
  version,
  models,
  model,
  chat_completions,
  completions,
  tokenize,
  detokenize,
  apply_template,
  kv_audit,
  cache,
  cache_events,
  cache_pin,
  cache_resize,
  none,  // no such route
};
inline constexpr size_t num_routes = static_cast<size_t>(RouteId::none) + 1;

// What a caller needs where keys are set.
enum class RouteAccess : uint8_t {
  caller,
  observer,  // an administrator's key where some callers must learn nothing of others
  admin,     // an administrator's key; where none is set, nobody may
};

struct Route {
  const char* method;
  const char* path;  // one that ends in '/' also covers what is below it
  RouteId id;
  bool is_public;    // needs no API key
  bool needs_model;  // 503 while there is none
  RouteAccess access = RouteAccess::caller;
};

std::span<const Route> route_table();
// A fixed name for metrics and logs.
const char* route_name(RouteId id);

struct RouteMatch {
  const Route* route = nullptr;
  std::string allowed_methods;  // of the path, when it has routes but none for the method
};
// HEAD goes where GET goes.
RouteMatch match_route(std::string_view method, std::string_view path);

}  // namespace tidemill
