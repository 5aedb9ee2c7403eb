// Listens, accepts and keeps the connections: HTTP/1.1 over TCP, TLS or a Unix socket, on one I/O thread.
//
// One thread is enough for thousands of streams because it only moves bytes: parsing bodies, templates, tokens and JSON
// belong to other threads. The handler is called on the I/O thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/exchange.h"

namespace tidemill {

struct HttpLimits;

struct ListenConfig {
  std::string host = "127.0.0.1";    // a name or an address; "" = no TCP
  uint16_t port = 8000;              // 0 = any free one
  std::string unix_socket;           // path; "" = none. A stale socket file is replaced, any other file is refused.
  std::string tls_certificate_file;  // both or neither; for TCP
  std::string tls_key_file;
};

class HttpServer {
 public:
  // The handler outlives the server.
  HttpServer(ListenConfig listen, const HttpLimits& limits, HttpHandler& handler);
  ~HttpServer();  // stop()

  // Binds, listens, starts the thread. The error names the address and the reason.
  Result<void> start();
  uint16_t port() const;  // the bound one

  // Any thread from here on.
  // Closes the listening sockets and the connections without a request; the others close after their reply.
  void stop_accepting();
  // Ends everything, joins the thread.
  void stop();

  size_t num_connections() const;
  // Connections with a request under way or bytes still to be written, behind everything delivered so far. Waits for
  // the I/O thread; not to be called from it.
  size_t count_busy_connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Raises the limit of open descriptors to what the system allows this process; the limit afterwards.
size_t raise_descriptor_limit();

}  // namespace tidemill
