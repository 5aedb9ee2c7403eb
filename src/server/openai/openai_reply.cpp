#include "server/openai/openai_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

// JSON has no infinity. What OpenAI writes for "practically impossible".
double finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

std::string id_text(TokenId token) {
  return fmt::format("token_id:{}", token);
}

std::string chat_token(TokenId token, const TokenStyle& style) {
  return style.as_ids ? id_text(token) : sanitize_utf8(style.tokenizer.token_bytes(token));
}

// A token that is part of a character is written by its bytes, as OpenAI does.
std::string completion_token(TokenId token, const TokenStyle& style) {
  if (style.as_ids) return id_text(token);
  std::string bytes = style.tokenizer.token_bytes(token);
  if (is_valid_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

Json byte_list(std::string_view bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json chat_entry(TokenId token, float logprob, const TokenStyle& style) {
  return {{"token", chat_token(token, style)},
          {"logprob", finite(logprob)},
          {"bytes", byte_list(style.tokenizer.token_bytes(token))}};
}

// Characters that begin in a token: continuation bytes belong to the token before.
int64_t num_characters(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

double per_second(double count, double ms) {
  return ms > 0 ? count * 1000 / ms : 0;
}
double per_token(double ms, double count) {
  return count > 0 ? ms / count : 0;
}

}  // namespace

Json reply_object(const ReplyFrame& frame, bool chunk) {
  const char* object = frame.api == Api::completion ? "text_completion"
                       : chunk                      ? "chat.completion.chunk"
                                                    : "chat.completion";
  Json reply = {{"id", frame.id},
                {"object", object},
                {"created", frame.created_unix_s},
                {"model", frame.model},
                {"choices", Json::array()}};
  if (!frame.kv_cache.is_null()) reply["kv_cache"] = frame.kv_cache;
  return reply;
}

Json usage_json(const TotalUsage& usage) {
  Json details = {{"discarded_tokens", usage.discarded_tokens}};
  if (usage.reasoning_tokens) details["reasoning_tokens"] = *usage.reasoning_tokens;
  Json prompt_details = {{"cached_tokens", usage.cached_tokens}};
  if (usage.pinned_tokens) prompt_details["pinned_tokens"] = *usage.pinned_tokens;
  if (usage.reencoded_tokens > 0)  // the answer's own tokens may be among them, after a preemption
    prompt_details["reencoded_tokens"] = std::min(usage.reencoded_tokens, usage.prompt_tokens);
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", prompt_details},
          {"completion_tokens_details", details}};
}

Json timings_json(const RequestTimings& timings, const Usage& usage) {
  const double computed = usage.prompt_tokens - timings.num_cached_tokens;
  // The first token comes with the last prompt token; decoding makes the others.
  const double decoded = std::max(0, usage.completion_tokens - 1);
  return {{"queue_ms", timings.queue_ms},
          {"cache_n", timings.num_cached_tokens},
          {"prompt_n", usage.prompt_tokens - timings.num_cached_tokens},
          {"prompt_ms", timings.prefill_ms},
          {"prompt_per_token_ms", per_token(timings.prefill_ms, computed)},
          {"prompt_per_second", per_second(computed, timings.prefill_ms)},
          {"predicted_n", usage.completion_tokens},
          {"predicted_ms", timings.decode_ms},
          {"predicted_per_token_ms", per_token(timings.decode_ms, decoded)},
          {"predicted_per_second", per_second(decoded, timings.decode_ms)},
          {"time_to_first_token_ms", timings.time_to_first_token_ms},
          {"mean_itl_ms", timings.mean_itl_ms},
          {"itl_jitter", timings.itl_jitter},
          {"preemptions", timings.num_preemptions},
          {"recomputed_tokens", timings.num_recomputed_tokens},
          {"loaded_blocks", timings.num_loaded_blocks},
          {"disk_wait_ms", timings.disk_wait_ms},
          {"fetched_tokens", timings.num_fetched_tokens}};
}

Json chat_logprob(const Draw& draw, int32_t num_top, const TokenStyle& style) {
  Json entry = chat_entry(draw.token, draw.logprob, style);
  Json top = Json::array();
  for (const TokenLogprob& other : draw.top) {
    if (static_cast<int32_t>(top.size()) >= num_top) break;
    top.push_back(chat_entry(other.token, other.logprob, style));
  }
  entry["top_logprobs"] = std::move(top);
  return entry;
}

Json completion_logprobs(std::span<const ScoredToken> tokens, int32_t num_top, const TokenStyle& style,
                         int64_t& text_offset) {
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const ScoredToken& scored : tokens) {
    const Draw& draw = *scored.draw;
    texts.push_back(completion_token(draw.token, style));
    offsets.push_back(text_offset);
    text_offset += num_characters(style.tokenizer.token_bytes(draw.token));
    if (!scored.has_logprob) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(finite(draw.logprob));
    Json top = Json::object();
    for (size_t i = 0; i < draw.top.size() && i < static_cast<size_t>(num_top); ++i)
      top[completion_token(draw.top[i].token, style)] = finite(draw.top[i].logprob);
    top[completion_token(draw.token, style)] = finite(draw.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json prompt_logprobs_json(std::span<const Draw> draws, const TokenStyle& style) {
  Json list = Json::array({nullptr});
  for (const Draw& draw : draws) {
    Json entry = Json::object();
    const auto add = [&](TokenId token, float logprob, int32_t rank) {
      entry[std::to_string(token)] = {
          {"logprob", finite(logprob)}, {"rank", rank}, {"decoded_token", chat_token(token, style)}};
    };
    add(draw.token, draw.logprob, draw.rank);
    for (const TokenLogprob& other : draw.top)
      if (other.token != draw.token) add(other.token, other.logprob, other.rank);
    list.push_back(std::move(entry));
  }
  return list;
}

std::string sse_event(const Json& value) {
  return "data: " + to_line(value) + "\n\n";
}

}  // namespace tidemill
