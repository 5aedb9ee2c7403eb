// Who is served when: long prompts beside streams, short ones behind long ones, priorities, tenants (H23). In steps.
#include <gtest/gtest.h>

#include "engine/engine_harness.h"
#include "engine/scheduling_policy.h"

namespace tidemill {
namespace {

EngineConfig large() {
  EngineConfig config = pool_config(4000, 16, 8000);
  config.max_num_batched_tokens = 64;
  return config;
}

uint64_t longest_gap(const Answer& answer, uint64_t from_step) {
  uint64_t longest = 0;
  for (size_t i = 1; i < answer.steps.size(); ++i) {
    if (answer.steps[i] > from_step) longest = std::max(longest, answer.steps[i] - answer.steps[i - 1]);
  }
  return longest;
}

TEST(Fairness, ALongPromptDoesNotStopAStream) {
  Harness harness(large());
  const RequestId stream = harness.submit(make_request(10, 200, 1));
  harness.step(21);
  harness.submit(make_request(3000, 5, 2));
  harness.run();
  EXPECT_EQ(longest_gap(harness.answer(stream), 0), 1u);
  EXPECT_LE(harness.max_rows, 64);
}

TEST(Fairness, SteadyArrivalsDoNotStopAStream) {
  EngineConfig config = large();
  config.max_num_seqs = 200;
  Harness harness(config);
  const RequestId stream = harness.submit(make_request(10, 400, 1));
  std::vector<RequestId> others;
  for (int32_t i = 0; i < 100; ++i) {
    harness.step();
    others.push_back(harness.submit(make_request(200, 3, 2 + i)));
  }
  harness.run();
  EXPECT_LE(longest_gap(harness.answer(stream), 0), 2u);
  for (RequestId id : others) EXPECT_EQ(harness.answer(id).tokens.size(), 3u);
  EXPECT_LE(harness.max_rows, 64);
}

TEST(Fairness, DecodesThatFillTheBudgetLetAPromptThrough) {
  EngineConfig config = large();
  config.max_num_batched_tokens = 8;
  std::vector<uint64_t> chunk_steps;
  SimulatedOptions options;
  options.observer = [&](const StepPlan& plan, const StepResult&) {
    for (const PlannedSequence& sequence : plan.sequences) {
      if (sequence.first_position < 1000 && sequence.tables[0].appended.size() + sequence.first_position > 0 &&
          sequence.slot == 8) {
        chunk_steps.push_back(plan.step);
      }
    }
  };
  Harness harness(config, options);
  std::vector<RequestId> streams;
  for (int32_t i = 0; i < 8; ++i) streams.push_back(harness.submit(make_request(4, 2000, i)));
  harness.step(20);
  const RequestId prompt = harness.submit(make_request(1000, 5, 20));
  const uint64_t from = harness.num_steps;
  while (!harness.done[prompt] && harness.num_steps < from + 6000) harness.step();
  EXPECT_TRUE(harness.done[prompt]);
  ASSERT_GT(chunk_steps.size(), 100u);
  for (size_t i = 1; i < chunk_steps.size(); ++i) EXPECT_LE(chunk_steps[i] - chunk_steps[i - 1], 8u);
  for (RequestId stream : streams) EXPECT_LE(longest_gap(harness.answer(stream), from), 2u);
  EXPECT_LE(harness.max_rows, 8);
}

TEST(Fairness, AShortPromptBehindALongOne) {
  Harness harness(large());
  const RequestId document = harness.submit(make_request(3000, 5, 1));
  harness.step();
  const RequestId question = harness.submit(make_request(10, 5, 2));
  const uint64_t from = harness.num_steps;
  harness.run();
  EXPECT_LE(harness.answer(question).steps.front() - from, 10u);
  // The document is hardly later for it: 47 steps of 64 rows, and the question's 10 + 4.
  EXPECT_LE(harness.answer(document).steps.front(), 48u);
}

TEST(Fairness, ALongPromptGetsHalfUnderAStreamOfShortOnes) {
  Harness harness(large());
  const RequestId document = harness.submit(make_request(3000, 5, 1));
  for (int32_t i = 0; i < 300 && harness.answer(document).tokens.empty(); ++i) {
    harness.submit(make_request(60, 1, 2 + i));
    harness.step();
  }
  ASSERT_FALSE(harness.answer(document).tokens.empty());
  EXPECT_LE(harness.answer(document).steps.front(), 2 * 48u);
}

TEST(Fairness, PromptsOfEqualLengthComeInTurn) {
  Harness harness(large());
  const RequestId first = harness.submit(make_request(1000, 1, 1));
  const RequestId second = harness.submit(make_request(1000, 1, 2));
  harness.run();
  EXPECT_EQ(harness.answer(first).steps.front(), 16u);
  EXPECT_EQ(harness.answer(second).steps.front(), 32u);
}

TEST(Fairness, PriorityAndAging) {
  EngineConfig config = large();
  config.max_num_seqs = 1;
  config.policy = PolicyKind::priority;
  config.priority_aging = std::chrono::milliseconds(2000);
  Harness harness(config);
  const auto submit = [&](int32_t priority, int32_t name) {
    Request request = make_request(10, 20, name);
    request.priority = priority;
    return harness.submit(request);
  };
  submit(0, 0);
  harness.step();
  const RequestId low = submit(3, 1);
  const RequestId high = submit(-1, 2);
  const RequestId middle = submit(0, 3);
  harness.run();
  EXPECT_LT(harness.answer(high).steps.front(), harness.answer(middle).steps.front());
  EXPECT_LT(harness.answer(middle).steps.front(), harness.answer(low).steps.front());

  // A request of low priority under a steady load of better ones gets its turn by waiting.
  const RequestId patient = submit(3, 4);
  int num_others = 0;
  for (; harness.answer(patient).tokens.empty() && num_others < 1000; ++num_others) {
    submit(0, 5 + num_others);
    while (harness.engine().stats().num_requests_waiting > 1) harness.step();
    harness.step(3);
  }
  EXPECT_GT(num_others, 10);
  EXPECT_LT(num_others, 1000);
  harness.run();
}

TEST(Fairness, PriorityIsIgnoredByFirstCome) {
  EngineConfig config = large();
  config.max_num_seqs = 1;
  Harness harness(config);
  Request request = make_request(10, 5);
  request.priority = 9;
  const RequestId first = harness.submit(request);
  request.priority = -9;
  const RequestId second = harness.submit(request);
  harness.run();
  EXPECT_LT(harness.answer(first).steps.front(), harness.answer(second).steps.front());
}

TEST(Fairness, TenantsThatCompeteShareAlike) {
  EngineConfig config = large();
  config.max_num_seqs = 2;
  Harness harness(config);
  std::map<RequestId, std::string> tenants;
  const auto submit = [&](const std::string& tenant, int32_t name) {
    Request request = make_request(30, 30, name);
    request.tenant = tenant;
    const RequestId id = harness.submit(request);
    tenants[id] = tenant;
    return id;
  };
  for (int32_t i = 0; i < 40; ++i) submit("greedy", i);
  harness.step(5);
  std::vector<RequestId> modest;
  for (int32_t i = 0; i < 5; ++i) modest.push_back(submit("modest", 100 + i));
  while (!harness.done[modest.back()]) harness.step();
  int num_greedy = 0;
  for (const auto& [id, tenant] : tenants) num_greedy += tenant == "greedy" && harness.done[id];
  EXPECT_LE(num_greedy, 9);  // 5 each, and what ran before
  EXPECT_GE(num_greedy, 4);
  harness.run();
}

TEST(Fairness, ACapOnRunningRequestsPerTenant) {
  EngineConfig config = large();
  config.max_num_seqs = 8;
  config.max_running_per_tenant = 2;
  Harness harness(config);
  for (int32_t i = 0; i < 6; ++i) {
    Request request = make_request(10, 50, i);
    request.tenant = "a";
    harness.submit(request);
  }
  harness.step(5);
  EXPECT_EQ(harness.engine().stats().num_requests_running, 2);
  Request request = make_request(10, 50, 9);
  request.tenant = "b";
  const RequestId other = harness.submit(request);
  harness.step(2);
  EXPECT_EQ(harness.engine().stats().num_requests_running, 3);
  EXPECT_FALSE(harness.answer(other).tokens.empty());
  harness.expect_quiet();
}

TEST(Policy, OrderAndVictimsAsATable) {
  EngineConfig config;
  config.policy = PolicyKind::priority;
  config.priority_aging = std::chrono::milliseconds(100);
  const auto policy = make_policy(config);
  const Clock::Time begin{};
  const auto standing = [&](int32_t priority, int64_t arrival_ms, uint64_t order) {
    return Standing{.priority = priority,
                    .arrival = begin + std::chrono::milliseconds(arrival_ms),
                    .order = order,
                    .choice = 0,
                    .admitted_before = false,
                    .tenant_service = 0};
  };
  const Clock::Time now = begin + std::chrono::milliseconds(1000);
  EXPECT_TRUE(served_before(*policy, std::chrono::milliseconds(0), standing(0, 900, 2), standing(2, 900, 1), now));
  EXPECT_TRUE(served_before(*policy, std::chrono::milliseconds(0), standing(2, 500, 2), standing(0, 900, 1),
                            now));  // raised five times
  EXPECT_TRUE(served_before(*policy, std::chrono::milliseconds(0), standing(1, 900, 1), standing(1, 900, 2), now));
  Standing back = standing(1, 900, 5);
  back.admitted_before = true;
  EXPECT_TRUE(served_before(*policy, std::chrono::milliseconds(0), back, standing(1, 900, 2), now));
  EXPECT_TRUE(served_before(*policy, std::chrono::milliseconds(0), standing(0, 900, 2), back, now));
  Standing consumer = standing(0, 900, 1);
  consumer.tenant_service = 10;
  EXPECT_TRUE(served_before(*policy, std::chrono::milliseconds(0), standing(0, 900, 2), consumer, now));
  EXPECT_GT(policy->victim_value({4, 100, 50}), policy->victim_value({4, 10, 50}));   // about to finish: spared
  EXPECT_GT(policy->victim_value({4, 100, 50}), policy->victim_value({1, 100, 50}));  // shares its blocks: spared
  EXPECT_GT(policy->victim_value({4, 100, 50}), policy->victim_value({4, 100, 90}));  // dear to compute again: spared
}

}  // namespace
}  // namespace tidemill
