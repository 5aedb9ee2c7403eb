// How one sequence wants its tokens drawn: a plain value, part of a plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/token.h"

namespace tidemill {

struct SamplingParams {
  float temperature = 1.0f;         // 0 = greedy: the highest logit, the lowest id among equals
  int32_t top_k = 0;                // 0 = all
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1], relative to the most likely token
  float repetition_penalty = 1.0f;  // over prompt and output, as in the CTRL paper (arXiv:1909.05858)
  float presence_penalty = 0.0f;    // over the output, as OpenAI defines it
  float frequency_penalty = 0.0f;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> allowed_token_ids;       // empty = all
  std::vector<std::vector<TokenId>> bad_words;  // token sequences that must not be completed
  std::vector<TokenId> stop_token_ids;          // end the sequence; barred before min_tokens
  std::vector<TokenId> end_token_ids;           // the model's own; barred before min_tokens and where ignore_eos
  bool ignore_eos = false;  // end_token_ids do not end the sequence (they stay drawable, as in vLLM and llama.cpp)
  int32_t min_tokens = 0;
  int32_t logprobs = -1;  // -1 = none; k = the drawn token's and the k best
  uint64_t seed = 0;      // draws depend on (seed, position in the output) alone
};

}  // namespace tidemill
