#include "server/http/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "base/printable.h"

namespace tidemill {
namespace {

namespace http = boost::beast::http;
using Tcp = boost::asio::ip::tcp;
using Code = boost::system::error_code;

constexpr size_t max_body_bytes = 64 << 20;

Code connect(Tcp::socket& socket, boost::asio::io_context& context, const HttpUrl& url) {
  Code code;
  Tcp::resolver resolver(context);
  const auto endpoints = resolver.resolve(url.host, url.port, code);
  if (!code) boost::asio::connect(socket, endpoints, code);
  return code;
}

Code send(Tcp::socket& socket, const HttpUrl& url, const HttpCall& call) {
  http::request<http::string_body> request(http::string_to_verb(call.method), url.path + call.path, 11);
  const bool is_ipv6 = url.host.find(':') != std::string::npos;
  request.set(http::field::host, (is_ipv6 ? "[" + url.host + "]" : url.host) + ":" + url.port);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  if (!call.api_key.empty()) request.set(http::field::authorization, "Bearer " + call.api_key);
  request.body() = call.body;
  request.prepare_payload();
  Code code;
  http::write(socket, request, code);
  return code;
}

}  // namespace

Result<HttpUrl> HttpUrl::parse(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  if (text.starts_with("https://")) return error("'{}': only http:// is supported here", printable(text));
  if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  HttpUrl url;
  const size_t slash = std::min(text.find('/'), text.size());
  url.path = text.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  std::string_view authority = text.substr(0, slash);
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos;
  url.port = has_port ? std::string(authority.substr(colon + 1)) : "80";
  url.host = authority.substr(0, has_port ? colon : authority.size());
  if (url.host.starts_with('[') && url.host.ends_with(']')) url.host = url.host.substr(1, url.host.size() - 2);
  if (url.host.empty() || url.port.empty() || url.port.find_first_not_of("0123456789") != std::string::npos) {
    return error("'{}' is not an address like http://127.0.0.1:8000", printable(text));
  }
  return url;
}

Result<HttpAnswer> http_call(const HttpUrl& url, const HttpCall& call,
                             const std::function<void(std::string_view)>& on_success_body,
                             const std::function<bool()>& should_stop) {
  const auto failed = [&url](const Code& code) { return error("{}:{}: {}", url.host, url.port, code.message()); };
  boost::asio::io_context context;
  Tcp::socket socket(context);
  if (const Code code = connect(socket, context, url)) return failed(code);
  if (const Code code = send(socket, url, call)) return failed(code);

  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  HttpAnswer answer;
  char piece[16384];
  while (!parser.is_done()) {
    parser.get().body().data = piece;
    parser.get().body().size = sizeof piece;
    parser.get().body().more = true;
    Code code;
    if (!parser.is_header_done()) {
      http::read_header(socket, buffer, parser, code);
    } else {
      http::read_some(socket, buffer, parser, code);
    }
    if (should_stop && should_stop()) {
      answer.stopped = true;
      return answer;
    }
    if (code == boost::asio::error::interrupted) continue;
    if (code && code != http::error::need_buffer) return failed(code);
    if (!parser.is_header_done()) continue;
    answer.status = static_cast<int>(parser.get().result_int());
    const std::string_view bytes(piece, sizeof piece - parser.get().body().size);
    if (answer.status == 200 && on_success_body) {
      on_success_body(bytes);
    } else if (answer.body.size() + bytes.size() > max_body_bytes) {
      return error("{}:{}: the answer is longer than {} bytes", url.host, url.port, max_body_bytes);
    } else {
      answer.body += bytes;
    }
  }
  return answer;
}

}  // namespace tidemill
