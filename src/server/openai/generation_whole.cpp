// The reply to a request that is not streamed, and what both forms say about the prompt.
#include "server/openai/generation.h"
#include "text/tokenizer.h"

namespace tidemill {

// The prompt's tokens and then the answer's, in completions' form. The first prompt token follows nothing.
Json Generation::echo_logprobs(size_t index, std::span<const Draw> draws, int64_t& text_offset) const {
  Draw first;
  std::vector<ScoredToken> tokens;
  if (request_.reply.echo) {
    first.token = request_.prompts[index].tokens.front();
    tokens.push_back({&first, false});
    for (const Draw& draw : prompts_[index].prompt_draws) tokens.push_back({&draw, true});
  }
  for (const Draw& draw : draws) tokens.push_back({&draw, true});
  return completion_logprobs(tokens, request_.reply.top_logprobs, style(), text_offset);
}

void Generation::add_prompt_details(size_t index, Json& object) const {
  if (request_.reply.return_token_ids) object["prompt_token_ids"] = request_.prompts[index].tokens;
  if (request_.reply.prompt_logprobs && !request_.reply.stream)
    object["prompt_logprobs"] = prompt_logprobs_json(prompts_[index].prompt_draws, style());
}

Json Generation::whole_choice(size_t index, int32_t number) const {
  const Choice& choice = prompts_[index].choices[static_cast<size_t>(number)];
  const ReplyOptions& options = request_.reply;
  Json content = {{"index", choice_index(index, number)}};
  if (chat()) {
    Json message = {{"role", "assistant"}, {"content", choice.answer}};
    if (options.split_thinking && options.show_thinking)
      message["reasoning_content"] = choice.thinking.empty() ? Json() : Json(choice.thinking);
    content["message"] = std::move(message);
  } else {
    content["text"] = (options.echo ? request_.prompts[index].text : "") + choice.answer;
  }
  content["logprobs"] = nullptr;
  if (options.logprobs && chat()) {
    Json list = Json::array();
    for (const Draw& draw : choice.draws) list.push_back(chat_logprob(draw, options.top_logprobs, style()));
    content["logprobs"] = {{"content", std::move(list)}};
  } else if (options.logprobs) {
    int64_t text_offset = 0;
    content["logprobs"] = echo_logprobs(index, choice.draws, text_offset);
  }
  content["finish_reason"] = choice.finish_reason;
  content["stop_reason"] = choice.stop_reason;
  if (options.return_token_ids) content["token_ids"] = choice.token_ids;
  if (!chat()) add_prompt_details(index, content);
  const bool many = prompts_.size() * prompts_[index].choices.size() > 1;
  if (options.timings && many) content["timings"] = timings_json(choice.timings, choice.usage);
  return content;
}

HttpReply Generation::pin_reply() const {
  const Usage& usage = prompts_.front().choices.front().usage;
  const int64_t ttl_s = *request_.reply.pin_ttl_s;
  if (ttl_s > 0 && usage.pinned_tokens == 0) return error_reply(nothing_pinned());
  HttpReply reply;
  reply.body = to_line({{"object", "cache.pin"},
                        {"ttl", ttl_s},
                        {"prompt_tokens", usage.prompt_tokens},
                        {"cached_tokens", usage.cached_tokens},
                        {"pinned_tokens", usage.pinned_tokens}});
  return reply;
}

Json Generation::whole_reply() const {
  Json reply = reply_object(frame_, false);
  for (size_t index = 0; index < prompts_.size(); ++index)
    for (int32_t number = 0; number < request_.engine.num_choices; ++number)
      reply["choices"].push_back(whole_choice(index, number));
  reply["usage"] = usage_json(total_usage());
  if (chat()) add_prompt_details(0, reply);
  const Choice& first = prompts_.front().choices.front();
  if (request_.reply.timings) reply["timings"] = timings_json(first.timings, first.usage);
  return reply;
}

}  // namespace tidemill
