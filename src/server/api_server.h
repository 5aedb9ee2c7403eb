// The server as a whole: HTTP in front, the engine behind, the OpenAI API between them.
//
// Life: construct, start() (answers /health with 503 "loading"), make the engine with events() as its listener,
// set_ready(), serve; begin_shutdown(), wait until finished(), stop(), destroy the engine, then the server. A server
// that is told to shut down while loading never becomes ready.
//
// All methods but the constructor may be called from any thread, begin_shutdown() also by a thread that waits for
// signals (not from a signal handler). Three kinds of threads work inside: one for I/O, a few for text, one that hands
// out the engine's events. None of them runs the engine, and the engine waits for none of them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/auth.h"
#include "server/http/cors.h"
#include "server/http/http_limits.h"
#include "server/http/http_server.h"
#include "server/openai/generation_request.h"

namespace tidemill {

class Engine;
class EventListener;

struct ServerConfig {
  ListenConfig listen;
  HttpLimits http;
  ApiLimits api;
  CorsConfig cors;
  KeyRules keys;        // no keys = everybody may call
  std::string version;  // of the program, for /version
  size_t num_text_threads = 2;
  size_t max_waiting_text_jobs = 4096;  // requests read but not yet tokenized; beyond them 503
  // One line for each answered request; empty = none. Any thread, one call at a time.
  std::function<void(std::string_view line)> request_log;
};

class ApiServer {
 public:
  // Refuses keys and CORS settings that cannot be right, and an address that cannot be bound (in start()).
  static Result<std::unique_ptr<ApiServer>> make(ServerConfig config);
  ~ApiServer();  // stop()

  Result<void> start();
  uint16_t port() const;

  // The listener to give to the engine. Lives as long as the server.
  EventListener& events();
  // The engine and what `model` points to must outlive stop().
  void set_ready(Engine& engine, ServedModel model);

  // /health turns 503, the listening sockets close, idle connections end, waiting requests are answered 503; running
  // ones may finish within the limit, then end with an error event.
  void begin_shutdown(std::chrono::milliseconds limit);
  // After begin_shutdown: every reply is written. Check it until then, at most a second longer than the limit.
  bool finished() const;
  // Cuts what is still open, joins all threads, lets go of the engine.
  void stop();

  size_t num_connections() const;
  size_t num_open_requests() const;

 private:
  class State;
  explicit ApiServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tidemill
