// The inside of ApiServer: what its parts share. Private to its sources.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/api_server.h"
#include "server/cache_events.h"
#include "server/http/auth.h"
#include "server/metrics_text.h"
#include "server/request_hub.h"
#include "server/request_log.h"
#include "server/router.h"
#include "server/work_queue.h"

namespace tidemill {

class Generation;

enum class Phase : uint8_t { loading, ready, stopping };

// A request's id: the client's X-Request-Id where it is fit for headers and logs, otherwise a new random one.
std::string request_id_of(const HttpRequest& request);
// %XX to bytes; anything else stays.
std::string percent_decoded(std::string_view text);

class ApiServer::State final : public HttpHandler {
 public:
  State(ServerConfig server_config, KeyRing ring, Cors cors_rules);

  std::optional<HttpReply> refuse_by_header(const HttpRequest& head) override;
  void handle(std::shared_ptr<Exchange> exchange) override;
  HttpReply protocol_error(int status, const std::string& message, const HttpRequest& head) override;

  // I/O thread.
  HttpReply answer_get(RouteId route, const HttpRequest& request);
  HttpReply metrics();
  HttpReply kv_audit(const HttpRequest& request);
  HttpReply cache_map();
  // A refusal of a caller that may not use the route.
  std::optional<ApiError> check_access(const HttpRequest& head, const Route& route) const;
  ApiError needs_admin() const;
  void start_events(const std::shared_ptr<Exchange>& exchange);
  HttpReply health() const;
  void watch(Exchange& exchange, RouteId route, const std::string& request_id, const std::string& tenant,
             const std::shared_ptr<Generation>& generation);
  // What answers a request without an exchange: completed, counted and logged.
  HttpReply early(HttpReply reply, const HttpRequest& head, RouteId route);
  HttpReply refusal(const ApiError& error, const HttpRequest& head, RouteId route);
  HttpHeaders common_headers(const HttpRequest& request, const std::string& request_id) const;
  // Text threads.
  void start_generation(Generation& generation, const std::shared_ptr<Generation>& owner, RouteId route, Caller caller);
  void answer_post(const std::shared_ptr<Exchange>& exchange, RouteId route);

  const ServerConfig config;
  const KeyRing keys;
  const Cors cors;
  RequestLog log;
  HttpCounters counters;
  uint64_t shown_generation_tokens = 0;  // I/O thread: counters never fall
  std::atomic<Phase> phase{Phase::loading};
  // Written once, before phase turns ready.
  std::unique_ptr<const ServedModel> model;
  std::atomic<Engine*> engine{nullptr};
  RequestHub hub;
  CacheEvents cache_events;
  WorkQueue text_work;
  HttpServer http;
};

}  // namespace tidemill
