#include "server/http/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <thread>
#include <unordered_set>

#include "server/http/connection.h"

namespace tidemill {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds tick_time{100};
constexpr size_t reserved_descriptors = 128;  // model files, logs, listeners, the standard streams
// Many clients may connect in one moment; the kernel takes its own limit where that is lower.
constexpr int backlog = 4096;

// An address of the peer for logs.
std::string name_of(const asio::ip::tcp::endpoint& peer) {
  const std::string address = peer.address().to_string();
  return peer.address().is_v6() ? fmt::format("[{}]:{}", address, peer.port())
                                : fmt::format("{}:{}", address, peer.port());
}
std::string name_of(const asio::local::stream_protocol::endpoint&) {
  return "unix";
}

}  // namespace

size_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  }
  return static_cast<size_t>(limit.rlim_cur);
}

struct HttpServer::State {
  State(ListenConfig listen_config, const HttpLimits& http_limits, HttpHandler& handler)
      : listen(std::move(listen_config)),
        limits(http_limits),
        poster(std::make_shared<Exchange::Poster>(
            [this](std::function<void()> work) { asio::post(io, std::move(work)); })),
        host{limits, handler, poster} {}

  template <typename Acceptor>
  void accept(Acceptor& acceptor);
  template <typename Socket, typename Endpoint>
  void adopt(Socket socket, const Endpoint& peer);
  Result<void> listen_tcp();
  Result<void> listen_unix();
  void tick();
  void close_listeners();

  ListenConfig listen;
  HttpLimits limits;
  asio::io_context io{1};
  std::shared_ptr<const Exchange::Poster> poster;
  Connection::Host host;
  std::shared_ptr<TlsIdentity> tls;
  asio::ip::tcp::acceptor tcp{io};
  asio::local::stream_protocol::acceptor local{io};
  asio::steady_timer timer{io};
  asio::steady_timer retry{io};
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::atomic<size_t> num_connections{0};
  std::atomic<uint16_t> bound_port{0};
  std::thread thread;
};

template <typename Acceptor>
void HttpServer::State::accept(Acceptor& acceptor) {
  using Protocol = typename Acceptor::protocol_type;
  auto peer = std::make_shared<typename Protocol::endpoint>();
  acceptor.async_accept(*peer, [this, &acceptor, peer](const error_code& failed, typename Protocol::socket socket) {
    if (!acceptor.is_open()) return;
    if (failed) {
      // Out of descriptors, most likely: look again when some may have been closed.
      retry.expires_after(tick_time);
      retry.async_wait([this, &acceptor](const error_code& cancelled) {
        if (!cancelled && acceptor.is_open()) accept(acceptor);
      });
      return;
    }
    adopt(std::move(socket), *peer);
    accept(acceptor);
  });
}

template <typename Socket, typename Endpoint>
void HttpServer::State::adopt(Socket socket, const Endpoint& peer) {
  constexpr bool is_tcp = std::is_same_v<Socket, asio::ip::tcp::socket>;
  error_code ignored;
  // Tokens are small and must not wait for each other.
  if constexpr (is_tcp) socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  const bool encrypted = is_tcp && tls;
  const bool full = connections.size() >= limits.max_connections;
  if (full && encrypted) return;
  std::unique_ptr<ByteStream> stream =
      encrypted ? tls->wrap(AnySocket(std::move(socket))) : plain_stream(AnySocket(std::move(socket)));
  auto connection = std::make_shared<Connection>(std::move(stream), name_of(peer), host);
  connections.insert(connection);
  num_connections = connections.size();
  full ? connection->turn_away() : connection->start();
}

Result<void> HttpServer::State::listen_tcp() {
  error_code failed;
  asio::ip::tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(listen.host, std::to_string(listen.port),
                       asio::ip::tcp::resolver::passive | asio::ip::tcp::resolver::numeric_service, failed);
  if (failed || found.empty()) return error("the host {} cannot be resolved: {}", listen.host, failed.message());
  const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
  tcp.open(endpoint.protocol(), failed);
  if (!failed) tcp.set_option(asio::ip::tcp::acceptor::reuse_address(true), failed);
  if (!failed && endpoint.address().is_v6() && endpoint.address().is_unspecified())
    tcp.set_option(asio::ip::v6_only(false), failed);
  if (!failed) tcp.bind(endpoint, failed);
  if (!failed) tcp.listen(backlog, failed);
  if (failed) return error("cannot listen on {}:{}: {}", listen.host, listen.port, failed.message());
  bound_port = tcp.local_endpoint().port();
  return {};
}

