#include "server/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>

#include "base/printable.h"
#include "server/api_state.h"
#include "server/cache_endpoints.h"
#include "server/cache_json.h"
#include "server/openai/generation.h"
#include "server/token_endpoints.h"

namespace tidemill {
namespace {

bool is_json_or_unsaid(std::string_view type) {
  const std::string_view kind = type.substr(0, type.find(';'));
  const auto is = [&](std::string_view name) {
    return equal_without_case(kind.substr(0, kind.find_last_not_of(' ') + 1), name);
  };
  // curl -d says urlencoded unless told otherwise, and means JSON here.
  return type.empty() || is("application/json") || is("text/json") || is("text/plain") ||
         is("application/x-www-form-urlencoded") || is("application/octet-stream") || kind.ends_with("+json");
}

HttpReply json_reply(const Json& body, int status = 200) {
  HttpReply reply;
  reply.status = status;
  reply.body = to_line(body);
  return reply;
}

Json model_json(const ServedModel& model, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created_unix_s},
          {"owned_by", model.owned_by},
          {"root", model.names.front()},
          {"parent", nullptr},
          {"max_model_len", model.max_model_len_tokens}};
}

Json kv_audit_json(const AuditRecord& record, const KvContract& contract) {
  const auto rows = static_cast<double>(std::max<int64_t>(1, record.num_rows));
  return {{"choice", record.choice},
          {"formats", contract.offers[record.kv_format].formats},
          {"tokens", record.num_rows},
          {"kl_mean", record.mean_kl()},
          {"kl_worst", record.worst_kl},
          {"same_top", static_cast<double>(record.num_same_top) / rows},
          {"mean_logprob", record.logprob_sum / rows},
          {"reference_mean_logprob", record.reference_logprob_sum / rows}};
}

Json kv_audit_json(const AuditStats& found, const KvContract& contract) {
  Json formats = Json::array();
  for (size_t i = 0; i < found.formats.size(); ++i) {
    const AuditFigures& figures = found.formats[i];
    const auto rows = static_cast<double>(std::max<uint64_t>(1, figures.num_rows));
    formats.push_back({{"formats", contract.offers[i].formats},
                       {"tokens", figures.num_rows},
                       {"kl_mean", figures.divergence.sum() / rows},
                       {"kl_worst", figures.worst_kl},
                       {"same_top", static_cast<double>(figures.num_same_top) / rows}});
  }
  return {{"share", found.share},
          {"requests_measured", found.num_done},
          {"requests_skipped", found.num_skipped},
          {"requests_reencoded", found.num_reencoded},
          {"computed_tokens", found.computed_rows},
          {"formats", std::move(formats)}};
}

}  // namespace

ApiServer::State::State(ServerConfig server_config, KeyRing ring, Cors cors_rules)
    : config(std::move(server_config)),
      keys(std::move(ring)),
      cors(std::move(cors_rules)),
      log(config.request_log),
      text_work(config.num_text_threads, config.max_waiting_text_jobs),
      http(config.listen, config.http, *this) {}

HttpHeaders ApiServer::State::common_headers(const HttpRequest& request, const std::string& request_id) const {
  HttpHeaders headers = cors.reply_headers(request);
  headers.emplace_back("X-Request-Id", request_id);
  return headers;
}

HttpReply ApiServer::State::refusal(const ApiError& error, const HttpRequest& head, RouteId route) {
  return early(error_reply(error), head, route);
}

HttpReply ApiServer::State::early(HttpReply reply, const HttpRequest& head, RouteId route) {
  const std::string request_id = request_id_of(head);
  for (auto& header : common_headers(head, request_id)) reply.headers.push_back(std::move(header));
  counters.count(route, reply.status);
  log.write({.request_id = request_id,
             .tenant = {},
             .peer = head.peer,
             .method = head.method,
             .path = head.path,
             .status = reply.status,
             .body_bytes = reply.body.size(),
             .finish_reasons = {}});
  return reply;
}

HttpReply ApiServer::State::protocol_error(int status, const std::string& message, const HttpRequest& head) {
  HttpReply reply = refusal(from_status(status, message), head, RouteId::none);
  reply.close = true;
  return reply;
}

