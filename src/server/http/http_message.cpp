#include "server/http/http_message.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace tidemill {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (equal_without_case(key, name)) return trimmed(value);
  return {};
}

size_t HttpRequest::count(std::string_view name) const {
  return static_cast<size_t>(
      std::count_if(headers.begin(), headers.end(), [&](const auto& h) { return equal_without_case(h.first, name); }));
}

const char* reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

std::string reply_head(const HttpReply& reply, BodyFraming framing, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: tidemill\r\n", reply.status, reason_phrase(reply.status));
  if (!reply.content_type.empty() && reply.status != 204)
    head += fmt::format("Content-Type: {}\r\n", reply.content_type);
  for (const auto& [name, value] : reply.headers) {
    TM_CHECK(value.find_first_of("\r\n") == std::string::npos, "a reply header stays on one line");
    head += fmt::format("{}: {}\r\n", name, value);
  }
  if (framing == BodyFraming::chunked) head += "Transfer-Encoding: chunked\r\n";
  if (framing == BodyFraming::length && reply.status != 204)
    head += fmt::format("Content-Length: {}\r\n", reply.body.size());
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

std::string chunk_of(std::string_view bytes) {
  if (bytes.empty()) return {};
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace tidemill
