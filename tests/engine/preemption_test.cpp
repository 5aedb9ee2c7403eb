// Blocks run out: what has to give way, that everybody gets on, and that no answer shows it (H21, H22, H35).
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

struct Variant {
  std::string name;
  std::function<void(Request&)> request = [](Request&) {};
  std::function<void(EngineConfig&)> config = [](EngineConfig&) {};
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

class Preemption : public testing::TestWithParam<Variant> {
 protected:
  Request varied(int32_t num_prompt, int64_t max_tokens, int32_t name) {
    Request request = make_request(num_prompt, max_tokens, name);
    GetParam().request(request);
    return request;
  }
  EngineConfig small_pool() {
    EngineConfig config = pool_config(16, 16);
    GetParam().config(config);
    return config;
  }
  Answer alone(const Request& request) {
    EngineConfig config = pool_config(200, 16);
    config.prefix_caching = false;
    Harness harness(config);
    const RequestId id = harness.submit(request);
    harness.run();
    return harness.answer(id);
  }
  void expect_same(const Answer& answer, const Answer& expected, const Request& request) {
    EXPECT_EQ(answer.draws, expected.draws);
    ASSERT_TRUE(answer.finished);
    EXPECT_EQ(answer.finished->reason, expected.finished->reason);
    EXPECT_EQ(answer.finished->usage.completion_tokens, expected.finished->usage.completion_tokens);
    EXPECT_EQ(answer.finished->usage.prompt_tokens, static_cast<int32_t>(request.prompt.size()));
  }

  // Submits all together and follows every step.
  void run_together(const std::vector<Request>& requests, int32_t most_preemptions, bool expect_preemptions = true) {
    Harness harness(small_pool());
    std::vector<RequestId> ids;
    for (const Request& request : requests) ids.push_back(harness.submit(request));
    size_t num_tokens_before = 0;
    int steps_without_token = 0, steps_without_running = 0;
    while (harness.engine().step_once()) {
      harness.engine().check_integrity();
      size_t num_tokens = 0;
      for (RequestId id : ids) num_tokens += harness.answer(id).tokens.size();
      steps_without_token = num_tokens > num_tokens_before ? 0 : steps_without_token + 1;
      num_tokens_before = num_tokens;
      EXPECT_LT(steps_without_token, 20);
      const EngineStats stats = harness.engine().stats();
      const bool idle = stats.num_requests_running == 0 && stats.num_requests_waiting > 0;
      steps_without_running = idle ? steps_without_running + 1 : 0;
      EXPECT_LT(steps_without_running, 2);
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      expect_same(harness.answer(ids[i]), alone(requests[i]), requests[i]);
      EXPECT_LE(harness.answer(ids[i]).finished->timings.num_preemptions, most_preemptions);
    }
    EXPECT_EQ(harness.answer(ids[0]).finished->timings.num_preemptions, 0) << "the oldest gave way";
    if (expect_preemptions) {
      EXPECT_GT(harness.engine().stats().num_preemptions, 0u);
    }
    harness.expect_quiet();
  }
};

TEST_P(Preemption, TwoThatTogetherNeedMore) {
  run_together({varied(64, 120, 1), varied(64, 120, 2)}, 4);
}

TEST_P(Preemption, EightThatTogetherNeedFarMore) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 8; ++i) requests.push_back(varied(64, 120, i));
  run_together(requests, 16);
}

TEST_P(Preemption, ALongPromptBesideAShortOne) {
  run_together({varied(20, 180, 1), varied(15 * 16, 10, 2)}, 16, false);
  run_together({varied(15 * 16 - 3, 10, 2), varied(20, 180, 1)}, 16, false);
}

INSTANTIATE_TEST_SUITE_P(
    Variants, Preemption,
    testing::Values(Variant{"greedy"},
                    Variant{"seeded",
                            [](Request& r) {
                              r.sampling.temperature = 1;
                              r.has_seed = true;
                              r.sampling.seed = 5;
                            }},
                    Variant{"logprobs", [](Request& r) { r.sampling.logprobs = 2; }},
                    Variant{"chunk_16", [](Request&) {}, [](EngineConfig& c) { c.max_num_batched_tokens = 16; }},
                    Variant{"chunk_32", [](Request&) {}, [](EngineConfig& c) { c.max_num_batched_tokens = 32; }},
                    Variant{"host_tier", [](Request&) {}, [](EngineConfig& c) { c.kv_host_bytes = 2000; }},
                    Variant{"newest", [](Request&) {}, [](EngineConfig& c) { c.victim = VictimRule::newest; }},
                    Variant{"no_prefix_caching", [](Request&) {}, [](EngineConfig& c) { c.prefix_caching = false; }}),
    [](const auto& info) { return info.param.name; });

