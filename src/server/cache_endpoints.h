// Requests that change the KV cache: its size, and what is pinned in it. An administrator's; docs/kv-sharing.md.
#pragma once

#include <variant>

#include "engine/engine.h"
#include "server/http/auth.h"
#include "server/json_fields.h"
#include "server/openai/generation_request.h"
#include "server/served_model.h"

namespace tidemill {

// One of bytes, num_blocks and share (of the size at the start); the reply says where the cache is and where it goes.
std::variant<Json, ApiError> resize_cache(const Json& body, Engine& engine);

// A prompt, as in completions, or messages, as in chat, and ttl in seconds (0 ends the pin), cache_salt, tenant: the
// generation that computes the prompt, draws nothing and pins its full blocks. `caller` becomes one of the tenant.
ReadResult read_pin_request(const Json& body, const ServedModel& model, const ApiLimits& limits, Caller& caller);

}  // namespace tidemill
