// A request as it came off the wire and a reply as it goes out: plain values, no sockets.
//
// Header names are kept as sent and compared without case. Header values and targets may hold any byte a client sends;
// whoever repeats them in a reply passes them through printable() first.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemill {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;   // the target up to '?', not decoded: routes are compared byte for byte
  std::string query;  // behind '?', not decoded
  HttpHeaders headers;
  std::string body;
  bool http_1_0 = false;
  bool keep_alive = true;
  std::string peer;  // address and port, or "unix"

  // The first header of this name, without surrounding blanks; "" when absent.
  std::string_view header(std::string_view name) const;
  size_t count(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
  bool close = false;  // end the connection afterwards
};

bool equal_without_case(std::string_view a, std::string_view b);

// "Not Found" for 404; "Status" for a number without a name.
const char* reason_phrase(int status);

enum class BodyFraming { length, chunked, until_close };
// Status line and headers, up to and with the empty line. Values with a line break would split the reply: they are a
// broken invariant of the caller.
std::string reply_head(const HttpReply& reply, BodyFraming framing, bool keep_alive);

// One piece of a chunked body; nothing for an empty piece, which would end the body.
std::string chunk_of(std::string_view bytes);
inline constexpr std::string_view last_chunk = "0\r\n\r\n";

}  // namespace tidemill