TEST(HostTier, WhatGaveWayIsFetchedInsteadOfComputedAgain) {
  const auto run = [](size_t host_bytes) {
    EngineConfig config = pool_config(16, 16);
    config.kv_host_bytes = host_bytes;
    Harness harness(config);
    std::vector<RequestId> ids;
    for (int32_t i = 0; i < 8; ++i) ids.push_back(harness.submit(make_request(64, 120, i)));
    harness.run();
    int32_t num_fetched = 0;
    for (RequestId id : ids) num_fetched += harness.answer(id).finished->timings.num_fetched_tokens;
    const EngineStats stats = harness.engine().stats();
    EXPECT_EQ(stats.ladder.tokens_fetched, static_cast<uint64_t>(num_fetched));
    harness.expect_quiet();
    return stats;
  };
  const EngineStats without = run(0), with_host = run(10000);
  EXPECT_GT(without.num_preemptions, 0u);
  EXPECT_GT(without.prompt_tokens_recomputed, 0u);
  EXPECT_EQ(without.ladder.tokens_fetched, 0u);
  EXPECT_GT(without.ladder.num_blocks_dropped, 0u);
  EXPECT_GT(with_host.ladder.tokens_fetched, 0u);
  EXPECT_EQ(with_host.ladder.num_blocks_dropped, 0u) << "the tier has room for all";
  // Only the tail and the block before it are computed again.
  EXPECT_LE(with_host.prompt_tokens_recomputed, with_host.num_preemptions * 32);
}

EngineConfig disk_config() {
  EngineConfig config = pool_config(16, 16);
  config.kv_disk_bytes = 20000;
  config.kv_disk_class_bytes = {120, 0};
  return config;
}

TEST(DiskTier, APrefixOutlivesThePool) {
  Harness harness(disk_config());
  const RequestId first = harness.submit(make_request(120, 4, 1));
  harness.run();
  EXPECT_EQ(harness.engine().stats().ladder.disk.stored.num_blocks, 7u) << "also while nobody asks for anything";
  for (int32_t i = 2; i < 6; ++i) harness.submit(make_request(200, 4, i));
  harness.run();
  const RequestId again = harness.submit(make_request(120, 4, 1));
  harness.run();
  EXPECT_EQ(harness.answer(again).tokens, harness.answer(first).tokens);
  EXPECT_EQ(harness.answer(again).finished->usage.cached_tokens, 112);
  EXPECT_EQ(harness.answer(again).finished->timings.num_loaded_blocks, 7);
  EXPECT_EQ(harness.answer(first).finished->timings.num_loaded_blocks, 0);
  harness.expect_quiet();
}

TEST(DiskTier, WaitingForASlotIsNoWaitForTheDisk) {
  EngineConfig config = disk_config();
  config.max_num_seqs = 1;
  Harness harness(config);
  harness.submit(make_request(120, 4, 1));
  for (int32_t i = 2; i < 6; ++i) harness.submit(make_request(200, 4, i));
  harness.run();
  // While the first one's blocks are read, another comes that takes the slot.
  const RequestId reader = harness.submit(make_request(120, 4, 1));
  harness.step();
  Request urgent = make_request(40, 60, 7);
  urgent.latency_class = LatencyClass::interactive;
  const RequestId other = harness.submit(urgent);
  harness.run();
  const RequestTimings timings = harness.answer(reader).finished->timings;
  EXPECT_GT(timings.num_loaded_blocks, 0);
  EXPECT_GE(timings.queue_ms, harness.answer(other).finished->timings.decode_ms);
  EXPECT_GT(timings.disk_wait_ms, 0);
  EXPECT_LT(timings.disk_wait_ms, timings.queue_ms / 5) << "one step, of some sixty";
}

TEST(DiskTier, WhatFailsIsComputed) {
  SimulatedOptions options;
  bool broken = false;
  const std::vector<TokenId> prompt = prompt_of(120, 1);
  const std::vector<TokenId> fourth(prompt.begin() + 48, prompt.begin() + 64);
  options.disk_fails = [&](uint64_t, const DiskMove& move) {
    return broken && move.kind == DiskMoveKind::load && move.tokens == fourth;
  };
  Harness harness(disk_config(), options);
  const RequestId first = harness.submit(make_request(120, 4, 1));
  harness.run();
  for (int32_t i = 2; i < 6; ++i) harness.submit(make_request(200, 4, i));
  harness.run();
  broken = true;
  const RequestId again = harness.submit(make_request(120, 4, 1));
  harness.run();
  EXPECT_EQ(harness.answer(again).tokens, harness.answer(first).tokens);
  EXPECT_EQ(harness.answer(again).finished->usage.cached_tokens, 48) << "up to the block that failed";
  EXPECT_EQ(harness.engine().stats().ladder.disk.num_failed_loads, 1u);
  harness.expect_quiet();
}

