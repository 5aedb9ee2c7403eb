// Time of one draw by kind of sampling, on one thread: sampling_bench [vocabulary size].
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "sampling/sampler.h"

namespace {

using Clock = std::chrono::steady_clock;

// Rows of logits as of a batch, so that each comes from memory as in a step; a few likely tokens over a wide rest.
std::vector<std::vector<float>> rows_of(size_t vocab_size) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<std::vector<float>> rows(64, std::vector<float>(vocab_size));
  for (auto& row : rows) {
    for (float& logit : row) logit = normal(random);
    for (int i = 0; i < 20; ++i) row[random() % vocab_size] += 8.0f;
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t vocab_size = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 49152;
  if (vocab_size < 1000 || vocab_size > 10'000'000) {
    std::fprintf(stderr, "sampling_bench: the vocabulary's size must be 1000 to 10000000\n");
    return 2;
  }
  const auto rows = rows_of(vocab_size);
  struct Kind {
    const char* name = "";
    tidemill::SamplingParams params;
  };
  std::vector<Kind> kinds;
  const auto add = [&kinds](const char* name, float temperature, int32_t top_k, float top_p, float repetition) {
    Kind& kind = kinds.emplace_back();
    kind.name = name;
    kind.params.temperature = temperature;
    kind.params.top_k = top_k;
    kind.params.top_p = top_p;
    kind.params.repetition_penalty = repetition;
  };
  add("greedy", 0, 0, 1, 1);
  add("temperature 1", 1, 0, 1, 1);
  add("top_k 40", 1, 40, 1, 1);
  add("top_p 0.95", 1, 0, 0.95f, 1);
  add("temperature 0.8, top_k 64, top_p 0.95", 0.8f, 64, 0.95f, 1);
  add("repetition 1.1, top_p 0.9", 1, 0, 0.9f, 1.1f);
  tidemill::TokenHistory history;
  std::vector<tidemill::TokenId> prompt(200);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<tidemill::TokenId>(i * 37 % vocab_size);
  history.start(prompt, 200);
  for (Kind& kind : kinds) {
    tidemill::Sampler sampler;
    std::vector<double> times;
    long long sum = 0;
    for (uint64_t round = 0; round < 5; ++round) {
      const auto begin = Clock::now();
      for (const auto& row : rows) {
        kind.params.seed = kind.params.seed * 31 + round;
        sum += sampler.draw(row, kind.params, history).token;
      }
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / 64);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-40s %8.1f us a draw (sum %lld)\n", kind.name, times[times.size() / 2], sum);
  }
}
