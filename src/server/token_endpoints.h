// /tokenize, /detokenize and /apply-template, in vLLM's form and in llama-server's. Pure functions of body and model.
//
// llama-server's /tokenize has "content", vLLM's has "prompt" or "messages"; the reply has the form of the question.
#pragma once

#include <variant>

#include "server/openai/generation_request.h"

namespace tidemill {

using JsonResult = std::variant<Json, ApiError>;

JsonResult tokenize(const Json& body, const ServedModel& model, const ApiLimits& limits);
JsonResult detokenize(const Json& body, const ServedModel& model);
JsonResult apply_template(const Json& body, const ServedModel& model, const ApiLimits& limits);

}  // namespace tidemill
