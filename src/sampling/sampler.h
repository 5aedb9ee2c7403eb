// Logits to tokens: penalties, masks, truncation and one draw, for one row.
//
// A draw depends on the logits, the parameters and the sequence's own history only: the random number comes from
// (seed, output position) by base/split_mix.h, never from a shared state.
// Reported log-probabilities are those of the model's raw logits (before penalties, temperature and truncation), as
// OpenAI's and vLLM's default report them.
//
// Sampler owns its scratch [vocab_size] and is used by one thread at a time; it allocates only when it grows.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token.h"
#include "sampling/sampling_params.h"

namespace tidemill {

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1 = the most likely
  bool operator==(const TokenLogprob&) const = default;
};

// A token and what was asked to be known of it.
struct Draw {
  TokenId token = 0;
  float logprob = 0;  // filled in where logprobs >= 0
  int32_t rank = 0;
  std::vector<TokenLogprob> top;  // the k best, most likely first
  bool operator==(const Draw&) const = default;
};

// What a sequence has said so far, kept up to date token by token so that penalties cost no pass over the history.
class TokenHistory {
 public:
  void start(std::span<const TokenId> tokens, int32_t num_prompt_tokens);
  void append(TokenId token);
  std::span<const TokenId> tokens() const { return tokens_; }
  int32_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int32_t num_output_tokens() const { return static_cast<int32_t>(tokens_.size()) - num_prompt_tokens_; }
  struct Count {
    int32_t prompt = 0;
    int32_t output = 0;
  };
  const std::unordered_map<TokenId, Count>& counts() const { return counts_; }

 private:
  std::vector<TokenId> tokens_;
  int32_t num_prompt_tokens_ = 0;
  std::unordered_map<TokenId, Count> counts_;
};

// A token that a draw may take, and its share of the draw: exp((logit - best) / temperature).
struct SamplingCandidate {
  float logit = 0;
  float weight = 0;
  TokenId token = 0;
};

class Sampler {
 public:
  // Draws the token that follows history from logits [vocab_size].
  Draw draw(std::span<const float> logits, const SamplingParams& params, const TokenHistory& history);

  // Log-probability and rank of a given token, and the k best, under the raw logits.
  static Draw score(std::span<const float> logits, TokenId token, int32_t num_top);

 private:
  TokenId choose(std::span<const float> logits, const SamplingParams& params, double u);

  std::vector<float> work_;     // logits after penalties and masks
  std::vector<float> weights_;  // of the candidates of a draw
  std::vector<SamplingCandidate> candidates_;
};

// Uniform in [0, 1) from (seed, position) alone.
double uniform_draw(uint64_t seed, uint64_t position);

}  // namespace tidemill