std::optional<HttpReply> ApiServer::State::refuse_by_header(const HttpRequest& head) {
  if (std::optional<HttpReply> preflight = cors.preflight(head))
    return early(*std::move(preflight), head, RouteId::none);
  const RouteMatch match = match_route(head.method, head.path);
  const RouteId id = match.route ? match.route->id : RouteId::none;
  if (!(match.route && match.route->is_public) && !keys.identify(head)) return refusal(unauthorized(), head, id);
  if (match.route)
    if (const std::optional<ApiError> error = check_access(head, *match.route)) return refusal(*error, head, id);
  if (!match.route && match.allowed_methods.empty())
    return refusal(not_found(fmt::format("there is no route {}", printable(head.path)), "route_not_found"), head, id);
  if (!match.route) {
    HttpReply reply =
        refusal(from_status(405, fmt::format("{} takes {}", printable(head.path), match.allowed_methods)), head, id);
    reply.headers.emplace_back("Allow", match.allowed_methods);
    return reply;
  }
  if (match.route->needs_model) {
    const Phase now = phase;
    if (!engine.load() && now != Phase::stopping)
      return refusal(unavailable("the model is loading", "model_loading", 1), head, id);
    const bool posts = std::string_view(match.route->method) == "POST";
    if (now == Phase::stopping && (posts || !engine.load()))
      return refusal(unavailable("the server is shutting down", "shutting_down", 1), head, id);
    if (posts && !is_json_or_unsaid(head.header("Content-Type")))
      return refusal(from_status(415, "the body must be JSON, as application/json"), head, id);
    const std::string_view coding = head.header("Content-Encoding");
    if (posts && !coding.empty() && !equal_without_case(coding, "identity"))
      return refusal(from_status(415, "the body must not be compressed"), head, id);
  }
  return std::nullopt;
}

std::optional<ApiError> ApiServer::State::check_access(const HttpRequest& head, const Route& route) const {
  if (route.access == RouteAccess::caller) return std::nullopt;
  if (route.access == RouteAccess::observer && !keys.has_tenants()) return std::nullopt;
  if (const std::optional<Caller> caller = keys.identify(head); caller && caller->admin) return std::nullopt;
  return needs_admin();
}

ApiError ApiServer::State::needs_admin() const {
  return from_status(403, keys.has_admin() ? "this needs an administrator's key"
                                           : "this needs an administrator's key, and none is set (--admin-api-key)");
}

void ApiServer::State::start_events(const std::shared_ptr<Exchange>& exchange) {
  exchange->on_gone([this, watched = exchange.get()] { cache_events.unsubscribe(*watched); });
  cache_events.subscribe(*engine.load(), exchange);
}

void ApiServer::State::handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  const Route& route = *match_route(request.method, request.path).route;
  const std::string request_id = request_id_of(request);
  const Caller caller = route.is_public ? Caller{} : keys.identify(request).value_or(Caller{});
  exchange->set_reply_headers(common_headers(request, request_id));
  std::shared_ptr<Generation> generation;
  if (route.id == RouteId::chat_completions || route.id == RouteId::completions || route.id == RouteId::cache_pin)
    generation = std::make_shared<Generation>(exchange, hub, *model, request_id);
  watch(*exchange, route.id, request_id, caller.tenant, generation);
  if (route.id == RouteId::cache_events && request.method != "HEAD") return start_events(exchange);
  if (std::string_view(route.method) == "GET" && route.id != RouteId::cache)
    return Exchange::reply(exchange, answer_get(route.id, request));
  const bool taken = text_work.push([this, exchange, id = route.id, caller, generation] {
    // Library code below may throw on inputs we did not think of: the client gets an answer all the same.
    try {
      if (id == RouteId::cache) return Exchange::reply(exchange, cache_map());
      generation ? start_generation(*generation, generation, id, caller) : answer_post(exchange, id);
    } catch (const std::exception&) {
      Exchange::reply(exchange, error_reply(server_fault("the request could not be handled")));
    }
  });
  if (!taken) Exchange::reply(exchange, error_reply(unavailable("too many requests wait to be read", "overloaded", 1)));
}

// What happens when the reply ends, or the client leaves.
void ApiServer::State::watch(Exchange& exchange, RouteId route, const std::string& request_id,
                             const std::string& tenant, const std::shared_ptr<Generation>& generation) {
  if (generation) exchange.on_gone([this, generation] { hub.abandon(*generation); });
  LoggedRequest entry;
  if (log.on()) {
    const HttpRequest& request = exchange.request();
    entry = {.request_id = request_id,
             .tenant = tenant,
             .peer = request.peer,
             .method = request.method,
             .path = request.path,
             .finish_reasons = {}};
  }
  const auto begin = std::chrono::steady_clock::now();
  exchange.on_end([this, route, entry = std::move(entry), begin, generation](int status, size_t body_bytes) mutable {
    counters.count(route, status);
    if (!log.on()) return;
    entry.status = status;
    entry.body_bytes = body_bytes;
    entry.time = std::chrono::steady_clock::now() - begin;
    if (generation && status == 200) {
      entry.prompt_tokens = generation->summary().prompt_tokens;
      entry.completion_tokens = generation->summary().completion_tokens;
      entry.finish_reasons = generation->summary().finish_reasons;
    }
    log.write(entry);
  });
}

