#include "server/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

namespace tidemill {

namespace http = boost::beast::http;

namespace {
constexpr size_t max_chunk_header_bytes = 16384;
}

struct RequestParser::Beast {
  std::optional<http::request_parser<http::string_body>> parser;
  // Beast wants a header in one piece; what it did not take yet stays here.
  std::string pending;
};

RequestParser::RequestParser(size_t header_limit_bytes, uint64_t body_limit_bytes)
    : header_limit_bytes_(header_limit_bytes), body_limit_bytes_(body_limit_bytes), beast_(std::make_unique<Beast>()) {
  reset();
}

RequestParser::~RequestParser() = default;

void RequestParser::reset() {
  beast_->parser.emplace();
  beast_->parser->header_limit(static_cast<uint32_t>(header_limit_bytes_));
  beast_->parser->body_limit(body_limit_bytes_);
  beast_->pending.clear();
  started_ = false;
  header_reported_ = false;
  request_ = {};
}

void RequestParser::read_header() {
  const auto& message = beast_->parser->get();
  request_.method.assign(message.method_string());
  std::string_view target(message.target().data(), message.target().size());
  // A client that takes us for a proxy names the host too (RFC 9112, 3.2.2).
  for (const std::string_view scheme : {"http://", "https://"})
    if (equal_without_case(target.substr(0, scheme.size()), scheme))
      target.remove_prefix(std::min(target.size(), target.find('/', scheme.size())));
  const size_t mark = target.find('?');
  request_.path.assign(target.substr(0, mark));
  if (mark != std::string_view::npos) request_.query.assign(target.substr(mark + 1));
  for (const auto& field : message)
    request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  request_.http_1_0 = message.version() < 11;
  request_.keep_alive = message.keep_alive();
}

RequestParser::State RequestParser::check_header() const {
  const size_t num_hosts = request_.count("Host");
  if (num_hosts > 1 || (num_hosts == 0 && !request_.http_1_0)) return State::malformed;
  if (request_.count("Transfer-Encoding") == 0) return State::header_done;
  if (request_.http_1_0) return State::malformed;
  return equal_without_case(request_.header("Transfer-Encoding"), "chunked") ? State::header_done
                                                                             : State::unknown_coding;
}

RequestParser::State RequestParser::feed(std::string_view& input) {
  auto& parser = *beast_->parser;
  while (!input.empty() || !beast_->pending.empty() || parser.is_done()) {
    if (parser.is_done()) return State::complete;
    started_ = true;
    const bool in_header = !parser.is_header_done();
    boost::beast::error_code error;
    size_t used = 0;
    if (in_header) {
      const size_t before = beast_->pending.size();
      beast_->pending.append(input);
      used = parser.put(boost::asio::buffer(beast_->pending), error);
      if (parser.is_header_done()) {
        input.remove_prefix(used - std::min(used, before));
        beast_->pending.clear();
      } else {
        input = {};
        beast_->pending.erase(0, used);
      }
    } else {
      parser.eager(true);
      used = parser.put(boost::asio::buffer(input.data(), input.size()), error);
      input.remove_prefix(used);
    }
    if (error == http::error::header_limit || (in_header && beast_->pending.size() > header_limit_bytes_))
      return State::header_too_large;
    if (error == http::error::body_limit) return State::body_too_large;
    if (error && error != http::error::need_more) return State::malformed;
    if (parser.is_header_done() && !header_reported_) {
      header_reported_ = true;
      read_header();
      return check_header();
    }
    if (error == http::error::need_more && !parser.is_done()) {
      // A chunk header that is not whole yet stays in the caller's input. One that never ends is not waited for.
      return input.size() > max_chunk_header_bytes ? State::malformed : State::incomplete;
    }
  }
  return State::incomplete;
}

bool RequestParser::has_body() const {
  return beast_->parser->chunked() || beast_->parser->content_length_remaining().value_or(0) > 0;
}

bool RequestParser::expects_continue() const {
  return equal_without_case(request_.header("Expect"), "100-continue");
}

HttpRequest RequestParser::take() {
  request_.body = std::move(beast_->parser->get().body());
  return std::move(request_);
}

}  // namespace tidemill
