// What each eviction policy and victim rule makes of a published trace: replays requests with the names of their prompt
// blocks (a .jsonl file with timestamp in ms, input_length, output_length, hash_ids per 512 tokens) on the real
// scheduler, pool and prefix cache, in virtual time, and prints a table.
//
//   kv_replay_bench TRACE.jsonl [--blocks N,N] [--requests N] [--policies fifo,lru,heuristic] [--victims
//   newest,heuristic]
//                   [--row-us X] [--answers X] [--max-seqs N]
//
// A token of the replay stands for 32 tokens of the trace, so a block of 16 stands for one of 512; times per row are
// given for a token of the trace. Columns: share of prompt tokens found in the cache; of those that were in the cache
// once (asked for again), the share found; tokens computed a second time (by eviction or preemption); blocks evicted
// that nobody had used again, of all evicted; preemptions; Jain's index over requests of the share found of what was
// asked again (1 = all served alike), and of slowness (latency per token).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/engine.h"
#include "sim/cost_model.h"
#include "sim/virtual_clock.h"

namespace tidemill {
namespace {

constexpr int32_t scale = 32;       // tokens of the trace per token of the replay
constexpr int32_t block_size = 16;  // 512 of the trace's
constexpr size_t block_bytes = 1000;

struct TraceRow {
  double time_s = 0;
  int32_t num_prompt_tokens = 0;  // of the replay
  int32_t num_output_tokens = 0;
  std::vector<int32_t> blocks;  // full ones
};

struct Options {
  std::string trace;
  std::vector<double> blocks = {1000, 3000, 10000, 30000, 60000};
  std::vector<std::string> policies = {"fifo", "lru", "heuristic"};
  std::vector<std::string> victims = {"heuristic"};
  size_t num_requests = SIZE_MAX;
  double row_us = 8;  // a token of the trace: 125,000 tokens/s
  int32_t max_seqs = 64;
  double answers = 1;  // times as long as in the trace
};

std::vector<TraceRow> read_trace(const Options& options) {
  std::vector<TraceRow> rows;
  std::ifstream in(options.trace);
  for (std::string line; rows.size() < options.num_requests && std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("hash_ids")) continue;
    TraceRow& each = rows.emplace_back();
    each.time_s = row.value("timestamp", 0.0) / 1000;
    const int32_t num_tokens = row.value("input_length", 1);
    each.num_prompt_tokens = std::max(1, (num_tokens + scale - 1) / scale);
    each.num_output_tokens = std::max(1, static_cast<int32_t>(row.value("output_length", 1) * options.answers / scale));
    each.blocks = row["hash_ids"].get<std::vector<int32_t>>();
    each.blocks.resize(std::min<size_t>(each.blocks.size(), num_tokens / (scale * block_size)));
  }
  return rows;
}

// The tokens of a prompt: a full block's by its name, the rest by the request's number.
std::vector<TokenId> prompt_of(const TraceRow& row, size_t number) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < row.num_prompt_tokens; ++i) {
    const size_t block = static_cast<size_t>(i) / block_size;
    const bool full = block < row.blocks.size();
    tokens.push_back(full && i % block_size == 0 ? row.blocks[block] : static_cast<TokenId>(full ? 1 : number + 2));
  }
  return tokens;
}

// Draws a constant; time passes by the cost model.
class TimedExecutor final : public Executor {
 public:
  TimedExecutor(CostModel cost, VirtualClock& clock) : cost_(cost), clock_(clock) {}
  StepResult execute(const StepPlan& plan) override {
    StepResult result = std::exchange(spare_, {});
    result.sequences.clear();
    result.sequences.resize(plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      if (plan.sequences[i].draw) result.sequences[i].draw.emplace().token = 0;
    }
    clock_.advance(cost_.cost(plan));
    return result;
  }
  void recycle(StepResult result) override { spare_ = std::move(result); }

 private:
  CostModel cost_;
  VirtualClock& clock_;
  StepResult spare_;
};

double jain(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 1;
}

class Replay final : public EventListener {
 public:
  Replay(const Options& options, const std::vector<TraceRow>& rows, EngineConfig config) : rows_(rows) {
    config.groups = {{.tail_bytes = block_bytes, .sealed_bytes = block_bytes, .same_format = true, .window_tokens = 0}};
    config.block_size_tokens = block_size;
    config.max_model_len_tokens = 8192;
    config.max_num_seqs = options.max_seqs;
    config.max_num_batched_tokens = 1024;
    config.max_num_queued_requests = 0;
    config.itl_multiple = 0;
    config.seed = 1;
    const auto row = std::chrono::nanoseconds(static_cast<int64_t>(options.row_us * 1000 * scale));
    const CostModel cost{.per_step = std::chrono::milliseconds(10),
                         .per_row = row,
                         .per_position = std::chrono::nanoseconds(0),
                         .per_prompt_position = row / 1024};
    engine_ = std::make_unique<Engine>(config, std::make_unique<TimedExecutor>(cost, clock_), clock_, *this);
  }

  void publish(std::vector<RequestEvent> events) override {
    for (const RequestEvent& event : events) {
      if (event.kind != RequestEvent::Kind::finished) continue;
      const size_t index = numbers_.at(event.request);
      const TraceRow& row = rows_[index];
      const double latency_s = std::chrono::duration<double>(clock_.now() - begin_).count() - row.time_s;
      slowness_.push_back(latency_s / (row.num_prompt_tokens + 20.0 * row.num_output_tokens));
      const int32_t found = event.usage.cached_tokens / block_size;
      num_found_ += found;
      if (wanted_[index] > 0) shares_.push_back(std::min(1.0, static_cast<double>(found) / wanted_[index]));
      --num_open_;
    }
  }

