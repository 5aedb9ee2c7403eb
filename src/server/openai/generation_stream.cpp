// The chunks of a streamed answer.
#include "server/openai/generation.h"
#include "text/tokenizer.h"

namespace tidemill {

Json Generation::chunk_of(size_t index, int32_t number, Json content) {
  Json chunk = reply_object(frame_, true);
  Json choice = {{"index", choice_index(index, number)}};
  choice.update(content);
  chunk["choices"].push_back(std::move(choice));
  if (request_.reply.continuous_usage) {
    chunk["usage"] = usage_json(total_usage());
  } else if (request_.reply.include_usage) {
    chunk["usage"] = nullptr;
  }
  return chunk;
}

Json Generation::text_fields(const ChoiceText::Piece& piece) const {
  if (!chat()) return {{"text", piece.text}};
  Json delta = Json::object();
  if (!piece.thinking.empty()) delta["reasoning_content"] = piece.thinking;
  if (!piece.text.empty() || piece.thinking.empty()) delta["content"] = piece.text;
  return {{"delta", std::move(delta)}};
}

// A chat choice begins with its role, an echoing completion with the prompt.
void Generation::begin_choice(size_t index, int32_t number) {
  Choice& choice = prompts_[index].choices[static_cast<size_t>(number)];
  if (std::exchange(choice.began, true)) return;
  const bool echo = request_.reply.echo;
  if (!chat() && !echo && !request_.reply.return_token_ids) return;
  Json content;
  if (chat()) {
    content = {{"delta", {{"role", "assistant"}, {"content", ""}}}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  } else {
    content = {{"text", echo ? request_.prompts[index].text : ""}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (echoes_logprobs()) content["logprobs"] = echo_logprobs(index, {}, choice.text_offset);
    add_prompt_details(index, content);
  }
  Json chunk = chunk_of(index, number, std::move(content));
  if (chat()) add_prompt_details(index, chunk);
  send(chunk);
}

// draw is null for text that was held back and belongs to tokens sent before.
void Generation::send_text(size_t index, int32_t number, const ChoiceText::Piece& piece, const Draw* draw) {
  const ReplyOptions& options = request_.reply;
  const bool wants_token = draw && (options.logprobs || options.return_token_ids || options.continuous_usage);
  if (piece.empty() && !wants_token) return;
  Choice& choice = prompts_[index].choices[static_cast<size_t>(number)];
  Json content = text_fields(piece);
  content["logprobs"] = nullptr;
  content["finish_reason"] = nullptr;
  if (draw && options.logprobs) {
    if (chat()) {
      content["logprobs"] = {{"content", Json::array({chat_logprob(*draw, options.top_logprobs, style())})}};
    } else {
      const ScoredToken token{draw, true};
      content["logprobs"] = completion_logprobs({&token, 1}, options.top_logprobs, style(), choice.text_offset);
    }
  }
  if (options.return_token_ids) content["token_ids"] = draw ? Json::array({draw->token}) : Json::array();
  Json chunk = chunk_of(index, number, std::move(content));
  if (options.timings_per_token) {
    chunk["timings"] = {
        {"predicted_n", choice.text.num_tokens()},
        {"predicted_ms",
         std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - first_token_).count()}};
  }
  send(chunk);
}

void Generation::send_finish(size_t index, int32_t number) {
  const Choice& choice = prompts_[index].choices[static_cast<size_t>(number)];
  Json content = chat() ? Json{{"delta", Json::object()}} : Json{{"text", ""}};
  content["logprobs"] = nullptr;
  content["finish_reason"] = choice.finish_reason;
  content["stop_reason"] = choice.stop_reason;
  Json chunk = chunk_of(index, number, std::move(content));
  if (request_.reply.timings) chunk["timings"] = timings_json(choice.timings, choice.usage);
  send(chunk);
}

}  // namespace tidemill
