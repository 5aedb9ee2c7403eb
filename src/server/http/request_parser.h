// Bytes off the wire to HttpRequest values, with limits on headers and body.
//
// Incremental: feed whatever arrived; a request may come in any pieces. One parser reads one request at a time and is
// reset() for the next. The wire format is Boost.Beast's affair and stays behind this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "server/http/http_message.h"

namespace tidemill {

class RequestParser {
 public:
  RequestParser(size_t header_limit_bytes, uint64_t body_limit_bytes);
  ~RequestParser();

  enum class State {
    incomplete,   // wants more bytes
    header_done,  // reported once per request, before any of its body is read
    complete,
    header_too_large,
    body_too_large,
    malformed,
  };

  // Takes bytes from the front of `input`, which moves on by what was used. Stops at every state but `incomplete`.
  State feed(std::string_view& input);

  // The request so far: everything but the body from header_done on.
  const HttpRequest& request() const { return request_; }
  HttpRequest take();
  void reset();

  bool started() const { return started_; }  // some byte of the current request has arrived
  bool has_body() const;                     // announced by the headers
  bool expects_continue() const;             // "Expect: 100-continue"

 private:
  struct Beast;
  void read_header();
  size_t header_limit_bytes_;
  uint64_t body_limit_bytes_;
  bool started_ = false;
  bool header_reported_ = false;
  HttpRequest request_;
  std::unique_ptr<Beast> beast_;
};

}  // namespace tidemill
