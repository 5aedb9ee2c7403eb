// Bytes off the wire to HttpRequest values, with limits on headers and body.
//
// Stricter than the wire format where two readers could see two bodies or two hosts (RFC 9112, 3.2 and 6): HTTP/1.1 has
// exactly one Host, and a body's only transfer coding is chunked, which HTTP/1.0 does not know.
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
    unknown_coding,  // of the body, so nobody can tell where it ends
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
  State check_header() const;  // header_done, or what is wrong with it
  size_t header_limit_bytes_;
  uint64_t body_limit_bytes_;
  bool started_ = false;
  bool header_reported_ = false;
  HttpRequest request_;
  std::unique_ptr<Beast> beast_;
};

}  // namespace tidemill