  void run() {
    count_wanted();
    for (size_t next = 0; next < rows_.size() || num_open_ > 0;) {
      for (; next < rows_.size() && rows_[next].time_s <= now_s(); ++next) send(next);
      if (engine_->step_once() || next >= rows_.size()) continue;
      clock_.advance(std::chrono::nanoseconds(1 + static_cast<int64_t>((rows_[next].time_s - now_s()) * 1e9)));
    }
  }

  void print(int64_t num_blocks, const std::string& policy, const std::string& victim) {
    int64_t num_prompt = 0, num_wanted = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      num_prompt += rows_[i].num_prompt_tokens;
      num_wanted += wanted_[i];
    }
    const EngineStats stats = engine_->stats();
    const double found = static_cast<double>(num_found_) * block_size;
    const double again =
        (static_cast<double>(num_wanted) * block_size - found + static_cast<double>(stats.prompt_tokens_recomputed)) *
        scale / 1e6;
    fmt::print("{:7} {:>10} {:>10} {:7.2f} {:7.2f} {:9.2f} {:7.2f} {:8} {:7.3f} {:7.3f} {:8.0f}\n", num_blocks, policy,
               victim, 100 * found / static_cast<double>(num_prompt),
               100.0 * static_cast<double>(num_found_) / std::max<int64_t>(1, num_wanted), again,
               100.0 * static_cast<double>(stats.num_blocks_evicted_unused) /
                   std::max<double>(1, static_cast<double>(stats.num_blocks_evicted)),
               stats.num_preemptions, jain(shares_), jain(slowness_), now_s());
    std::fflush(stdout);
  }

 private:
  double now_s() const { return std::chrono::duration<double>(clock_.now() - begin_).count(); }

  // Blocks of each prompt that came before in the trace and may be found: not the one with the last token.
  void count_wanted() {
    std::unordered_set<int32_t> seen;
    wanted_.assign(rows_.size(), 0);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const int32_t most = (rows_[i].num_prompt_tokens - 1) / block_size;
      for (int32_t block = 0; block < std::min<int32_t>(most, std::ssize(rows_[i].blocks)); ++block)
        wanted_[i] += seen.contains(rows_[i].blocks[block]);
      seen.insert(rows_[i].blocks.begin(), rows_[i].blocks.end());
    }
  }

  void send(size_t index) {
    Request request;
    request.prompt = prompt_of(rows_[index], index);
    request.max_tokens = rows_[index].num_output_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    const auto answer = engine_->submit(std::move(request));
    if (const RequestId* id = std::get_if<RequestId>(&answer)) {
      numbers_[*id] = index;
      ++num_open_;
    } else {
      ++num_refused_;
    }
  }

  const std::vector<TraceRow>& rows_;
  VirtualClock clock_;
  Clock::Time begin_ = clock_.now();
  std::unique_ptr<Engine> engine_;
  std::unordered_map<RequestId, size_t> numbers_;
  std::vector<int32_t> wanted_;
  std::vector<double> shares_, slowness_;
  int64_t num_found_ = 0;
  int64_t num_refused_ = 0;
  int32_t num_open_ = 0;
};

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> found;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    found.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

int run(const Options& options) {
  const std::vector<TraceRow> rows = read_trace(options);
  if (rows.empty()) {
    fmt::print(stderr, "{} holds no requests\n", options.trace);
    return 1;
  }
  fmt::print("{:>7} {:>10} {:>10} {:>7} {:>7} {:>9} {:>7} {:>8} {:>7} {:>7} {:>8}\n", "blocks", "policy", "victim",
             "hit %", "again %", "Mtok anew", "waste %", "preempt", "J hit", "J slow", "wall s");
  for (double num_blocks : options.blocks) {
    for (const std::string& policy : options.policies) {
      for (const std::string& victim : options.victims) {
        EngineConfig config;
        config.kv_budget_bytes = static_cast<size_t>(num_blocks) * block_bytes;
        const auto found = std::ranges::find(eviction_policy_names, policy);
        if (found == eviction_policy_names.end()) {
          fmt::print(stderr, "no policy is called {}\n", policy);
          return 1;
        }
        config.eviction = static_cast<EvictionPolicy>(found - eviction_policy_names.begin());
        config.victim = victim == "newest" ? VictimRule::newest : VictimRule::heuristic;
        Replay replay(options, rows, config);
        replay.run();
        replay.print(static_cast<int64_t>(num_blocks), policy, victim);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace tidemill

int main(int argc, char** argv) {
  tidemill::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = name.starts_with("--") && i + 1 < argc;
    const std::string value = has_value ? argv[++i] : "";
    if (name == "--blocks") {
      options.blocks.clear();
      for (const std::string& word : tidemill::words(value)) options.blocks.push_back(std::atof(word.c_str()));
    } else if (name == "--policies") {
      options.policies = tidemill::words(value);
    } else if (name == "--victims") {
      options.victims = tidemill::words(value);
    } else if (name == "--requests") {
      options.num_requests = static_cast<size_t>(std::atoll(value.c_str()));
    } else if (name == "--row-us") {
      options.row_us = std::atof(value.c_str());
    } else if (name == "--answers") {
      options.answers = std::max(0.0, std::atof(value.c_str()));
    } else if (name == "--max-seqs") {
      options.max_seqs = std::max(1, std::atoi(value.c_str()));
    } else if (!name.starts_with("--") && options.trace.empty()) {
      options.trace = name;
    } else {
      std::fprintf(stderr, "unknown argument %s\n", name.c_str());
      return 1;
    }
  }
  return tidemill::run(options);
}
