#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/split_mix.h"
#include "sampling/vocabulary_math.h"

namespace tidemill {
namespace {

constexpr float barred = -std::numeric_limits<float>::infinity();
// log(sum(exp(logit))) over all logits.
double log_sum_exp(std::span<const float> logits) {
  const float best = highest_logit(logits);
  return best == barred ? best : best + std::log(sum_of_exp(logits, best, 1.0f));
}

bool usable(TokenId token, size_t vocab_size) {
  return token >= 0 && static_cast<size_t>(token) < vocab_size;
}

void apply_penalties(std::span<float> logits, const SamplingParams& params, const TokenHistory& history) {
  if (params.repetition_penalty == 1 && params.presence_penalty == 0 && params.frequency_penalty == 0) return;
  for (const auto& [token, count] : history.counts()) {
    if (!usable(token, logits.size())) continue;
    float& logit = logits[token];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.frequency_penalty * static_cast<float>(count.output);
    if (count.output > 0) logit -= params.presence_penalty;
  }
}

// Bars the last token of every bad word whose beginning is the end of the history.
void bar_bad_words(std::span<float> logits, const SamplingParams& params, const TokenHistory& history) {
  const auto tokens = history.tokens();
  for (const std::vector<TokenId>& word : params.bad_words) {
    if (word.empty() || word.size() - 1 > tokens.size()) continue;
    const auto begun = tokens.last(word.size() - 1);
    if (std::equal(begun.begin(), begun.end(), word.begin()) && usable(word.back(), logits.size()))
      logits[word.back()] = barred;
  }
}

void bar(std::span<float> logits, const std::vector<TokenId>& tokens) {
  for (TokenId token : tokens)
    if (usable(token, logits.size())) logits[token] = barred;
}

void keep_only(std::span<float> logits, std::vector<TokenId> allowed) {
  std::sort(allowed.begin(), allowed.end());
  size_t next = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    while (next < allowed.size() && allowed[next] < static_cast<TokenId>(i)) ++next;
    if (next == allowed.size() || allowed[next] != static_cast<TokenId>(i)) logits[i] = barred;
  }
}

void apply_masks(std::span<float> logits, const SamplingParams& params, const TokenHistory& history) {
  for (const auto& [token, bias] : params.logit_bias)
    if (usable(token, logits.size())) logits[token] += bias;
  if (!params.allowed_token_ids.empty()) keep_only(logits, params.allowed_token_ids);
  if (!params.bad_words.empty()) bar_bad_words(logits, params, history);
  if (history.num_output_tokens() < params.min_tokens) {
    bar(logits, params.end_token_ids);
    bar(logits, params.stop_token_ids);
  }
}

bool changes_logits(const SamplingParams& p, const TokenHistory& history) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0 || !p.logit_bias.empty() ||
         !p.allowed_token_ids.empty() || !p.bad_words.empty() || history.num_output_tokens() < p.min_tokens;
}

// Likelier first; equal ones by id, so that the order is total.
struct Likelier {
  std::span<const float> logits;
  bool operator()(TokenId a, TokenId b) const { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; }
};

// The smallest prefix whose weights exceed u * total ends with the drawn one; weightless ones are never drawn.
size_t pick(std::span<const float> weights, double total, double u) {
  double left = u * total;
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    last = i;
    left -= weights[i];
    if (left < 0) break;
  }
  return last;
}

// How the likely part of the vocabulary is found without sorting it whole: only tokens above a threshold are looked at,
// and it is lowered until what they hold fills the quota.
struct Truncation {
  std::span<const float> logits;
  const SamplingParams& params;
  float best = 0;
  float inverse_temperature = 1;
  double total = 0;  // weight of all candidates for top_p: of the whole vocabulary, or of the top k

  float weight(TokenId token) const { return exp_of_negative((logits[token] - best) * inverse_temperature); }
  bool limited() const { return params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size(); }

  // Leaves the kept tokens in order, likeliest first; false where the threshold was too high to tell.
  bool keep_above(float threshold, std::vector<TokenId>& order) {
    order.clear();
    for (size_t i = 0; i < logits.size(); ++i)
      if (logits[i] > threshold) order.push_back(static_cast<TokenId>(i));
    const Likelier likelier{logits};
    if (limited()) {
      const auto limit = static_cast<size_t>(params.top_k);
      if (order.size() < limit && threshold != barred) return false;
      if (limit < order.size()) {
        std::nth_element(order.begin(), order.begin() + params.top_k, order.end(), likelier);
        order.resize(limit);
      }
      total = 0;
    }
    std::sort(order.begin(), order.end(), likelier);
    if (limited())
      for (TokenId token : order) total += weight(token);
    if (params.top_p < 1 && !keep_nucleus(order) && threshold != barred) return false;
    while (order.size() > 1 && weight(order.back()) < params.min_p) order.pop_back();
    return true;
  }

