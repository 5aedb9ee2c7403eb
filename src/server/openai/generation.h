// One client request while the engine works on it: gathers the events of all its prompts and choices and turns them
// into the reply, streamed or whole.
//
// Created on the I/O thread with its exchange, given its request by a text thread (begin) before it is submitted, and
// used by the delivery thread alone from then on. Sends exactly one end: the whole reply, or the stream's last event.
// A failure after the stream began is one event with the error object, then [DONE].
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/http/auth.h"
#include "server/openai/choice_text.h"
#include "server/openai/openai_reply.h"
#include "server/request_hub.h"

namespace tidemill {

class Generation final : public EventConsumer {
 public:
  Generation(std::shared_ptr<Exchange> exchange, RequestHub& hub, const ServedModel& model, std::string request_id);

  // Takes over the checked request; the engine's requests, one for each prompt.
  std::vector<Request> begin(GenerationRequest request, const Caller& caller, int64_t now_unix_s);
  // What goes out before any event: a stream's head.
  std::vector<ReplyPiece> first_pieces();

  void on_event(size_t index, RequestEvent& event, std::vector<ReplyPiece>& pieces) override;

  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }

  // For the log.
  struct Summary {
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;
    std::string finish_reasons;  // of the choices, with commas
  };
  // Valid once the reply's end has reached the I/O thread; before that, the delivery thread may be writing it.
  const Summary& summary() const { return summary_; }

 private:
  struct Choice {
    explicit Choice(ChoiceText choice_text) : text(std::move(choice_text)) {}
    ChoiceText text;
    std::string answer;  // whole replies gather; streams send
    std::string thinking;
    std::vector<Draw> draws;
    std::vector<TokenId> token_ids;
    int64_t text_offset = 0;
    bool began = false;
    bool finished = false;
    std::string finish_reason;
    Json stop_reason;
    Usage usage;
    RequestTimings timings;
  };
  struct PromptState {
    std::vector<Choice> choices;
    std::vector<Draw> prompt_draws;
  };

  void on_token(size_t index, RequestEvent& event);
  void on_prompt_logprobs(size_t index, RequestEvent& event);
  void on_finished(size_t index, RequestEvent& event);
  void on_progress(const RequestEvent& event);
  void fail(const ApiError& error);
  void finish();
  void sum_up();

  // Streams.
  void begin_choice(size_t index, int32_t number);
  void send_text(size_t index, int32_t number, const ChoiceText::Piece& piece, const Draw* draw);
  void send_finish(size_t index, int32_t number);
  void send(const Json& chunk) { out_ += sse_event(chunk); }
  Json chunk_of(size_t index, int32_t number, Json content);
  Json text_fields(const ChoiceText::Piece& piece) const;

  HttpReply pin_reply() const;
  Json whole_reply() const;
  Json whole_choice(size_t index, int32_t number) const;
  Json echo_logprobs(size_t index, std::span<const Draw> draws, int64_t& text_offset) const;
  void add_prompt_details(size_t index, Json& object) const;
  TotalUsage total_usage() const;
  int32_t choice_index(size_t index, int32_t number) const;
  TokenStyle style() const { return {*model_.tokenizer, request_.reply.tokens_as_ids}; }
  bool chat() const { return request_.api == Api::chat; }
  bool echoes_logprobs() const { return request_.reply.echo && request_.reply.logprobs; }

  std::shared_ptr<Exchange> exchange_;
  RequestHub& hub_;
  const ServedModel& model_;
  std::string request_id_;
  GenerationRequest request_;
  ReplyFrame frame_;
  std::vector<PromptState> prompts_;
  size_t num_open_choices_ = 0;
  bool ended_ = false;
  Summary summary_;
  std::chrono::steady_clock::time_point begun_;
  std::chrono::steady_clock::time_point first_token_;
  std::string out_;  // bytes of the event at hand
  bool last_ = false;
  std::optional<HttpReply> whole_;
};

}  // namespace tidemill
