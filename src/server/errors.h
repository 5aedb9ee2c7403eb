// The one form of every error reply: {"error": {"message", "type", "param", "code"}}.
//
// Messages are one sentence and valid UTF-8; text from a client is repeated only through printable(). No file path,
// type name or internal state ever goes into one.
#pragma once

#include <optional>
#include <string>

#include "engine/engine.h"
#include "engine/request.h"
#include "server/http/http_message.h"

namespace tidemill {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;  // "" = null
  std::string code;   // "" = null
  std::optional<int> retry_after_seconds;
};

ApiError bad_request(std::string message, std::string param = {}, std::string code = {});
ApiError not_supported(const std::string& param, std::string_view what);
ApiError unauthorized();
ApiError not_found(std::string message, std::string code);
ApiError unavailable(std::string message, std::string code, std::optional<int> retry_after_seconds = {});
ApiError server_fault(std::string message);
// Why the engine did not take a request.
ApiError from_refusal(const Refusal& refusal);
// Why the engine ended a request that did not end by itself: timeout, error or shutdown.
ApiError from_finish(FinishReason reason, const std::string& message);
ApiError nothing_pinned();
// For a status that the HTTP layer found by itself.
ApiError from_status(int status, std::string message);

std::string error_body(const ApiError& error);
HttpReply error_reply(const ApiError& error);

}  // namespace tidemill
