#include "server/http/connection.h"

#include <utility>

namespace tidemill {

using boost::system::error_code;

namespace {
constexpr std::chrono::milliseconds drain_time{2000};
constexpr int client_gone = 499;
}  // namespace

void Exchange::reply(std::shared_ptr<Exchange> exchange, HttpReply reply) {
  std::vector<ReplyPiece> pieces(1);
  pieces[0].exchange = std::move(exchange);
  pieces[0].whole = std::move(reply);
  pieces[0].last = true;
  deliver(std::move(pieces));
}

void Exchange::deliver(std::vector<ReplyPiece> pieces) {
  if (pieces.empty()) return;
  const std::shared_ptr<const Poster> poster = pieces.front().exchange->poster_;
  auto shared = std::make_shared<std::vector<ReplyPiece>>(std::move(pieces));
  (*poster)([shared] {
    for (ReplyPiece& piece : *shared)
      if (const std::shared_ptr<Connection> connection = piece.exchange->connection_.lock()) connection->apply(piece);
  });
}

Connection::Connection(std::unique_ptr<ByteStream> stream, std::string peer, Host& host)
    : stream_(std::move(stream)),
      peer_(std::move(peer)),
      host_(host),
      parser_(host.limits.max_header_bytes, host.limits.max_body_bytes) {}

void Connection::start() {
  read_deadline_ = Clock::now() + host_.limits.header_timeout;
  stream_->handshake([self = shared_from_this()](const error_code& failed) {
    if (self->phase_ != Phase::handshake) return;
    if (failed) return self->close_now();
    self->phase_ = Phase::reading;
    self->read();
  });
}

void Connection::turn_away() {
  refuse(host_.handler.protocol_error(503, "the server has as many connections as it can hold", {}), true);
  phase_ = Phase::reading;
  read();
}

void Connection::read() {
  if (reading_ || phase_ == Phase::closed) return;
  if (exchange_ && input_.size() >= host_.limits.max_pipelined_bytes) return;  // goes on when the reply is done
  reading_ = true;
  stream_->read_some(boost::asio::buffer(read_buffer_),
                     [self = shared_from_this()](const error_code& failed, size_t num_bytes) {
                       self->reading_ = false;
                       if (self->phase_ == Phase::closed) return;
                       if (failed) return self->end();
                       self->on_read(num_bytes);
                     });
}

void Connection::on_read(size_t num_bytes) {
  if (phase_ == Phase::reading && !close_after_write_) {
    if (!exchange_ && !parser_.started()) read_deadline_ = Clock::now() + host_.limits.header_timeout;
    input_.append(read_buffer_.data(), num_bytes);
    advance();
  }
  read();
}

// Parses what is there; stops while a request is under way.
void Connection::advance() {
  while (!exchange_ && phase_ == Phase::reading && !close_after_write_) {
    std::string_view rest = input_;
    const RequestParser::State state = parser_.feed(rest);
    const size_t used = input_.size() - rest.size();
    input_.erase(0, used);
    if (body_arrives_ && !hold(used))
      return refuse(
          host_.handler.protocol_error(503, "the bodies of other requests fill the server's memory", parser_.request()),
          true);
    switch (state) {
      case RequestParser::State::incomplete:
        return;
      case RequestParser::State::header_done: {
        const bool has_body = parser_.has_body();
        if (std::optional<HttpReply> refusal = host_.handler.refuse_by_header(parser_.request()))
          return refuse(*refusal, has_body);
        body_arrives_ = true;
        read_deadline_ = Clock::now() + host_.limits.body_timeout;
        if (has_body && parser_.expects_continue() && input_.empty()) send("HTTP/1.1 100 Continue\r\n\r\n");
        break;
      }
      case RequestParser::State::complete:
        dispatch();
        break;
      case RequestParser::State::header_too_large:
        return refuse(host_.handler.protocol_error(431, "the request's headers are too large", parser_.request()),
                      true);
      case RequestParser::State::body_too_large:
        return refuse(host_.handler.protocol_error(413, "the request's body is too large", parser_.request()), true);
      case RequestParser::State::malformed:
        return refuse(host_.handler.protocol_error(400, "the request is not valid HTTP/1.1", parser_.request()), true);
      case RequestParser::State::unknown_coding:
        return refuse(
            host_.handler.protocol_error(501, "chunked is the only transfer coding of a body", parser_.request()),
            true);
    }
  }
}

// Counts bytes of the current request's body; false when those of all connections exceed the limit.
bool Connection::hold(size_t num_bytes) {
  held_bytes_ += num_bytes;
  host_.held_bytes += num_bytes;
  return host_.held_bytes <= host_.limits.max_held_bytes;
}

void Connection::let_go() {
  host_.held_bytes -= std::exchange(held_bytes_, 0);
  body_arrives_ = false;
}

// A reply without an exchange. With bytes of the body still to come the connection cannot be used again.
void Connection::refuse(const HttpReply& reply, bool body_unread) {
  const bool keep = !body_unread && !reply.close && parser_.request().keep_alive && !host_.closing;
  const bool head_only = parser_.request().method == "HEAD";
  let_go();
  send(reply_head(reply, BodyFraming::length, keep));
  if (!head_only) send(reply.body);
  parser_.reset();
  read_deadline_ = Clock::now() + host_.limits.idle_timeout;
  if (!keep) {
    close_after_write_ = true;
    if (!write_under_way_) start_draining();
  }
}

void Connection::dispatch() {
  HttpRequest request = parser_.take();
  request.peer = peer_;
  keep_alive_ = request.keep_alive && !host_.closing;
  chunked_ = !request.http_1_0;
  body_arrives_ = false;
  parser_.reset();
  head_.reset();
  ping_.clear();
  head_sent_ = false;
  status_ = 0;
  body_bytes_ = 0;
  last_output_ = Clock::now();
  exchange_ = std::make_shared<Exchange>(std::move(request), weak_from_this(), host_.poster);
  host_.handler.handle(exchange_);
}

bool Connection::reply_keeps_alive() const {
  return keep_alive_ && !host_.closing;
}

void Connection::apply(ReplyPiece& piece) {
  if (phase_ == Phase::closed || piece.exchange != exchange_ || !exchange_) return;
  if (piece.head) head_ = std::move(piece.head);
  if (piece.whole && !head_sent_) return send_whole(std::move(*piece.whole));
  if (!piece.bytes.empty()) {
    if (!head_sent_) send_head();
    body_bytes_ += piece.bytes.size();
    send(chunked_ ? chunk_of(piece.bytes) : piece.bytes);
  }
  if (piece.last && exchange_) {
    if (!head_sent_) send_head();
    if (chunked_) send(last_chunk);
    if (exchange_) finish_exchange(status_);
  }
}

void Connection::send_whole(HttpReply reply) {
  if (reply.close) keep_alive_ = false;
  reply.headers.insert(reply.headers.end(), exchange_->reply_headers_.begin(), exchange_->reply_headers_.end());
  status_ = reply.status;
  body_bytes_ = reply.body.size();
  std::string bytes = reply_head(reply, BodyFraming::length, reply_keeps_alive());
  if (exchange_->request().method != "HEAD") bytes += reply.body;
  send(bytes);
  if (exchange_) finish_exchange(reply.status);
}

void Connection::send_head() {
  if (!head_) head_.emplace();
  if (!chunked_) keep_alive_ = false;
  HttpHeaders& headers = head_->reply.headers;
  headers.insert(headers.end(), exchange_->reply_headers_.begin(), exchange_->reply_headers_.end());
  status_ = head_->reply.status;
  ping_ = std::move(head_->ping);
  head_sent_ = true;
  send(reply_head(head_->reply, chunked_ ? BodyFraming::chunked : BodyFraming::until_close, reply_keeps_alive()));
}

void Connection::finish_exchange(int status) {
  const std::shared_ptr<Exchange> done = std::move(exchange_);
  exchange_ = nullptr;
  let_go();
  done->gone_ = nullptr;
  if (const auto ended = std::exchange(done->end_, nullptr)) ended(status, body_bytes_);
  if (!reply_keeps_alive()) {
    close_after_write_ = true;
    if (!write_under_way_) start_draining();
    return;
  }
  read_deadline_ = Clock::now() + host_.limits.idle_timeout;
  // Not from here: advance() may be what called us.
  (*host_.poster)([self = shared_from_this()] {
    self->advance();
    self->read();
  });
}

// The client hung up, or stopped taking what we send.
void Connection::end() {
  const std::shared_ptr<Exchange> lost = std::move(exchange_);
  exchange_ = nullptr;
  close_now();
  if (!lost) return;
  // The callbacks may own the exchange: cut the circle.
  const auto gone = std::exchange(lost->gone_, nullptr);
  const auto ended = std::exchange(lost->end_, nullptr);
  if (gone) gone();
  if (ended) ended(client_gone, body_bytes_);
}

void Connection::send(std::string_view bytes) {
  if (phase_ == Phase::closed) return;
  if (output_.size() + (writing_.size() - written_) > host_.limits.max_output_buffer_bytes) return end();
  output_ += bytes;
  last_output_ = Clock::now();
  if (!write_under_way_) {
    write_under_way_ = true;
    write_deadline_ = last_output_ + host_.limits.write_timeout;
    // Everything that is sent before the loop turns goes out in one call.
    (*host_.poster)([self = shared_from_this()] { self->write(); });
  }
}

void Connection::write() {
  if (phase_ == Phase::closed) return;
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
    writing_.swap(output_);
    if (writing_.empty()) {
      write_under_way_ = false;
      if (close_after_write_) start_draining();
      return;
    }
  }
  stream_->write_some(boost::asio::buffer(writing_.data() + written_, writing_.size() - written_),
                      [self = shared_from_this()](const error_code& failed, size_t num_bytes) {
                        if (self->phase_ == Phase::closed) return;
                        if (failed) return self->end();
                        self->written_ += num_bytes;
                        self->write_deadline_ = Clock::now() + self->host_.limits.write_timeout;
                        self->write();
                      });
}