  bool keep_nucleus(std::vector<TokenId>& order) const {
    double mass = 0;
    size_t kept = 0;
    while (kept < order.size() && mass < params.top_p * total) mass += weight(order[kept++]);
    order.resize(std::max<size_t>(kept, 1));
    return mass >= params.top_p * total;
  }
};

void truncate(std::span<const float> logits, const SamplingParams& params, float best, std::vector<TokenId>& order) {
  Truncation truncation{
      .logits = logits, .params = params, .best = best, .inverse_temperature = 1 / params.temperature};
  if (params.top_p < 1 && !truncation.limited())
    truncation.total = sum_of_exp(logits, best, truncation.inverse_temperature);
  for (float reach = 8; reach < 90; reach *= 3)
    if (truncation.keep_above(best - reach * params.temperature, order)) return;
  truncation.keep_above(barred, order);
}

}  // namespace

void TokenHistory::start(std::span<const TokenId> tokens, int32_t num_prompt_tokens) {
  tokens_.assign(tokens.begin(), tokens.end());
  num_prompt_tokens_ = num_prompt_tokens;
  counts_.clear();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    Count& count = counts_[tokens_[i]];
    ++(static_cast<int32_t>(i) < num_prompt_tokens ? count.prompt : count.output);
  }
}

void TokenHistory::append(TokenId token) {
  tokens_.push_back(token);
  ++counts_[token].output;
}

double uniform_draw(uint64_t seed, uint64_t position) {
  // Twice, so that neighbouring seeds and positions have unrelated draws.
  return static_cast<double>(split_mix(split_mix(seed) ^ position) >> 11) * 0x1.0p-53;
}

TokenId Sampler::choose(std::span<const float> logits, const SamplingParams& params, double u) {
  const float best = highest_logit(logits);
  if (params.temperature <= 0 || params.top_k == 1 || best == barred) return first_highest(logits);
  const bool truncated = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
  if (!truncated) {
    weights_.resize(logits.size());
    const double total = exp_weights(logits, best, 1 / params.temperature, weights_);
    return static_cast<TokenId>(pick(weights_, total, u));
  }
  truncate(logits, params, best, order_);
  weights_.resize(order_.size());
  double total = 0;
  for (size_t i = 0; i < order_.size(); ++i)
    total += weights_[i] = exp_of_negative((logits[order_[i]] - best) / params.temperature);
  return order_[pick(weights_, total, u)];
}

Draw Sampler::draw(std::span<const float> logits, const SamplingParams& params, const TokenHistory& history) {
  TM_CHECK(!logits.empty(), "a draw needs logits");
  std::span<const float> final_logits = logits;
  if (changes_logits(params, history)) {
    work_.assign(logits.begin(), logits.end());
    apply_penalties(work_, params, history);
    apply_masks(work_, params, history);
    final_logits = work_;
  }
  const double u = uniform_draw(params.seed, static_cast<uint64_t>(history.num_output_tokens()));
  const TokenId token = choose(final_logits, params, u);
  if (params.logprobs < 0) return Draw{.token = token, .logprob = 0, .rank = 0, .top = {}};
  return score(logits, token, params.logprobs);
}

Draw Sampler::score(std::span<const float> logits, TokenId token, int32_t num_top) {
  TM_CHECK(usable(token, logits.size()), "a scored token is in the vocabulary");
  const double total = log_sum_exp(logits);
  const auto logprob = [&](TokenId id) { return static_cast<float>(logits[id] - total); };
  Draw draw{.token = token, .logprob = logprob(token), .rank = 1 + count_above(logits, logits[token]), .top = {}};
  const size_t count = std::min<size_t>(std::max(num_top, 0), logits.size());
  if (count == 0) return draw;
  // A heap of the count best: one pass, no sort of the vocabulary.
  const Likelier likelier{logits};
  std::vector<TokenId> best;
  best.reserve(count + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (best.size() == count && !likelier(id, best.front())) continue;
    best.push_back(id);
    std::push_heap(best.begin(), best.end(), likelier);
    if (best.size() > count) {
      std::pop_heap(best.begin(), best.end(), likelier);
      best.pop_back();
    }
  }
  std::sort_heap(best.begin(), best.end(), likelier);
  for (size_t i = 0; i < best.size(); ++i) draw.top.push_back({best[i], logprob(best[i]), static_cast<int32_t>(i) + 1});
  return draw;
}

}  // namespace tidemill
