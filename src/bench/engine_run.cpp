#include "bench/engine_run.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "engine/engine.h"

namespace tidemill {
namespace {

using std::chrono::steady_clock;

// Positions of each sequence whose keys and values are stored, from the plans that pass by.
class StoredPositions {
 public:
  void note(const StepPlan& plan) {
    for (const SlotId slot : plan.ended) positions_.erase(slot);
    for (const PlannedSequence& planned : plan.sequences) {
      positions_[planned.slot] = planned.first_position + planned.num_rows;
    }
  }
  double bytes(const EngineConfig& config) const {
    double total = 0;
    for (const auto& [slot, positions] : positions_) {
      for (const BlockGroup& group : config.groups) {
        const int32_t stored = group.window_tokens > 0 ? std::min(positions, group.window_tokens) : positions;
        total += static_cast<double>(group.sealed_bytes) * stored / config.block_size_tokens;
      }
    }
    return total;
  }

 private:
  std::unordered_map<SlotId, int32_t> positions_;
};

class WatchedExecutor final : public Executor {
 public:
  WatchedExecutor(std::unique_ptr<Executor> inner, StoredPositions& stored)
      : inner_(std::move(inner)), stored_(stored) {}
  StepResult execute(const StepPlan& plan) override {
    stored_.note(plan);
    return inner_->execute(plan);
  }

 private:
  std::unique_ptr<Executor> inner_;
  StoredPositions& stored_;
};

class ClosedLoop final : public EventListener {
 public:
  ClosedLoop(const BenchModel& model, const EngineConfig& config, std::span<const TokenRequest> requests,
             const EngineRunOptions& options)
      : config_(config),
        requests_(requests),
        options_(options),
        engine_(config, std::make_unique<WatchedExecutor>(model.make_executor(), stored_), clock_, *this) {}

  Result<EngineRunResult> run() {
    start_ = steady_clock::now();
    for (int32_t i = 0; i < options_.concurrency; ++i) submit_next();
    while (!open_.empty() && refusal_.empty()) {
      const double before = now_s();
      if (before > options_.limit_s || options_.should_stop()) cut_off();
      engine_.step_once();
      handle_events();
      note_step(now_s() - before);
    }
    if (!refusal_.empty()) return Error{refusal_};
    result_.wall_s = now_s();
    finish_means();
    return std::move(result_);
  }

  void publish(std::vector<RequestEvent> events) override {
    for (RequestEvent& event : events) events_.push_back(std::move(event));
  }

 private:
  double now_s() const { return std::chrono::duration<double>(steady_clock::now() - start_).count(); }

  void submit_next() {
    if (next_ == requests_.size() || result_.cut_off) return;
    const TokenRequest& wanted = requests_[next_];
    Request request;
    request.prompt = wanted.prompt;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.max_tokens = wanted.max_tokens;
    RequestRecord record;
    record.index = next_++;
    record.class_name = wanted.class_name;
    record.start_s = now_s();
    const std::variant<RequestId, Refusal> outcome = engine_.submit(std::move(request));
    if (const Refusal* refusal = std::get_if<Refusal>(&outcome)) {
      refusal_ = fmt::format("request {} of the workload: {}", record.index + 1, refusal->message);
      return;
    }
    open_[std::get<RequestId>(outcome)] = result_.records.size();
    result_.records.push_back(std::move(record));
  }

  void handle_events() {
    const double now = now_s();
    any_ended_ = false;
    for (const RequestEvent& event : std::exchange(events_, {})) {
      RequestRecord& record = result_.records[open_.at(event.request)];
      if (event.kind == RequestEvent::Kind::token) {
        record.token_s.push_back(now);
        ++num_tokens_;
      }
      if (!event.request_done) continue;
      record.end_s = now;
      record.prompt_tokens = event.usage.prompt_tokens;
      record.cached_tokens = event.usage.cached_tokens;
      record.output_tokens = static_cast<int64_t>(record.token_s.size());
      if (event.reason == FinishReason::error) record.error = event.message;
      open_.erase(event.request);
      any_ended_ = true;
      ++num_done_;
      submit_next();
    }
  }

  void cut_off() {
    if (std::exchange(result_.cut_off, true)) return;
    for (const auto& [id, index] : open_) engine_.cancel(id);
  }

  void note_step(double seconds) {
    const EngineStats stats = engine_.stats();
    result_.num_steps = stats.num_steps;
    result_.num_preemptions = stats.num_preemptions;
    result_.peak_held_bytes = std::max(result_.peak_held_bytes, stats.kv_held_bytes);
    // Where a sequence has just ended, its blocks are gone already and its positions not yet.
    if (!any_ended_) {
      const auto held = static_cast<double>(stats.kv_held_bytes);
      result_.mean_held_bytes += held * seconds;
      result_.mean_used_bytes += std::min(stored_.bytes(config_), held) * seconds;
      result_.mean_running += stats.num_requests_running * seconds;
      weighed_s_ += seconds;
    }
    if (!options_.on_progress || now_s() - last_progress_s_ < 0.1) return;
    last_progress_s_ = now_s();
    options_.on_progress({num_done_, requests_.size(), open_.size(), num_tokens_, last_progress_s_});
  }

  void finish_means() {
    if (weighed_s_ == 0) return;
    result_.mean_held_bytes /= weighed_s_;
    result_.mean_used_bytes /= weighed_s_;
    result_.mean_running /= weighed_s_;
  }

  EngineConfig config_;
  std::span<const TokenRequest> requests_;
  const EngineRunOptions& options_;
  SystemClock clock_;
  StoredPositions stored_;
  std::vector<RequestEvent> events_;
  std::unordered_map<RequestId, size_t> open_;  // to the index of the record
  EngineRunResult result_;
  std::string refusal_;
  size_t next_ = 0, num_done_ = 0;
  int64_t num_tokens_ = 0;
  bool any_ended_ = false;
  double weighed_s_ = 0, last_progress_s_ = 0;
  steady_clock::time_point start_;
  Engine engine_;
};

}  // namespace

Result<std::vector<TokenRequest>> tokenize_workload(const BenchModel& model, std::span<const BenchRequest> requests) {
  std::vector<TokenRequest> tokenized;
  for (const BenchRequest& request : requests) {
    std::vector<TokenId> prompt = model.tokenizer->encode(request.prompt);
    const int64_t total = static_cast<int64_t>(prompt.size()) + request.max_tokens;
    if (prompt.empty() || total > model.config.max_model_len_tokens) {
      return error("request {} of the workload has {} prompt and {} new tokens; the limit of both is {}",
                   tokenized.size() + 1, prompt.size(), request.max_tokens, model.config.max_model_len_tokens);
    }
    tokenized.push_back({std::move(prompt), request.max_tokens, request.class_name});
  }
  return tokenized;
}

Result<EngineRunResult> run_in_engine(const BenchModel& model, const EngineConfig& config,
                                      std::span<const TokenRequest> requests, const EngineRunOptions& options) {
  return ClosedLoop(model, config, requests, options).run();
}

}  // namespace tidemill
