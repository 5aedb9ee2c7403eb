// One request and its reply: what a handler holds while it works, on whatever thread.
//
// A reply is either whole (one HttpReply) or a stream: a head, which is sent with the first bytes or the first ping,
// pieces, and an end. A failure before the head went out is a whole reply with its own status; afterwards it is bytes
// in the stream. Pieces of many exchanges travel to the I/O thread together (deliver). Whatever is sent after the
// client is gone, or after the end, is dropped.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/http_message.h"

namespace tidemill {

class Connection;
class Exchange;

struct StreamHead {
  HttpReply reply;   // status and headers; its body is not used
  std::string ping;  // sent after every ping interval of silence; empty = none
};

// One step of a reply. Fields apply in this order.
struct ReplyPiece {
  std::shared_ptr<Exchange> exchange;
  std::optional<StreamHead> head;
  std::optional<HttpReply> whole;  // becomes the reply if no head went out; otherwise `bytes` and `last` count
  std::string bytes;
  bool last = false;
};

class Exchange {
 public:
  // Runs a function on the I/O thread.
  using Poster = std::function<void(std::function<void()>)>;
  Exchange(HttpRequest request, std::weak_ptr<Connection> connection, std::shared_ptr<const Poster> poster)
      : request_(std::move(request)), connection_(std::move(connection)), poster_(std::move(poster)) {}

  const HttpRequest& request() const { return request_; }
  // Go on every form of the reply. I/O thread, before the handler returns.
  void set_reply_headers(HttpHeaders headers) { reply_headers_ = std::move(headers); }
  // Large bodies need not outlive their parsing.
  std::string take_body() { return std::move(request_.body); }

  // Any thread.
  static void reply(std::shared_ptr<Exchange> exchange, HttpReply reply);
  static void deliver(std::vector<ReplyPiece> pieces);

  // I/O thread, before the handler returns: called once when the client goes away before the end of the reply.
  void on_gone(std::function<void()> callback) { gone_ = std::move(callback); }
  // I/O thread, before the handler returns: called once when the reply is complete or the client is gone, with the
  // status (499 = the client went away first) and the bytes of the body.
  void on_end(std::function<void(int status, size_t body_bytes)> callback) { end_ = std::move(callback); }

 private:
  friend class Connection;
  HttpRequest request_;
  HttpHeaders reply_headers_;
  std::weak_ptr<Connection> connection_;
  std::shared_ptr<const Poster> poster_;
  std::function<void()> gone_;
  std::function<void(int, size_t)> end_;
};

// What the HTTP layer asks of the application. I/O thread; must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // With the headers only. A reply here refuses the request: its body is never read.
  virtual std::optional<HttpReply> refuse_by_header(const HttpRequest& head) = 0;
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // The HTTP layer's own refusals (400, 408, 413, 431, 501, 503) in the application's form.
  virtual HttpReply protocol_error(int status, const std::string& message, const HttpRequest& head) = 0;
};

}  // namespace tidemill