TEST(DiskTier, NobodyIsCutOffWhileBlocksAreOnTheirWay) {
  // The whole pool is one prompt, and all of it is being loaded when it is wanted.
  Harness harness(disk_config());
  const RequestId first = harness.submit(make_request(250, 3, 1));
  harness.run();
  harness.submit(make_request(250, 3, 2));
  harness.run();
  const RequestId again = harness.submit(make_request(250, 3, 1));
  harness.run();
  EXPECT_EQ(harness.answer(again).tokens, harness.answer(first).tokens);
  EXPECT_EQ(harness.answer(again).finished->message, harness.answer(first).finished->message);
  harness.expect_quiet();
}

TEST(HostTier, BlocksAreDroppedWhereComputingThemAgainIsCheaper) {
  EngineConfig config = pool_config(16, 16);
  config.kv_host_bytes = 10000;
  SimulatedOptions options;
  options.cost.per_moved_block = std::chrono::seconds(1);
  Harness harness(config, options);
  for (int32_t i = 0; i < 8; ++i) harness.submit(make_request(64, 120, i));
  harness.run();
  const EngineStats stats = harness.engine().stats();
  EXPECT_GT(stats.num_preemptions, 0u);
  // The first copies show what they cost.
  EXPECT_LE(stats.ladder.moves[static_cast<size_t>(MoveKind::spill)].num_blocks, 8u);
  EXPECT_GT(stats.ladder.num_blocks_dropped, 20u);
}

TEST(HostTier, APrefixOutlivesThePool) {
  EngineConfig config = pool_config(16, 16);
  config.kv_host_bytes = 10000;
  Harness harness(config);
  const RequestId first = harness.submit(make_request(120, 4, 1));
  harness.run();
  for (int32_t i = 2; i < 6; ++i) harness.submit(make_request(200, 4, i));
  harness.run();
  const RequestId again = harness.submit(make_request(120, 4, 1));
  harness.run();
  EXPECT_EQ(harness.answer(again).tokens, harness.answer(first).tokens);
  EXPECT_EQ(harness.answer(again).finished->usage.cached_tokens, 112);
  EXPECT_EQ(harness.answer(again).finished->timings.num_fetched_tokens, 112);
  EXPECT_EQ(harness.answer(first).finished->timings.num_fetched_tokens, 0);
}

TEST(PreemptionRule, TheNewestGivesWayWhereThatIsTheRule) {
  for (VictimRule rule : {VictimRule::newest, VictimRule::heuristic}) {
    EngineConfig config = pool_config(16, 16);
    config.victim = rule;
    Harness harness(config);
    const RequestId oldest = harness.submit(make_request(20, 150, 1));
    const RequestId longest = harness.submit(make_request(80, 150, 2));
    const RequestId newest = harness.submit(make_request(16, 60, 3));
    const auto preempted = [&harness] { return harness.engine().stats().num_preemptions > 0; };
    for (int i = 0; i < 1000 && !preempted(); ++i) harness.step();
    ASSERT_TRUE(preempted());
    const std::string first = harness.answer(newest).tokens.size() >= 60 ? "done" : "open";
    EXPECT_EQ(first, "open") << "the scenario needs all three when blocks run out";
    harness.run();
    const auto times = [&](RequestId id) { return harness.answer(id).finished->timings.num_preemptions; };
    EXPECT_EQ(times(oldest), 0);
    if (rule == VictimRule::newest) {
      EXPECT_GT(times(newest), 0);
    } else {
      // It frees six blocks and more for long; the newest has less than 60 tokens to come.
      EXPECT_GT(times(longest), 0);
      EXPECT_EQ(times(newest), 0);
    }
  }
}

TEST(PreemptionRule, NoneIsPreemptedAgainBeforeItDrew) {
  EngineConfig config = pool_config(16, 16);
  std::map<std::vector<TokenId>, size_t> started_with;  // by prompt: tokens known at the last start
  int num_resumed = 0;
  SimulatedOptions options;
  options.observer = [&](const StepPlan& plan, const StepResult&) {
    for (const PlannedSequence& sequence : plan.sequences) {
      if (!sequence.start) continue;
      std::vector<TokenId> prompt(sequence.start->tokens.begin(),
                                  sequence.start->tokens.begin() + sequence.start->num_prompt_tokens);
      const auto before = started_with.find(prompt);
      if (before != started_with.end()) {
        ++num_resumed;
        EXPECT_GT(sequence.start->tokens.size(), before->second);
      }
      started_with[prompt] = sequence.start->tokens.size();
    }
  };
  Harness harness(config, options);
  for (int32_t i = 0; i < 12; ++i) harness.submit(make_request(30 + i, 150, i));
  harness.run();
  EXPECT_GT(num_resumed, 3);
  harness.expect_quiet();
}

