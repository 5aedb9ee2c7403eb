// An engine on the simulated executor and a virtual clock, driven step by step, with everything it said kept by
// request.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "sim/simulated_executor.h"
#include "sim/virtual_clock.h"

namespace tidemill {

constexpr TokenId end_token = 7;

// A pool of `num_blocks` blocks of `block_size` tokens in one full layer group.
inline EngineConfig pool_config(int32_t num_blocks, int32_t block_size, int32_t max_model_len = 1024) {
  EngineConfig config;
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 0}};
  config.block_size_tokens = block_size;
  config.kv_budget_bytes = static_cast<size_t>(num_blocks) * 100;
  config.max_model_len_tokens = max_model_len;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 64;
  config.itl_multiple = 0;  // tests of what a step costs set it
  config.seed = 1;
  config.vocabulary_end_ids = {end_token};
  return config;
}

// Tokens that depend on the name alone; never the end token.
inline std::vector<TokenId> prompt_of(int32_t num_tokens, int32_t name = 0) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < num_tokens; ++i) tokens.push_back(100 + (name * 7919 + i * 31 + i * i % 17) % 800);
  return tokens;
}

inline Request make_request(int32_t num_prompt_tokens, int64_t max_tokens, int32_t name = 0) {
  Request request;
  request.prompt = prompt_of(num_prompt_tokens, name);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  return request;
}

// One choice's answer.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<Draw> draws;
  std::vector<uint64_t> steps;     // in which each token came
  std::vector<Clock::Time> times;  // when
  std::optional<RequestEvent> finished;
};

class Harness : public EventListener {
 public:
  explicit Harness(const EngineConfig& config, SimulatedOptions options = {}) : config_(config) {
    options.clock = &clock_;
    const auto observer = options.observer;
    options.observer = [this, observer](const StepPlan& plan, const StepResult& result) {
      ++num_steps;
      last_plan = plan;
      max_rows = std::max(max_rows, plan.num_rows());
      if (observer) observer(plan, result);
    };
    engine_ = std::make_unique<Engine>(config, std::make_unique<SimulatedExecutor>(config, options), clock_, *this);
  }
  ~Harness() override { engine_.reset(); }

  void publish(std::vector<RequestEvent> events) override {
    for (RequestEvent& event : events) {
      ASSERT_FALSE(done[event.request]) << "an event after the last one";
      if (event.kind == RequestEvent::Kind::progress) {
        progress[event.request].push_back(event);
      } else if (event.kind == RequestEvent::Kind::prompt_logprobs) {
        EXPECT_FALSE(prompt_logprobs.contains(event.request));
        prompt_logprobs[event.request] = event.prompt_logprobs;
      } else {
        take(event);
      }
    }
  }

  RequestId submit(Request request) {
    auto result = engine_->submit(std::move(request));
    const RequestId* id = std::get_if<RequestId>(&result);
    EXPECT_NE(id, nullptr) << (id ? "" : std::get<Refusal>(result).message);
    return id ? *id : 0;
  }
  Refusal refused(Request request) {
    auto result = engine_->submit(std::move(request));
    EXPECT_TRUE(std::holds_alternative<Refusal>(result));
    return std::holds_alternative<Refusal>(result) ? std::get<Refusal>(result) : Refusal{};
  }
  void step(int num = 1) {
    for (int i = 0; i < num; ++i) {
      engine_->step_once();
      engine_->check_integrity();
    }
  }
  // Steps until nothing is left to do.
  void run(int most_steps = 100000) {
    for (int i = 0; i < most_steps; ++i) {
      const bool busy = engine_->step_once();
      if (busy) engine_->check_integrity();
      if (!busy) return;
    }
    FAIL() << "not done after " << most_steps << " steps";
  }
  std::vector<TokenId> run_alone(Request request) {
    const RequestId id = submit(std::move(request));
    run();
    return answer(id).tokens;
  }

  Answer& answer(RequestId id, int32_t choice = 0) { return answers[{id, choice}]; }
  Engine& engine() { return *engine_; }
  VirtualClock& clock() { return clock_; }

  // No sequence, no block held; what is not free is cached.
  void expect_quiet() {
    run();
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_requests_running, 0);
    EXPECT_EQ(stats.num_requests_waiting, 0);
    EXPECT_EQ(stats.num_queued_tokens, 0);
    EXPECT_EQ(stats.kv_held_bytes, 0u);
    EXPECT_LE(stats.kv_cached_bytes, stats.kv_budget_bytes);
    engine_->check_integrity();
  }

  std::map<std::pair<RequestId, int32_t>, Answer> answers;
  std::map<RequestId, bool> done;
  std::map<RequestId, std::vector<Draw>> prompt_logprobs;
  std::map<RequestId, std::vector<RequestEvent>> progress;
  uint64_t num_steps = 0;
  int32_t max_rows = 0;
  StepPlan last_plan;

 private:
  void take(RequestEvent& event) {
    Answer& answer = answers[{event.request, event.choice}];
    ASSERT_FALSE(answer.finished) << "an event of a choice that ended";
    if (event.kind == RequestEvent::Kind::token) {
      answer.tokens.push_back(event.draw.token);
      answer.draws.push_back(event.draw);
      answer.steps.push_back(num_steps);
      answer.times.push_back(clock_.now());
    } else {
      answer.finished = event;
      done[event.request] = event.request_done;
    }
  }

  EngineConfig config_;
  VirtualClock clock_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace tidemill