void ApiServer::State::start_generation(Generation& generation, const std::shared_ptr<Generation>& owner, RouteId route,
                                        Caller caller) {
  const std::shared_ptr<Exchange>& exchange = generation.exchange();
  if (generation.gone()) return;
  auto body = parse_client_json(exchange->take_body());
  if (ApiError* error = std::get_if<ApiError>(&body)) return Exchange::reply(exchange, error_reply(*error));
  const bool chat = route == RouteId::chat_completions;
  ReadResult read = route == RouteId::cache_pin ? read_pin_request(std::get<Json>(body), *model, config.api, caller)
                    : chat                      ? read_chat_request(std::get<Json>(body), *model, config.api)
                                                : read_completion_request(std::get<Json>(body), *model, config.api);
  if (ApiError* error = std::get_if<ApiError>(&read)) return Exchange::reply(exchange, error_reply(*error));
  GenerationRequest& request = std::get<GenerationRequest>(read);
  if (request.engine.pin_or_end && !caller.admin) {
    ApiError error = needs_admin();
    if (route != RouteId::cache_pin) error.param = "cache_pin_ttl";
    return Exchange::reply(exchange, error_reply(error));
  }
  if (std::optional<ApiError> error =
          choose_latency_class(request, exchange->request().header(latency_class_header), caller.latency_class))
    return Exchange::reply(exchange, error_reply(*error));
  std::vector<Request> requests =
      generation.begin(std::move(request), caller, static_cast<int64_t>(std::time(nullptr)));
  const RequestHub::Submitted submitted = hub.submit(owner, std::move(requests), generation.first_pieces());
  if (const Refusal* refusal = std::get_if<Refusal>(&submitted))
    Exchange::reply(exchange, error_reply(from_refusal(*refusal)));
}

void ApiServer::State::answer_post(const std::shared_ptr<Exchange>& exchange, RouteId route) {
  auto body = parse_client_json(exchange->take_body());
  if (ApiError* error = std::get_if<ApiError>(&body)) return Exchange::reply(exchange, error_reply(*error));
  const Json& object = std::get<Json>(body);
  JsonResult result = route == RouteId::cache_resize ? resize_cache(object, *engine.load())
                      : route == RouteId::tokenize   ? tokenize(object, *model, config.api)
                      : route == RouteId::detokenize ? detokenize(object, *model)
                                                     : apply_template(object, *model, config.api);
  if (ApiError* error = std::get_if<ApiError>(&result)) return Exchange::reply(exchange, error_reply(*error));
  Exchange::reply(exchange, json_reply(std::get<Json>(result)));
}

HttpReply ApiServer::State::health() const {
  const Phase now = phase;
  const auto ill = [](const char* status, const char* message) {
    const ApiError error = unavailable(message, status, 1);
    return json_reply({{"status", status}, {"error", Json::parse(error_body(error))["error"]}}, 503);
  };
  if (now == Phase::loading) return ill("loading", "the model is loading");
  if (now == Phase::stopping) return ill("shutting_down", "the server is shutting down");
  if (engine.load()->stuck()) return ill("stuck", "a step of the engine does not end");
  return json_reply({{"status", "ok"}});
}

HttpReply ApiServer::State::metrics() {
  EngineStats stats = engine.load()->stats();
  const uint64_t late = std::min(hub.num_late_discards(), stats.generation_tokens);
  stats.generation_tokens = std::max(stats.generation_tokens - late, shown_generation_tokens);
  stats.discarded_tokens += late;
  shown_generation_tokens = stats.generation_tokens;
  HttpReply reply;
  reply.content_type = metrics_content_type;
  std::vector<std::string> kv_formats;
  for (const KvOffer& offer : model->kv.offers) kv_formats.push_back(offer.formats);
  if (model->kv.reencoded) kv_formats.push_back(model->kv.reencoded->formats);
  reply.body = metrics_text(stats, kv_formats, counters, http.num_connections(), model->names.front());
  return reply;
}

