#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace tidemill {
namespace {

constexpr float kBarred = -std::numeric_limits<float>::infinity();
// Logits of the softmax sum are added in this many strided lanes, then pairwise: the order depends on nothing else.
constexpr size_t kSumLanes = 16;

double reduce_lanes(const double (&lanes)[kSumLanes]) {
  double sums[kSumLanes];
  std::copy(std::begin(lanes), std::end(lanes), sums);
  for (size_t width = kSumLanes / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  return sums[0];
}

float highest(std::span<const float> logits) {
  float best = kBarred;
  for (float value : logits) best = value > best ? value : best;
  return best;
}

// log(sum(exp(logit))) over all logits.
double log_sum_exp(std::span<const float> logits) {
  const float best = highest(logits);
  if (best == kBarred) return kBarred;
  double lanes[kSumLanes] = {};
  for (size_t i = 0; i < logits.size(); ++i) lanes[i % kSumLanes] += std::exp(logits[i] - best);
  return best + std::log(reduce_lanes(lanes));
}

TokenId argmax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<TokenId>(best);
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
      logits[word.back()] = kBarred;
  }
}

void bar(std::span<float> logits, const std::vector<TokenId>& tokens) {
  for (TokenId token : tokens)
    if (usable(token, logits.size())) logits[token] = kBarred;
}

void keep_only(std::span<float> logits, std::vector<TokenId> allowed) {
  std::sort(allowed.begin(), allowed.end());
  size_t next = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    while (next < allowed.size() && allowed[next] < static_cast<TokenId>(i)) ++next;
    if (next == allowed.size() || allowed[next] != static_cast<TokenId>(i)) logits[i] = kBarred;
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

// Draws one token of candidates in a fixed order: the smallest prefix whose weights exceed u * total.
TokenId pick(std::span<const TokenId> candidates, std::span<const double> weights, double total, double u) {
  double left = u * total;
  for (size_t i = 0; i < candidates.size(); ++i) {
    left -= weights[i];
    if (left < 0) return candidates[i];
  }
  return candidates.back();
}

// The likely part of the vocabulary, without sorting it whole: the nucleus and the top k are found among the tokens
// above a threshold that is lowered until they fit.
std::vector<TokenId> truncate(std::span<const float> logits, const SamplingParams& params,
                              std::vector<TokenId>& order) {
  const float best = highest(logits);
  const float temperature = params.temperature;
  const size_t vocab_size = logits.size();
  const size_t limit = params.top_k > 0 ? std::min<size_t>(params.top_k, vocab_size) : vocab_size;
  const Likelier likelier{logits};
  double total = 0;
  if (params.top_p < 1 && limit == vocab_size) {
    double lanes[kSumLanes] = {};
    for (size_t i = 0; i < vocab_size; ++i) lanes[i % kSumLanes] += std::exp((logits[i] - best) / temperature);
    total = reduce_lanes(lanes);
  }
  // exp(-reach) relative to the best: what is below can only be needed when what is above does not fill the quota.
  for (float reach = 8;; reach *= 4) {
    const bool everything = reach > 1e4f;
    const float floor = everything ? kBarred : best - reach * temperature;
    order.clear();
    for (size_t i = 0; i < vocab_size; ++i)
      if (logits[i] > floor) order.push_back(static_cast<TokenId>(i));
    if (!everything && limit < vocab_size && order.size() < limit) continue;
    if (limit < order.size()) {
      std::nth_element(order.begin(), order.begin() + limit, order.end(), likelier);
      order.resize(limit);
    }
    std::sort(order.begin(), order.end(), likelier);
    if (limit < vocab_size) {
      total = 0;
      for (TokenId token : order) total += std::exp((logits[token] - best) / temperature);
    }
    size_t kept = order.size();
    if (params.top_p < 1) {
      double mass = 0;
      size_t i = 0;
      while (i < order.size() && mass < params.top_p * total)
        mass += std::exp((logits[order[i++]] - best) / temperature);
      if (mass < params.top_p * total && !everything) continue;  // the nucleus reaches below the threshold
      kept = std::max<size_t>(i, 1);
    }
    if (params.min_p > 0) {
      const double floor_p = params.min_p;
      while (kept > 1 && std::exp((logits[order[kept - 1]] - best) / temperature) < floor_p) --kept;
    }
    order.resize(kept);
    return order;
  }
}

TokenId draw_all(std::span<const float> logits, float temperature, double u) {
  const float best = highest(logits);
  double lanes[kSumLanes] = {};
  for (size_t i = 0; i < logits.size(); ++i) lanes[i % kSumLanes] += std::exp((logits[i] - best) / temperature);
  double left = u * reduce_lanes(lanes);
  TokenId last = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - best) / temperature);
    if (weight == 0) continue;
    last = static_cast<TokenId>(i);
    left -= weight;
    if (left < 0) return last;
  }
  return last;
}

TokenId choose(std::span<const float> logits, const SamplingParams& params, double u, std::vector<TokenId>& order) {
  if (params.temperature <= 0 || params.top_k == 1) return argmax(logits);
  if (highest(logits) == kBarred) return argmax(logits);
  const bool truncated = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
  if (!truncated) return draw_all(logits, params.temperature, u);
  const std::vector<TokenId> kept = truncate(logits, params, order);
  const float best = logits[kept.front()];
  std::vector<double> weights(kept.size());
  double total = 0;
  for (size_t i = 0; i < kept.size(); ++i)
    total += weights[i] = std::exp((logits[kept[i]] - best) / params.temperature);
  return pick(kept, weights, total, u);
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
  // SplitMix64 (Steele, Lea, Flood 2014), twice, so that neighbouring seeds and positions have unrelated draws.
  const auto mix = [](uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  return static_cast<double>(mix(mix(seed) ^ position) >> 11) * 0x1.0p-53;
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
  const TokenId token = choose(final_logits, params, u, order_);
  if (params.logprobs < 0) return Draw{.token = token, .logprob = 0, .rank = 0, .top = {}};
  return score(logits, token, params.logprobs);
}

Draw Sampler::score(std::span<const float> logits, TokenId token, int32_t num_top) {
  TM_CHECK(usable(token, logits.size()), "a scored token is in the vocabulary");
  const double total = log_sum_exp(logits);
  const auto logprob = [&](TokenId id) { return static_cast<float>(logits[id] - total); };
  Draw draw{.token = token, .logprob = logprob(token), .rank = 1, .top = {}};
  for (float value : logits) draw.rank += value > logits[token];
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