Result<void> HttpServer::State::listen_unix() {
  struct stat there {};
  if (lstat(listen.unix_socket.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) return error("{} exists and is not a socket", listen.unix_socket);
    unlink(listen.unix_socket.c_str());
  }
  if (listen.unix_socket.size() > 107)
    return error("the Unix socket path {} has {} bytes, at most 107 fit", listen.unix_socket,
                 listen.unix_socket.size());
  error_code failed;
  const asio::local::stream_protocol::endpoint endpoint(listen.unix_socket);
  local.open(endpoint.protocol(), failed);
  if (!failed) local.bind(endpoint, failed);
  if (!failed) local.listen(backlog, failed);
  if (failed) return error("cannot listen on the Unix socket {}: {}", listen.unix_socket, failed.message());
  return {};
}

void HttpServer::State::tick() {
  const auto now = Connection::Clock::now();
  for (auto it = connections.begin(); it != connections.end();) {
    (*it)->tick(now);
    if ((*it)->closed()) {
      it = connections.erase(it);
      continue;
    }
    ++it;
  }
  num_connections = connections.size();
  timer.expires_after(tick_time);
  timer.async_wait([this](const error_code& cancelled) {
    if (!cancelled) tick();
  });
}

void HttpServer::State::close_listeners() {
  error_code ignored;
  if (tcp.is_open()) tcp.close(ignored);
  if (local.is_open()) {
    local.close(ignored);
    unlink(listen.unix_socket.c_str());
  }
}

HttpServer::HttpServer(ListenConfig listen, const HttpLimits& limits, HttpHandler& handler)
    : state_(std::make_unique<State>(std::move(listen), limits, handler)) {}

HttpServer::~HttpServer() {
  stop();
}

Result<void> HttpServer::start() {
  State& state = *state_;
  const size_t descriptors = raise_descriptor_limit();
  const size_t room = descriptors > 2 * reserved_descriptors ? descriptors - reserved_descriptors : descriptors / 2;
  if (state.limits.max_connections == 0 || state.limits.max_connections > room) state.limits.max_connections = room;
  const bool wants_tls = !state.listen.tls_certificate_file.empty() || !state.listen.tls_key_file.empty();
  if (wants_tls) {
    if (state.listen.tls_certificate_file.empty() || state.listen.tls_key_file.empty())
      return error("TLS needs both a certificate file and a key file");
    auto identity = TlsIdentity::load(state.listen.tls_certificate_file, state.listen.tls_key_file);
    if (!identity) return identity.error();
    state.tls = *std::move(identity);
  }
  if (!state.listen.host.empty())
    if (Result<void> listening = state.listen_tcp(); !listening) return listening;
  if (!state.listen.unix_socket.empty())
    if (Result<void> listening = state.listen_unix(); !listening) return listening;
  if (state.tcp.is_open()) state.accept(state.tcp);
  if (state.local.is_open()) state.accept(state.local);
  state.tick();
  state.thread = std::thread([&state] { state.io.run(); });
  return {};
}

uint16_t HttpServer::port() const {
  return state_->bound_port;
}

void HttpServer::stop_accepting() {
  asio::post(state_->io, [state = state_.get()] {
    state->close_listeners();
    state->host.closing = true;
    for (const auto& connection : state->connections) connection->close_if_idle();
  });
}

void HttpServer::stop() {
  State& state = *state_;
  if (!state.thread.joinable()) return;
  asio::post(state.io, [&state] {
    state.close_listeners();
    state.timer.cancel();
    state.retry.cancel();
    for (const auto& connection : state.connections) connection->end();
    state.connections.clear();
    state.num_connections = 0;
    state.io.stop();
  });
  state.thread.join();
}

size_t HttpServer::num_connections() const {
  return state_->num_connections;
}

size_t HttpServer::count_busy_connections() const {
  State& state = *state_;
  if (!state.thread.joinable()) return 0;
  std::promise<size_t> counted;
  asio::post(state.io, [&state, &counted] {
    counted.set_value(
        std::ranges::count_if(state.connections, [](const auto& c) { return !c->closed() && c->is_busy(); }));
  });
  return counted.get_future().get();
}

}  // namespace tidemill
