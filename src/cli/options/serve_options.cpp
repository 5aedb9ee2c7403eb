#include "cli/options/serve_options.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/options/kv_format_options.h"
#include "cli/options/profiles.h"
#include "cli/version.h"
#include "server/http/auth.h"

namespace tidemill {
namespace {

constexpr int64_t max_count = int64_t{1} << 30;
constexpr int64_t max_bytes = int64_t{1} << 40;

void add_network_options(OptionList& list, ServeOptions& target) {
  ListenConfig& listen = target.server.listen;
  list.group("Network");
  list.text("--host", &listen.host, "ADDRESS", "Address to listen on; 0.0.0.0 = all of IPv4, :: = all.");
  list.integer("--port", &listen.port, "PORT", 0, 65535, "Port to listen on; 0 = any free one.");
  list.text("--uds", &listen.unix_socket, "PATH", "Listen on a Unix socket instead of a port.");
  list.text("--ssl-certfile,--ssl-cert-file", &listen.tls_certificate_file, "FILE",
            "Certificate chain (PEM), for https.");
  list.text("--ssl-keyfile,--ssl-key-file", &listen.tls_key_file, "FILE", "Private key (PEM) of the certificate.");
  list.texts("--allowed-origins,--cors-origins", &target.allowed_origins, "ORIGIN",
             "Origin whose web pages may call, or a JSON list of them; * = every one, the default.");
  list.text("--allowed-methods,--cors-methods", &target.server.cors.methods, "LIST", "Methods that web pages may use.");
  list.text("--allowed-headers,--cors-headers", &target.server.cors.headers, "LIST",
            "Headers that web pages may send.");
  list.flag("--allow-credentials,--cors-credentials", &target.server.cors.credentials,
            "Let web pages send credentials; needs --allowed-origins.");
}

void add_access_options(OptionList& list, ServeOptions& target) {
  list.group("API");
  list.texts("--api-key", &target.api_keys, "KEY", "A key that callers must present. Without any, everybody may call.");
  list.text(
      "--api-key-file", &target.api_key_file, "FILE",
      "Keys, one a line; behind one, after a blank, may stand the latency class of its callers (interactive, standard "
      "or bulk) and tenant=NAME: prefix blocks are shared only between the keys of one tenant.");
  list.texts("--admin-api-key", &target.server.keys.admin_keys, "KEY",
             "A key that may also change the cache (/v1/cache). Without any, nobody may.");
  list.texts("--served-model-name,--alias", &target.served_names, "NAME",
             "Name of the model in requests; the first is the one in replies. Without it, the file's name and the name "
             "inside.");
  list.text("--chat-template,--chat-template-file", &target.run.chat_template_path, "FILE",
            "Jinja template instead of the model's own.");
  list.flag("--trust-request-chat-template", &target.server.api.allow_request_templates,
            "Accept templates in requests (the field chat_template).");
  list.integer("--max-logprobs", &target.server.api.max_logprobs, "N", 0, 1000,
               "Most log-probabilities per token that a request may ask for.");
  list.duration("--sse-ping-interval", &target.server.http.ping_interval,
                "Silence after which a stream gets a comment line, so that nobody thinks it dead; 0 = never.");
}

void add_cache_options(OptionList& list, ServeOptions& target) {
  list.integer("--kv-cache-min", &target.run.kv_min_bytes, "SIZE", 0, max_bytes,
               "With --kv-cache-max: how small the KV cache may become by itself where the machine runs short.");
  list.integer("--kv-cache-max", &target.run.kv_max_bytes, "SIZE", 0, max_bytes,
               "How large the KV cache may become, by itself (with --kv-cache-min) or by POST /v1/cache/resize; 0 = as "
               "large as at the start.");
  list.number("--kv-pin-share", &target.run.engine.kv_pin_share, 0, 1,
              "Share of the KV cache that pinned prefixes (POST /v1/cache/pin) may hold.");
}

void add_limit_options(OptionList& list, ServeOptions& target) {
  EngineConfig& engine = target.run.engine;
  HttpLimits& http = target.server.http;
  list.group("Limits (0 = none)");
  list.integer("--max-num-queued-reqs", &engine.max_num_queued_requests, "N", 0, max_count,
               "Requests that may wait; beyond them 429 with Retry-After.");
  list.integer("--max-num-queued-tokens", &engine.max_num_queued_tokens, "TOKENS", 0, max_bytes,
               "Prompt tokens that may wait.");
  list.integer("--max-running-per-key", &engine.max_running_per_tenant, "N", 0, max_count,
               "Sequences of one API key that run at once.");
  list.integer("--max-queued-tokens-per-key", &engine.max_queued_tokens_per_tenant, "TOKENS", 0, max_bytes,
               "Prompt tokens of one API key that may wait; beyond them 429.");
  list.flag("--isolate-keys", &target.server.keys.isolate, "Share prefix blocks only between requests of one API key.");
  list.duration("--request-timeout", &engine.request_timeout, "Longest life of a request.");
  list.duration("--queue-timeout", &engine.queue_timeout, "Longest wait of a request for its first step.");
  list.duration("--shutdown-timeout", &engine.shutdown_timeout,
                "How long running requests may go on after SIGTERM; a second SIGTERM ends at once.");
  list.integer("--max-request-bytes", &http.max_body_bytes, "SIZE", 1, max_bytes, "Largest body of a request.",
               "16MiB");
  list.integer("--max-header-bytes", &http.max_header_bytes, "SIZE", 1024, 1 << 24, "Largest headers of a request.",
               "64KiB");
  list.integer("--max-connections", &http.max_connections, "N", 0, max_count,
               "Connections at once; 0 = what the system's limit of open files allows.");
  list.duration("--header-timeout", &http.header_timeout, "For a client to send its headers.");
  list.duration("--body-timeout", &http.body_timeout, "For a client to send its body.");
  list.duration("--idle-timeout", &http.idle_timeout, "Between two requests of a connection.");
  list.duration("--write-timeout", &http.write_timeout, "For a client that takes no byte of its reply.");
}

void add_log_options(OptionList& list, ServeOptions& target) {
  list.group("Log and configuration");
  list.choice("--log-level", &target.log_level,
              {{"debug", LogLevel::debug},
               {"info", LogLevel::info},
               {"warning", LogLevel::warning},
               {"error", LogLevel::error},
               {"off", LogLevel::off}},
              "Messages on standard error.");
  list.flag("--enable-log-requests", &target.log_requests, "One line for each request, without its text.");
  list.text("--config", &target.config_file, "FILE", "YAML file of option names and values.");
}

void add_profile_option(OptionList& list, ServeOptions& target) {
  std::vector<std::string> words;
  for (const Profile& profile : profiles()) words.emplace_back(profile.name);
  list.preset("--profile", &target.profile, std::move(words), "Sets several options below for a purpose; see the end.",
              [](const std::string& word) {
                const Profile* profile = find_profile(word);
                return profile == nullptr ? std::vector<std::pair<std::string, std::string>>{} : profile->options;
              });
}

// An origin, or a JSON list of origins as vLLM's flag takes it.
Result<std::vector<std::string>> origins_of(const std::vector<std::string>& given) {
  std::vector<std::string> origins;
  for (const std::string& text : given) {
    if (!text.starts_with('[')) {
      origins.push_back(text);
      continue;
    }
    const Result<nlohmann::json> list = parse_json(text, 2);
    if (!list || !list->is_array()) return error("--allowed-origins: {} is not a JSON list", text);
    for (const nlohmann::json& origin : *list) {
      if (!origin.is_string()) return error("--allowed-origins: {} holds something else than strings", text);
      origins.push_back(origin.get<std::string>());
    }
  }
  return origins;
}

}  // namespace

void add_serve_options(OptionList& list, ServeOptions& target) {
  list.group("Model");
  list.text("--model,-m", &target.run.model_path, "PATH", "Model file or folder, where no PATH is given.");
  add_profile_option(list, target);
  add_model_options(list, target.run);
  add_length_option(list, target.run);
  add_network_options(list, target);
  add_access_options(list, target);
  add_memory_options(list, target.run);
  add_request_format_option(list, target.run.kv_request_formats);
  add_reencode_option(list, target.run.kv_reencode);
  add_cache_options(list, target);
  add_scheduler_options(list, target.run);
  add_audit_options(list, target.run);
  add_limit_options(list, target);
  add_compute_options(list, target.run);
  add_log_options(list, target);
  add_trace_options(list, target.run);
}

Result<void> finish_serve_options(ServeOptions& options) {
  ListenConfig& listen = options.server.listen;
  if (listen.tls_certificate_file.empty() != listen.tls_key_file.empty()) {
    return error("--ssl-certfile and --ssl-keyfile belong together; only one is given");
  }
  if (!listen.unix_socket.empty()) listen.host.clear();
  options.server.keys.keys = options.api_keys;
  if (!options.api_key_file.empty()) {
    Result<std::vector<std::string>> keys = KeyRing::read_file(options.api_key_file);
    if (!keys) return error("--api-key-file: {}", keys.error().message);
    options.server.keys.keys.insert(options.server.keys.keys.end(), keys->begin(), keys->end());
  }
  if (!options.allowed_origins.empty()) {
    Result<std::vector<std::string>> origins = origins_of(options.allowed_origins);
    if (!origins) return origins.error();
    options.server.cors.origins = *std::move(origins);
  }
  const RunOptions& run = options.run;
  if (run.kv_min_bytes > 0 && run.kv_max_bytes < run.kv_min_bytes) {
    return error("--kv-cache-min is {} bytes and needs a --kv-cache-max that is not less, not {}", run.kv_min_bytes,
                 run.kv_max_bytes);
  }
  options.server.version = version_text();
  return {};
}

}  // namespace tidemill
