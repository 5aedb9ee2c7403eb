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

size_t last_weighted(std::span<const float> weights) {
  size_t i = weights.size() - 1;
  while (i > 0 && weights[i] == 0) --i;
  return i;
}

// The smallest prefix whose weights exceed u * total ends with the drawn one; weightless ones are never drawn. Runs of
// weights are passed over by their sums.
size_t pick(std::span<const float> weights, double total, double u) {
  constexpr size_t run = 512;
  double left = u * total;
  size_t last = 0;
  for (size_t begin = 0; begin < weights.size(); begin += run) {
    const std::span<const float> here = weights.subspan(begin, std::min(run, weights.size() - begin));
    const double sum = sum_of(here);
    if (left >= sum && begin + run < weights.size()) {
      left -= sum;
      if (sum > 0) last = begin + last_weighted(here);
      continue;
    }
    for (size_t i = 0; i < here.size(); ++i) {
      if (here[i] == 0) continue;
      last = begin + i;
      left -= here[i];
      if (left < 0) return last;
    }
  }
  return last;
}

// How the likely part of the vocabulary is found without sorting it: only tokens above a threshold are looked at, and
// it is lowered until what they hold fills the quota; the quota's edge is found by parting, not by ordering.
class Truncation {
 public:
  Truncation(std::span<const float> logits, const SamplingParams& params, float best,
             std::vector<SamplingCandidate>& kept)
      : logits_(logits), params_(params), best_(best), inverse_temperature_(1 / params.temperature), kept_(kept) {
    if (params.top_p < 1 && !limited()) total_ = sum_of_exp(logits, best, inverse_temperature_);
  }

  void run() {
    for (float reach = 8; reach < 90; reach *= 3)
      if (keep_above(best_ - reach * params_.temperature)) return;
    keep_above(barred);
  }

 private:
  bool limited() const { return params_.top_k > 0 && static_cast<size_t>(params_.top_k) < logits_.size(); }

  // Leaves the kept tokens, in no order; false where the threshold was too high to tell.
  bool keep_above(float threshold) {
    kept_.clear();
    for (size_t i = 0; i < logits_.size(); ++i)
      if (logits_[i] > threshold) kept_.push_back({logits_[i], 0, static_cast<TokenId>(i)});
    if (limited()) {
      const auto limit = static_cast<size_t>(params_.top_k);
      if (kept_.size() < limit && threshold != barred) return false;
      if (limit < kept_.size()) {
        std::nth_element(kept_.begin(), kept_.begin() + params_.top_k, kept_.end(), likelier);
        kept_.resize(limit);
      }
    }
    double mass = 0;
    for (SamplingCandidate& candidate : kept_) {
      candidate.weight = exp_of_negative((candidate.logit - best_) * inverse_temperature_);
      mass += candidate.weight;
    }
    if (params_.top_p < 1) {
      const double quota = params_.top_p * (limited() ? mass : total_);
      if (mass < quota && threshold != barred) return false;
      keep_nucleus(quota);
    }
    // The likeliest token has weight 1, so that min_p leaves at least one.
    std::erase_if(kept_, [this](const SamplingCandidate& candidate) { return candidate.weight < params_.min_p; });
    return true;
  }

  // Keeps the likeliest tokens up to the one with which their weights reach the quota, and at least one. [0, low) are
  // kept for sure, [high, end) are not; the rest is parted around a middle one until it has one token.
  void keep_nucleus(double quota) {
    size_t low = 0, high = kept_.size();
    while (high - low > 1) {
      const SamplingCandidate pivot = middle_of(kept_[low], kept_[low + (high - low) / 2], kept_[high - 1]);
      const auto first_less = std::partition(kept_.begin() + low, kept_.begin() + high,
                                             [&](const auto& candidate) { return likelier(candidate, pivot); });
      const auto middle = static_cast<size_t>(first_less - kept_.begin());
      double mass = 0;
      for (size_t i = low; i < middle; ++i) mass += kept_[i].weight;
      if (mass >= quota) {
        high = middle;
        continue;
      }
      // The pivot is first among what is not likelier than itself; so each round settles at least one token.
      std::iter_swap(first_less, std::find_if(first_less, kept_.begin() + high,
                                              [&](const auto& candidate) { return candidate.token == pivot.token; }));
      quota -= mass + pivot.weight;
      low = middle + 1;
      if (quota <= 0) high = low;
    }
    // One token is left undecided where the others fell short of the quota.
    kept_.resize(std::max<size_t>(high, 1));
  }

  static bool likelier(const SamplingCandidate& a, const SamplingCandidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
  static SamplingCandidate middle_of(const SamplingCandidate& a, const SamplingCandidate& b,
                                     const SamplingCandidate& c) {
    if (likelier(a, b)) return likelier(b, c) ? b : likelier(a, c) ? c : a;
    return likelier(a, c) ? a : likelier(b, c) ? c : b;
  }

  const std::span<const float> logits_;
  const SamplingParams& params_;
  const float best_;
  const float inverse_temperature_;
  double total_ = 0;  // weight of the whole vocabulary, where top_p refers to it
  std::vector<SamplingCandidate>& kept_;
};

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
  if (params.temperature <= 0 || params.top_k == 1) return first_highest(logits);
  const float best = highest_logit(logits);
  if (best == barred) return first_highest(logits);
  const bool truncated = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
  if (!truncated) {
    weights_.resize(logits.size());
    const double total = exp_weights(logits, best, 1 / params.temperature, weights_);
    return static_cast<TokenId>(pick(weights_, total, u));
  }
  Truncation(logits, params, best, candidates_).run();
  double total = 0;
  for (const SamplingCandidate& candidate : candidates_) total += candidate.weight;
  weights_.clear();
  for (const SamplingCandidate& candidate : candidates_) weights_.push_back(candidate.weight);
  return candidates_[pick(weights_, total, u)].token;
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