// The totals, or what was found of one request: whoever knows its id may know that, and nobody sees another's id.
HttpReply ApiServer::State::kv_audit(const HttpRequest& request) {
  const AuditStats found = engine.load()->stats().audit;
  if (!found.on) return error_reply(not_found("the live meter is off; --kv-audit SHARE turns it on", "kv_audit_off"));
  const std::string_view path = request.path;
  const size_t id_at = path.find("/kv-audit/");
  if (id_at == std::string_view::npos) return json_reply(kv_audit_json(found, model->kv));
  const std::string asked = percent_decoded(path.substr(id_at + 10));
  Json choices = Json::array();
  for (const AuditRecord& record : found.recent)
    if (record.label == asked) choices.push_back(kv_audit_json(record, model->kv));
  if (choices.empty())
    return error_reply(not_found(fmt::format("nothing was measured of the request \"{}\" lately", printable(asked)),
                                 "kv_audit_not_found"));
  return json_reply({{"request_id", asked}, {"choices", std::move(choices)}});
}

HttpReply ApiServer::State::cache_map() {
  const Engine& source = *engine.load();
  return json_reply(cache_map_json(source.cache_map(), source.config()));
}

HttpReply ApiServer::State::answer_get(RouteId route, const HttpRequest& request) {
  if (route == RouteId::health) return health();
  if (route == RouteId::cache_events) return json_reply(Json::object());  // HEAD
  if (route == RouteId::version) return json_reply({{"version", config.version}});
  if (route == RouteId::metrics) return metrics();
  if (route == RouteId::kv_audit) return kv_audit(request);
  if (route == RouteId::models) {
    Json list = Json::array();
    for (const std::string& name : model->names) list.push_back(model_json(*model, name));
    return json_reply({{"object", "list"}, {"data", std::move(list)}});
  }
  // Names are looked up in the table of served ones, byte for byte or percent-decoded; they never meet a file system.
  const std::string_view asked = std::string_view(request.path).substr(request.path.find("/models/") + 8);
  for (const std::string& name : model->names)
    if (asked == name || percent_decoded(asked) == name) return json_reply(model_json(*model, name));
  return error_reply(not_found(fmt::format("the model \"{}\" does not exist", printable(asked)), "model_not_found"));
}

ApiServer::ApiServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ApiServer::~ApiServer() {
  stop();
}

Result<std::unique_ptr<ApiServer>> ApiServer::make(ServerConfig config) {
  Result<KeyRing> keys = KeyRing::make(config.keys);
  if (!keys) return keys.error();
  config.keys = {};
  Result<Cors> cors = Cors::make(config.cors);
  if (!cors) return cors.error();
  auto state = std::make_unique<State>(std::move(config), *std::move(keys), *std::move(cors));
  return std::unique_ptr<ApiServer>(new ApiServer(std::move(state)));
}

Result<void> ApiServer::start() {
  return state_->http.start();
}
uint16_t ApiServer::port() const {
  return state_->http.port();
}
EventListener& ApiServer::events() {
  return state_->hub;
}
size_t ApiServer::num_connections() const {
  return state_->http.num_connections();
}
size_t ApiServer::num_open_requests() const {
  return state_->hub.num_open();
}

void ApiServer::set_ready(Engine& engine, ServedModel model) {
  state_->model = std::make_unique<const ServedModel>(std::move(model));
  state_->engine = &engine;
  state_->hub.attach(engine);
  Phase loading = Phase::loading;
  if (!state_->phase.compare_exchange_strong(loading, Phase::ready)) engine.shutdown(std::chrono::milliseconds(0));
}

void ApiServer::begin_shutdown(std::chrono::milliseconds limit) {
  if (state_->phase.exchange(Phase::stopping) == Phase::stopping) return;
  state_->http.stop_accepting();
  state_->cache_events.stop();
  if (Engine* engine = state_->engine) engine->shutdown(limit);
}

bool ApiServer::finished() const {
  // In the order in which a request passes them, so that one on its way is seen by one of them.
  const Engine* engine = state_->engine;
  return state_->text_work.idle() && (!engine || engine->finished()) && state_->hub.idle() &&
         state_->http.count_busy_connections() == 0;
}

void ApiServer::stop() {
  if (!state_) return;
  state_->phase = Phase::stopping;
  state_->cache_events.stop();
  state_->text_work.stop();
  state_->hub.detach();
  state_->hub.stop();
  state_->http.stop();
  state_->engine = nullptr;
}

}  // namespace tidemill