TEST(PreemptionRule, TheLowestClassGivesWayFirst) {
  EngineConfig config = pool_config(16, 16);
  config.policy = PolicyKind::priority;
  Harness harness(config);
  Request low = make_request(64, 120, 1), high = make_request(64, 120, 2);
  low.priority = 5;
  const RequestId first = harness.submit(low);
  harness.step(3);
  const RequestId second = harness.submit(high);
  harness.run();
  EXPECT_GT(harness.answer(first).finished->timings.num_preemptions, 0);
  EXPECT_EQ(harness.answer(second).finished->timings.num_preemptions, 0);
}

TEST(PreemptionRule, WhatWasComputedIsFoundAgain) {
  for (bool prefix_caching : {true, false}) {
    EngineConfig config = pool_config(20, 16);
    config.prefix_caching = prefix_caching;
    Harness harness(config);
    // The second gives way when 20 blocks are full; the first soon ends, and most of the second's blocks are still
    // there.
    harness.submit(make_request(100, 62, 1));
    const RequestId second = harness.submit(make_request(100, 150, 2));
    harness.run();
    const RequestTimings& timings = harness.answer(second).finished->timings;
    EXPECT_EQ(timings.num_preemptions, 1);
    EXPECT_LT(timings.num_recomputed_tokens, 40);
  }
}

// 64 blocks, 32 requests of 100 + 200 tokens, which need 320.
TEST(PreemptionRule, ThirtyTwoRequestsInAFifthOfTheBlocks) {
  EngineConfig config = pool_config(64, 32, 2048);
  config.max_num_seqs = 64;
  config.max_num_batched_tokens = 128;
  Harness harness(config);
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 32; ++i) ids.push_back(harness.submit(make_request(100, 200, i)));
  harness.run();
  for (int32_t i = 0; i < 32; ++i) {
    Harness alone(config);
    EXPECT_EQ(harness.answer(ids[i]).tokens, alone.run_alone(make_request(100, 200, i)));
  }
  const EngineStats stats = harness.engine().stats();
  EXPECT_GT(stats.num_preemptions, 0u);
  // Rows computed again must stay a small part of the 32 * 300 that are needed.
  EXPECT_LT(stats.prompt_tokens_recomputed, 2500u);
  std::cout << stats.num_preemptions << " preemptions, " << stats.prompt_tokens_recomputed << " rows again, "
            << stats.num_steps << " steps\n";
  harness.expect_quiet();
}

// H22, H35: clients hang up at every stage while the pool is far too small.
TEST(PreemptionRule, HangUpsWhileThePoolIsDry) {
  EngineConfig config = pool_config(24, 16);
  config.max_num_seqs = 12;
  std::mt19937 random(7);
  Harness harness(config);
  std::map<RequestId, int32_t> open;  // request to name
  std::vector<std::vector<TokenId>> expected(40);
  int num_hung_up = 0, num_under_preemption = 0, num_compared = 0;
  uint64_t preemptions_before = 0;
  while (num_hung_up < 2000) {
    while (open.size() < 12) {
      const int32_t name = static_cast<int32_t>(random() % 40);
      open[harness.submit(make_request(8 + name % 10, 90, name))] = name;
    }
    harness.step(1 + static_cast<int>(random() % 3));
    const uint64_t preemptions = harness.engine().stats().num_preemptions;
    const bool preemption_under_way = preemptions > preemptions_before;
    preemptions_before = preemptions;
    for (auto next = open.begin(); next != open.end();) {
      const auto [id, name] = *next;
      if (harness.done[id]) {
        if (expected[name].empty())
          expected[name] = Harness(pool_config(100, 16)).run_alone(make_request(8 + name % 10, 90, name));
        EXPECT_EQ(harness.answer(id).tokens, expected[name]);
        ++num_compared;
        next = open.erase(next);
      } else if (random() % 60 == 0) {
        num_under_preemption += preemption_under_way;
        harness.engine().cancel(id);
        ++num_hung_up;
        next = open.erase(next);
      } else {
        ++next;
      }
    }
  }
  EXPECT_GT(num_under_preemption, 200);
  EXPECT_GT(num_compared, 50);
  harness.expect_quiet();
  EXPECT_EQ(harness.run_alone(make_request(24 * 16, 1, 99)).size(), 1u);  // the whole pool
}

}  // namespace
}  // namespace tidemill
