// One client's connection: reads requests, one at a time, and writes their replies.
//
// A read is always under way, so that a client's hang-up is seen while its request waits or streams. Either direction's
// end counts as gone: a half-closed connection ends its request, too. Bytes that come in early (pipelining) are kept up
// to a limit. The output buffer is bounded: a client that does not read loses its connection, nobody waits for it.
//
// I/O thread only. Owned by the server and by its own pending operations.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "server/http/byte_stream.h"
#include "server/http/exchange.h"
#include "server/http/http_limits.h"
#include "server/http/request_parser.h"

namespace tidemill {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;
  struct Host {  // what all connections of a server share; outlives them
    const HttpLimits& limits;
    HttpHandler& handler;
    std::shared_ptr<const Exchange::Poster> poster;
    bool closing = false;   // no keep-alive any more
    size_t held_bytes = 0;  // of the bodies of all requests under way
  };

  Connection(std::unique_ptr<ByteStream> stream, std::string peer, Host& host);
  void start();
  // Once per tick: timeouts and pings.
  void tick(Clock::time_point now);
  // Ends the connection if it has no request under way.
  void close_if_idle();
  // Ends the connection; a request under way learns that its client is gone.
  void end();
  // Answers 503 and closes: there are too many connections.
  void turn_away();
  // Has a request under way, or bytes of a reply still to be written.
  bool is_busy() const { return exchange_ != nullptr || write_under_way_; }
  bool closed() const { return phase_ == Phase::closed; }

  void apply(ReplyPiece& piece);

 private:
  enum class Phase { handshake, reading, draining, closed };
  void read();
  void on_read(size_t num_bytes);
  void advance();
  bool hold(size_t num_bytes);
  void let_go();
  void refuse(const HttpReply& reply, bool body_unread);
  void dispatch();
  void send_whole(HttpReply reply);
  void send_head();
  void finish_exchange(int status);
  void send(std::string_view bytes);
  void write();
  void start_draining();
  void close_now();
  bool reply_keeps_alive() const;

  std::unique_ptr<ByteStream> stream_;
  std::string peer_;
  Host& host_;
  RequestParser parser_;
  Phase phase_ = Phase::handshake;
  std::array<char, 16384> read_buffer_;
  std::string input_;          // received, not yet parsed
  bool body_arrives_ = false;  // the header is done, the body is not
  size_t held_bytes_ = 0;      // of the current request's body, until its reply is done
  bool reading_ = false;
  std::string output_;  // to be written after writing_
  std::string writing_;
  size_t written_ = 0;
  bool write_under_way_ = false;
  bool close_after_write_ = false;
  Clock::time_point read_deadline_;
  Clock::time_point write_deadline_;
  Clock::time_point last_output_;

  std::shared_ptr<Exchange> exchange_;
  std::optional<StreamHead> head_;  // of the stream, until it is sent
  std::string ping_;
  bool head_sent_ = false;
  bool chunked_ = false;
  bool keep_alive_ = true;  // wanted by the current request
  int status_ = 0;
  size_t body_bytes_ = 0;
};

}  // namespace tidemill
