#include "server/openai/choice_text.h"

#include <algorithm>

#include "text/tokenizer.h"

namespace tidemill {

ChoiceText::ChoiceText(const ServedModel& model, const ReplyOptions& options, const SamplingParams& sampling)
    : options_(options),
      sampling_(sampling),
      tokenizer_(*model.tokenizer),
      detokenizer_(*model.tokenizer, options.skip_special_tokens, true),
      matcher_(options.stop, options.include_stop_text) {
  if (options.split_thinking && model.thinking) splitter_.emplace(*model.thinking, options.starts_thinking);
}

// A token that ends the sequence shows its text only where stop texts are asked for. End tokens are barred from being
// drawn before min_tokens, so one that comes does end it.
bool ChoiceText::ends_silently(TokenId token) const {
  if (options_.include_stop_text) return false;
  if (std::ranges::find(sampling_.stop_token_ids, token) != sampling_.stop_token_ids.end()) return true;
  return !sampling_.ignore_eos && std::ranges::find(sampling_.end_token_ids, token) != sampling_.end_token_ids.end();
}

ChoiceText::Piece ChoiceText::split(std::string text) {
  Piece piece;
  if (!splitter_) {
    piece.text = std::move(text);
    return piece;
  }
  ThinkingSplitter::Parts parts = splitter_->push(text);
  piece.text = std::move(parts.answer);
  if (options_.show_thinking) piece.thinking = std::move(parts.thinking);
  return piece;
}

ChoiceText::Piece ChoiceText::push(TokenId token) {
  if (stopped()) return {};
  ++num_tokens_;
  if (splitter_ && splitter_->thinking()) ++num_thinking_tokens_;
  if (ends_silently(token)) return {};
  StopMatcher::Output out = matcher_.push(detokenizer_.push(token));
  if (out.matched_stop) stop_string_ = options_.stop[*out.matched_stop];
  Piece piece = split(std::move(out.text));
  piece.stopped = out.matched_stop.has_value();
  return piece;
}

ChoiceText::Piece ChoiceText::finish() {
  std::string rest;
  if (!stopped()) {
    StopMatcher::Output out = matcher_.push(detokenizer_.finish());
    rest = std::move(out.text);
    rest += matcher_.flush();
  }
  Piece piece = split(std::move(rest));
  if (!splitter_) return piece;
  ThinkingSplitter::Parts parts = splitter_->finish();
  piece.text += parts.answer;
  if (options_.show_thinking) piece.thinking += parts.thinking;
  return piece;
}

}  // namespace tidemill
