// The JSON of OpenAI's replies: choices, log-probabilities, usage, timings. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/json_fields.h"
#include "server/openai/generation_request.h"

namespace tidemill {

class Tokenizer;

// What is the same in every chunk of an answer.
struct ReplyFrame {
  std::string id;
  Api api = Api::completion;
  int64_t created_unix_s = 0;
  std::string model;
  Json kv_cache = nullptr;  // what it stores, where the request cares; else null
};

// {"id", "object", "created", "model", "choices": []}; a chunk of a stream or a whole reply.
Json reply_object(const ReplyFrame& frame, bool chunk);

// Sums over a request's prompts and choices.
struct TotalUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  std::optional<int64_t> pinned_tokens;  // of a request that asked for a pin
  int64_t reencoded_tokens = 0;
  int64_t discarded_tokens = 0;
  std::optional<int64_t> reasoning_tokens;
};
Json usage_json(const TotalUsage& usage);

// llama-server's names where it has one, and ours for the rest.
Json timings_json(const RequestTimings& timings, const Usage& usage);

// How a token is written in log-probabilities.
struct TokenStyle {
  const Tokenizer& tokenizer;
  bool as_ids = false;  // "token_id:7"
};

// One entry of chat's logprobs.content.
Json chat_logprob(const Draw& draw, int32_t num_top, const TokenStyle& style);

// Completions' four lists. `text_offset` is where the first token begins, in characters, and moves on.
// A draw without a log-probability (a prompt's first token) has null.
struct ScoredToken {
  const Draw* draw = nullptr;
  bool has_logprob = true;
};
Json completion_logprobs(std::span<const ScoredToken> tokens, int32_t num_top, const TokenStyle& style,
                         int64_t& text_offset);

// vLLM's prompt_logprobs: null for the first token, then {id: {logprob, rank, decoded_token}}. Draws are those of
// prompt tokens 1..n-1.
Json prompt_logprobs_json(std::span<const Draw> draws, const TokenStyle& style);

// A line of a stream of server-sent events. JSON has no line breaks of its own.
std::string sse_event(const Json& value);
inline constexpr std::string_view sse_done = "data: [DONE]\n\n";
inline constexpr std::string_view sse_ping = ": ping\n\n";

}  // namespace tidemill
