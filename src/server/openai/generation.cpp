#include "server/openai/generation.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer.h"

namespace tidemill {
namespace {

HttpReply stream_reply() {
  HttpReply reply;
  reply.content_type = "text/event-stream; charset=utf-8";
  reply.headers.emplace_back("Cache-Control", "no-cache");
  reply.headers.emplace_back("X-Accel-Buffering", "no");
  return reply;
}

bool is_failure(FinishReason reason) {
  return reason == FinishReason::timeout || reason == FinishReason::error || reason == FinishReason::shutdown ||
         reason == FinishReason::refused;
}

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Generation::Generation(std::shared_ptr<Exchange> exchange, RequestHub& hub, const ServedModel& model,
                       std::string request_id)
    : exchange_(std::move(exchange)), hub_(hub), model_(model), request_id_(std::move(request_id)) {}

std::vector<Request> Generation::begin(GenerationRequest request, const Caller& caller, int64_t now_unix_s) {
  request_ = std::move(request);
  begun_ = std::chrono::steady_clock::now();
  frame_ = {.id = (chat() ? "chatcmpl-" : "cmpl-") + (request_.request_id.empty() ? request_id_ : request_.request_id),
            .api = request_.api,
            .created_unix_s = now_unix_s,
            .model = model_.names.front(),
            .kv_cache = request_.reply.kv_cache ? kv_cache_json(model_.kv, request_.engine.kv_format) : Json()};
  std::vector<Request> requests;
  for (const Prompt& prompt : request_.prompts) {
    Request& engine = requests.emplace_back(request_.engine);
    engine.label = request_id_;
    engine.tenant = caller.tenant;
    engine.cache_tenant = caller.cache_tenant;
    engine.prompt = prompt.tokens;
    PromptState& state = prompts_.emplace_back();
    for (int32_t i = 0; i < request_.engine.num_choices; ++i)
      state.choices.emplace_back(ChoiceText(model_, request_.reply, request_.engine.sampling));
    num_open_choices_ += state.choices.size();
  }
  return requests;
}

std::vector<ReplyPiece> Generation::first_pieces() {
  std::vector<ReplyPiece> pieces;
  if (!request_.reply.stream) return pieces;
  ReplyPiece& piece = pieces.emplace_back();
  piece.exchange = exchange_;
  piece.head = StreamHead{stream_reply(), std::string(sse_ping)};
  return pieces;
}

void Generation::on_event(size_t index, RequestEvent& event, std::vector<ReplyPiece>& pieces) {
  if (ended_) return;
  switch (event.kind) {
    case RequestEvent::Kind::progress:
      on_progress(event);
      break;
    case RequestEvent::Kind::prompt_logprobs:
      on_prompt_logprobs(index, event);
      break;
    case RequestEvent::Kind::token:
      on_token(index, event);
      break;
    case RequestEvent::Kind::finished:
      on_finished(index, event);
      break;
  }
  if (out_.empty() && !whole_ && !last_) return;
  ReplyPiece& piece = pieces.emplace_back();
  piece.exchange = exchange_;
  piece.bytes = std::exchange(out_, {});
  piece.whole = std::exchange(whole_, {});
  piece.last = last_;
}

void Generation::on_progress(const RequestEvent& event) {
  if (!request_.reply.progress) return;
  Json chunk = reply_object(frame_, true);
  chunk["prompt_progress"] = {{"total", event.num_prompt_tokens},
                              {"cache", event.num_cached},
                              {"processed", event.num_prompt_computed},
                              {"time_ms", ms_since(begun_)}};
  send(chunk);
}

void Generation::on_prompt_logprobs(size_t index, RequestEvent& event) {
  prompts_[index].prompt_draws = std::move(event.prompt_logprobs);
}

void Generation::on_token(size_t index, RequestEvent& event) {
  Choice& choice = prompts_[index].choices[static_cast<size_t>(event.choice)];
  if (choice.finished || choice.text.stopped()) return;  // drawn beyond a stop string
  if (first_token_ == std::chrono::steady_clock::time_point{}) first_token_ = std::chrono::steady_clock::now();
  const ChoiceText::Piece piece = choice.text.push(event.draw.token);
  if (piece.stopped) hub_.finish_choice(*this, index, event.choice, choice.text.num_tokens());
  if (request_.reply.stream) {
    begin_choice(index, event.choice);
    send_text(index, event.choice, piece, &event.draw);
    return;
  }
  choice.answer += piece.text;
  choice.thinking += piece.thinking;
  if (request_.reply.return_token_ids) choice.token_ids.push_back(event.draw.token);
  if (request_.reply.logprobs) choice.draws.push_back(std::move(event.draw));
}

void Generation::on_finished(size_t index, RequestEvent& event) {
  Choice& choice = prompts_[index].choices[static_cast<size_t>(event.choice)];
  if (choice.finished) return;
  const bool stopped = choice.text.stopped();
  if (!stopped && is_failure(event.reason)) {
    ApiError error = from_finish(event.reason, event.message);
    if (event.reason == FinishReason::timeout) error.retry_after_seconds = hub_.estimate_retry_seconds();
    return fail(error);
  }
  choice.finished = true;
  choice.finish_reason = stopped ? "stop" : finish_reason_name(event.reason);
  if (stopped) choice.stop_reason = choice.text.stop_string();
  const std::vector<TokenId>& stop_ids = request_.engine.sampling.stop_token_ids;
  if (!stopped && event.stop_token && std::ranges::find(stop_ids, *event.stop_token) != stop_ids.end())
    choice.stop_reason = *event.stop_token;
  choice.usage = event.usage;
  choice.timings = event.timings;
  if (event.usage.reencoded_tokens > 0) {
    frame_.kv_cache = kv_cache_json(model_.kv, request_.engine.kv_format, total_usage().reencoded_tokens);
  }
  // The engine may have run on, or ended by itself, before it heard of the stop string.
  const int32_t beyond = choice.usage.completion_tokens - choice.text.num_tokens();
  if (stopped && beyond > 0) {
    choice.usage.completion_tokens -= beyond;
    choice.usage.discarded_tokens += beyond;
    hub_.count_late_discards(beyond);
  }
  const ChoiceText::Piece rest = choice.text.finish();
  if (request_.reply.stream) {
    begin_choice(index, event.choice);
    if (!rest.empty()) send_text(index, event.choice, rest, nullptr);
    send_finish(index, event.choice);
  } else {
    choice.answer += rest.text;
    choice.thinking += rest.thinking;
  }
  if (--num_open_choices_ == 0) finish();
}

void Generation::fail(const ApiError& error) {
  ended_ = true;
  whole_ = error_reply(error);
  if (request_.reply.stream) out_ += "data: " + error_body(error) + "\n\n" + std::string(sse_done);
  last_ = true;
  sum_up();
  hub_.cancel_all(*this);
}

void Generation::finish() {
  ended_ = true;
  last_ = true;
  sum_up();
  if (request_.reply.pin_ttl_s) {
    whole_ = pin_reply();
    return;
  }
  if (!request_.reply.stream) {
    HttpReply reply;
    reply.body = to_line(whole_reply());
    whole_ = std::move(reply);
    return;
  }
  if (request_.reply.include_usage) {
    Json chunk = reply_object(frame_, true);
    chunk["usage"] = usage_json(total_usage());
    send(chunk);
  }
  out_ += sse_done;
}

int32_t Generation::choice_index(size_t index, int32_t number) const {
  return static_cast<int32_t>(index) * request_.engine.num_choices + number;
}

TotalUsage Generation::total_usage() const {
  TotalUsage total;
  if (request_.reply.split_thinking) total.reasoning_tokens = 0;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    total.prompt_tokens += static_cast<int64_t>(request_.prompts[i].tokens.size());
    int32_t cached = 0, reencoded = 0;
    for (const Choice& choice : prompts_[i].choices) {
      // A choice that still runs counts with what it has shown.
      total.completion_tokens += choice.finished ? choice.usage.completion_tokens : choice.text.num_tokens();
      total.discarded_tokens += choice.usage.discarded_tokens;
      cached = std::max(cached, choice.usage.cached_tokens);
      reencoded = std::max(reencoded, choice.usage.reencoded_tokens);
      if (total.reasoning_tokens) *total.reasoning_tokens += choice.text.num_thinking_tokens();
    }
    total.cached_tokens += cached;
    total.reencoded_tokens += reencoded;
  }
  if (request_.engine.pin_or_end) total.pinned_tokens = prompts_.front().choices.front().usage.pinned_tokens;
  return total;
}

void Generation::sum_up() {
  const TotalUsage usage = total_usage();
  summary_ = {.prompt_tokens = usage.prompt_tokens, .completion_tokens = usage.completion_tokens, .finish_reasons = {}};
  for (const PromptState& prompt : prompts_)
    for (const Choice& choice : prompt.choices)
      summary_.finish_reasons +=
          (summary_.finish_reasons.empty() ? "" : ",") + (choice.finished ? choice.finish_reason : std::string("none"));
}

}  // namespace tidemill
