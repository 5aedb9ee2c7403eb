// One choice of a running answer: its tokens become text, the text ends at stop strings, thinking is set apart.
//
// One stream, on the delivery thread. What comes out joined is the final text, whether the reply is streamed or not:
// both are made from the same pieces.
#pragma once

#include <optional>
#include <string>

#include "server/openai/generation_request.h"
#include "server/openai/thinking_splitter.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace tidemill {

class ChoiceText {
 public:
  // All three outlive it.
  ChoiceText(const ServedModel& model, const ReplyOptions& options, const SamplingParams& sampling);

  struct Piece {
    std::string text;      // of the answer
    std::string thinking;  // of its reasoning
    bool stopped = false;  // a stop string ended the choice with this token
    bool empty() const { return text.empty() && thinking.empty(); }
  };
  Piece push(TokenId token);
  Piece finish();

  int32_t num_tokens() const { return num_tokens_; }  // up to the one that completed a stop string
  int32_t num_thinking_tokens() const { return num_thinking_tokens_; }
  bool stopped() const { return matcher_.stopped(); }
  const std::string& stop_string() const { return stop_string_; }

 private:
  Piece split(std::string text);
  bool ends_silently(TokenId token) const;

  const ReplyOptions& options_;
  const SamplingParams& sampling_;
  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::optional<ThinkingSplitter> splitter_;
  std::string stop_string_;
  int32_t num_tokens_ = 0;
  int32_t num_thinking_tokens_ = 0;
};

}  // namespace tidemill