// Closing with unread bytes would reset the connection and may take the reply with it: say that we are done, and read
// on for a moment.
void Connection::start_draining() {
  if (phase_ == Phase::closed || phase_ == Phase::draining) return;
  phase_ = Phase::draining;
  read_deadline_ = Clock::now() + drain_time;
  stream_->shutdown_send();
  read();
}

void Connection::close_now() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  let_go();
  stream_->close();
}

void Connection::close_if_idle() {
  if (!exchange_ && !close_after_write_ && phase_ != Phase::draining) {
    if (write_under_way_) {
      close_after_write_ = true;
    } else {
      close_now();
    }
  }
}

void Connection::tick(Clock::time_point now) {
  if (phase_ == Phase::closed) return;
  if (write_under_way_ && now > write_deadline_) return end();
  if (exchange_) {
    const bool silent = host_.limits.ping_interval.count() > 0 && now - last_output_ >= host_.limits.ping_interval;
    if (!silent || write_under_way_) return;
    if (head_ && !head_sent_ && !head_->ping.empty()) send_head();
    if (head_sent_ && !ping_.empty()) {
      body_bytes_ += ping_.size();
      send(chunked_ ? chunk_of(ping_) : ping_);
    }
    return;
  }
  if (now <= read_deadline_ || close_after_write_) {
    if (phase_ == Phase::draining && now > read_deadline_) close_now();
    return;
  }
  if (phase_ == Phase::reading && parser_.started())
    return refuse(host_.handler.protocol_error(408, "the request did not arrive in time", parser_.request()), true);
  close_now();
}

}  // namespace tidemill
