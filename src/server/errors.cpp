#include "server/errors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tidemill {
namespace {

int whole_seconds(std::chrono::milliseconds time) {
  return static_cast<int>(std::clamp<int64_t>((time.count() + 999) / 1000, 1, 3600));
}

ApiError overloaded(std::string message, std::chrono::milliseconds retry_after) {
  return {.status = 429,
          .type = "rate_limit_error",
          .message = std::move(message),
          .param = {},
          .code = "rate_limit_exceeded",
          .retry_after_seconds = whole_seconds(retry_after)};
}

}  // namespace

ApiError bad_request(std::string message, std::string param, std::string code) {
  ApiError error;
  error.message = std::move(message);
  error.param = std::move(param);
  error.code = std::move(code);
  return error;
}

ApiError not_supported(const std::string& param, std::string_view what) {
  return bad_request(param + " is not supported" + (what.empty() ? "" : ": ") + std::string(what), param,
                     "unsupported_parameter");
}

ApiError unauthorized() {
  ApiError error = bad_request("a valid API key is needed, as \"Authorization: Bearer KEY\"", {}, "invalid_api_key");
  error.status = 401;
  error.type = "authentication_error";
  return error;
}

ApiError not_found(std::string message, std::string code) {
  ApiError error = bad_request(std::move(message), {}, std::move(code));
  error.status = 404;
  return error;
}

ApiError unavailable(std::string message, std::string code, std::optional<int> retry_after_seconds) {
  ApiError error = bad_request(std::move(message), {}, std::move(code));
  error.status = 503;
  error.type = "server_error";
  error.retry_after_seconds = retry_after_seconds;
  return error;
}

ApiError server_fault(std::string message) {
  ApiError error = bad_request(std::move(message), {}, "internal_error");
  error.status = 500;
  error.type = "server_error";
  return error;
}

ApiError from_refusal(const Refusal& refusal) {
  switch (refusal.kind) {
    case Refusal::Kind::context_length_exceeded:
      return bad_request(refusal.message, "prompt", "context_length_exceeded");
    case Refusal::Kind::kv_capacity_exceeded:
      return bad_request(refusal.message, "prompt", "kv_capacity_exceeded");
    case Refusal::Kind::invalid:
      return bad_request(refusal.message);
    case Refusal::Kind::queue_full:
    case Refusal::Kind::tenant_limit:
      return overloaded(refusal.message, refusal.retry_after);
    case Refusal::Kind::shutting_down:
      return unavailable("the server is shutting down", "shutting_down", 1);
  }
  TM_CHECK(false, "every kind of refusal has a reply");
}

ApiError from_finish(FinishReason reason, const std::string& message) {
  if (reason == FinishReason::timeout)
    return unavailable(message.empty() ? "the request's time was up" : message, "timeout");
  if (reason == FinishReason::shutdown)
    return unavailable(message.empty() ? "the server is shutting down" : message, "shutting_down", 1);
  if (reason == FinishReason::refused) return nothing_pinned();
  return server_fault(message.empty() ? "the request failed" : message);
}

ApiError nothing_pinned() {
  ApiError error =
      from_status(409, "nothing was pinned: the prompt fills no block, or the pins hold as much as they may");
  error.code = "nothing_pinned";
  return error;
}

ApiError from_status(int status, std::string message) {
  ApiError error = bad_request(std::move(message));
  error.status = status;
  if (status >= 500) error.type = "server_error";
  if (status == 408) error.code = "request_timeout";
  if (status == 413) error.code = "body_too_large";
  if (status == 431) error.code = "headers_too_large";
  if (status == 501) error.code = "transfer_coding";
  if (status == 503) {
    error.code = "overloaded";
    error.retry_after_seconds = 1;
  }
  return error;
}

std::string error_body(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json body;
  body["error"] = {{"message", error.message},
                   {"type", error.type},
                   {"param", text_or_null(error.param)},
                   {"code", text_or_null(error.code)}};
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpReply error_reply(const ApiError& error) {
  HttpReply reply;
  reply.status = error.status;
  reply.body = error_body(error);
  if (error.retry_after_seconds) reply.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_seconds));
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

}  // namespace tidemill
