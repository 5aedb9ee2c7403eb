// Batching modes, --kv-cache off, --kv-reserve full, windows and encoded blocks: other schedules, the same answers
// (H28).
#include <gtest/gtest.h>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

struct Mode {
  std::string name;
  std::function<void(EngineConfig&)> change;
};
void PrintTo(const Mode& mode, std::ostream* out) {
  *out << mode.name;
}

class Modes : public testing::TestWithParam<Mode> {};

std::vector<Request> prompts32() {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 32; ++i) {
    Request request = make_request(1 + (i * i * 37) % 300, 64, i);
    request.sampling.logprobs = 5;
    requests.push_back(request);
  }
  return requests;
}

const std::vector<std::vector<Draw>>& answers_alone() {
  static const std::vector<std::vector<Draw>> answers = [] {
    std::vector<std::vector<Draw>> all;
    for (const Request& request : prompts32()) {
      EngineConfig config = pool_config(100, 16);
      config.prefix_caching = false;
      Harness harness(config);
      const RequestId id = harness.submit(request);
      harness.run();
      all.push_back(harness.answer(id).draws);
    }
    return all;
  }();
  return answers;
}

TEST_P(Modes, AnswersDoNotDependOnTheCompany) {
  EngineConfig config = pool_config(256, 16);
  config.max_num_seqs = 32;
  GetParam().change(config);
  const std::vector<Request> requests = prompts32();
  for (const int32_t at_once : {1, 2, 7, 32}) {
    for (const bool reverse : {false, true}) {
      Harness harness(config);
      std::vector<std::pair<int32_t, RequestId>> ids;
      for (int32_t i = 0; i < 32; ++i) {
        const int32_t which = reverse ? 31 - i : i;
        ids.emplace_back(which, harness.submit(requests[which]));
        if (i % at_once == at_once - 1) harness.step(i % 5);
      }
      harness.run();
      for (const auto& [which, id] : ids) EXPECT_EQ(harness.answer(id).draws, answers_alone()[which]) << which;
      if (config.kv_cache) {
        EXPECT_LE(harness.max_rows, config.max_num_batched_tokens);
      }
      harness.expect_quiet();
    }
  }
}

void encode(EngineConfig& config) {
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 30, .same_format = false, .window_tokens = 0}};
}

INSTANTIATE_TEST_SUITE_P(All, Modes,
                         testing::Values(Mode{"chunk_1", [](EngineConfig& c) { c.max_num_batched_tokens = 1; }},
                                         Mode{"chunk_16", [](EngineConfig& c) { c.max_num_batched_tokens = 16; }},
                                         Mode{"chunk_17", [](EngineConfig& c) { c.max_num_batched_tokens = 17; }},
                                         Mode{"unlimited", [](EngineConfig& c) { c.max_num_batched_tokens = 1 << 20; }},
                                         Mode{"block_32",
                                              [](EngineConfig& c) {
                                                c.block_size_tokens = 32;
                                                c.kv_budget_bytes /= 2;
                                              }},
                                         Mode{"none", [](EngineConfig& c) { c.batching = BatchingMode::none; }},
                                         Mode{"fixed", [](EngineConfig& c) { c.batching = BatchingMode::fixed; }},
                                         Mode{"kv_off", [](EngineConfig& c) { c.kv_cache = false; }},
                                         Mode{"reserve_full", [](EngineConfig& c) { c.kv_reserve = KvReserve::full; }},
                                         Mode{"encoded", encode},
                                         Mode{"windows",
                                              [](EngineConfig& c) {
                                                c.groups.push_back({.tail_bytes = 50,
                                                                    .sealed_bytes = 50,
                                                                    .same_format = true,
                                                                    .window_tokens = 40});
                                              }},
                                         Mode{"tiny_pool", [](EngineConfig& c) { c.kv_budget_bytes = 2400; }}),
                         [](const auto& info) { return info.param.name; });

TEST(FixedBatches, RunUntilAllOfThemEnd) {
  EngineConfig config = pool_config(256, 16);
  config.max_num_seqs = 2;
  config.batching = BatchingMode::fixed;
  Harness harness(config);
  const RequestId quick = harness.submit(make_request(10, 3, 1));
  const RequestId slow = harness.submit(make_request(10, 60, 2));
  const RequestId next = harness.submit(make_request(10, 3, 3));
  harness.run();
  EXPECT_LT(harness.answer(quick).steps.back(), 10u);
  EXPECT_GT(harness.answer(next).steps.front(), harness.answer(slow).steps.back());
}

TEST(NoBatching, OneSequenceAtATime) {
  EngineConfig config = pool_config(256, 16);
  config.batching = BatchingMode::none;
  size_t most = 0;
  SimulatedOptions options;
  options.observer = [&](const StepPlan& plan, const StepResult&) { most = std::max(most, plan.sequences.size()); };
  Harness harness(config, options);
  for (int32_t i = 0; i < 5; ++i) harness.submit(make_request(10, 5, i));
  harness.run();
  EXPECT_EQ(most, 1u);
}

TEST(KvOff, EveryStepComputesEverything) {
  EngineConfig config = pool_config(256, 16);
  config.kv_cache = false;
  std::vector<int32_t> rows;
  SimulatedOptions options;
  options.observer = [&](const StepPlan& plan, const StepResult&) { rows.push_back(plan.num_rows()); };
  Harness harness(config, options);
  harness.submit(make_request(200, 4));
  harness.run();
  EXPECT_EQ(rows, (std::vector<int32_t>{200, 201, 202, 203}));
}

TEST(FullReservation, TakesTheLongestLengthAtAdmission) {
  EngineConfig config = pool_config(64, 16, 256);
  config.kv_reserve = KvReserve::full;
  Harness harness(config);
  for (int32_t i = 0; i < 6; ++i) harness.submit(make_request(10, 40, i));
  harness.step(3);
  EXPECT_EQ(harness.engine().stats().num_requests_running, 4);  // 16 blocks each
  EXPECT_EQ(harness.engine().stats().num_blocks_held, 64);
  harness.run();
  EXPECT_EQ(harness.engine().stats().num_preemptions, 0u);
  harness.expect_quiet();
}

TEST(Windows, GiveOldBlocksBack) {
  EngineConfig config = pool_config(1000, 16, 4000);
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 64}};
  config.kv_budget_bytes = 1200;
  Harness harness(config);
  const RequestId id = harness.submit(make_request(3000, 200));
  size_t most = 0;
  while (harness.engine().step_once()) most = std::max(most, harness.engine().stats().kv_held_bytes);
  EXPECT_EQ(harness.answer(id).tokens.size(), 200u);
  EXPECT_LE(most, 1000u);
  harness.expect_quiet();
}

TEST(Windows, AHitNeedsTheWindowOfEveryGroup) {
  EngineConfig config = pool_config(1000, 16, 4000);
  config.groups.push_back({.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 32});
  Harness harness(config);
  harness.run_alone(make_request(321, 2));
  const RequestId again = harness.submit(make_request(321, 2));
  harness.run();
  EXPECT_EQ(harness.answer(again).finished->usage.cached_tokens, 320);
  const RequestId shorter = harness.submit(make_request(161, 2));  // its windowed blocks are still cached
  harness.run();
  EXPECT_EQ(harness.answer(shorter).finished->usage.cached_tokens, 160);
  harness.expect_quiet();
}

}  // namespace
}  // namespace tidemill
