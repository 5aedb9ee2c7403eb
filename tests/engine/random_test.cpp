// Thousands of random operations on engines of many shapes; the simulated executor checks every read of every row, the
// engine recounts its blocks after every step, and each answer must be the one its request gets alone.
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

struct Shape {
  std::string name;
  EngineConfig config;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.name;
}

EngineConfig with(EngineConfig config, const std::function<void(EngineConfig&)>& change) {
  change(config);
  return config;
}

std::vector<Shape> shapes() {
  const EngineConfig tiny = pool_config(16, 4, 60);
  const auto windowed = [](EngineConfig& config) {
    config.groups.push_back({.tail_bytes = 70, .sealed_bytes = 70, .same_format = true, .window_tokens = 9});
    config.kv_budget_bytes = 2600;
  };
  const auto encoded = [](EngineConfig& config) {
    config.groups = {{.tail_bytes = 100, .sealed_bytes = 30, .same_format = false, .window_tokens = 0}};
    config.kv_budget_bytes = 1200;
  };
  // Two more formats: one whose full blocks are other bytes than their tails, and one whose are not.
  const auto with_extra_formats = [](EngineConfig& config) {
    config.kv_format_key = "usual";
    for (const auto& [name, tail, sealed] : {std::tuple{"better", 100, 55}, std::tuple{"best", 120, 120}}) {
      ExtraFormat format{.groups = config.groups, .tail_name = name, .sealed_name = name, .key = name};
      for (BlockGroup& group : format.groups) {
        group.tail_bytes = static_cast<size_t>(tail);
        group.sealed_bytes = static_cast<size_t>(sealed);
        group.same_format = tail == sealed;
      }
      config.extra_formats.push_back(format);
    }
  };
  return {
      {"tiny", tiny},
      {"formats", with(tiny,
                       [&](EngineConfig& c) {
                         encoded(c);
                         with_extra_formats(c);
                       })},
      {"formats_windowed_host_tier", with(tiny,
                                          [&](EngineConfig& c) {
                                            windowed(c);
                                            with_extra_formats(c);
                                            c.kv_budget_bytes = 3000;
                                            c.kv_host_bytes = 1200;
                                          })},
      {"formats_encoded_host_and_disk_tiers", with(tiny,
                                                   [&](EngineConfig& c) {
                                                     encoded(c);
                                                     with_extra_formats(c);
                                                     c.kv_host_bytes = 700;
                                                     c.kv_disk_bytes = 4000;
                                                     c.kv_disk_class_bytes = {0, 40, 0, 70, 140, 0};
                                                   })},
      {"reencoded", with(tiny,
                         [&](EngineConfig& c) {
                           c.extra_formats = {
                               {.groups = {{.tail_bytes = 100, .sealed_bytes = 30, .same_format = false}},
                                .tail_name = "again",
                                .sealed_name = "again",
                                .key = "again"}};
                           c.kv_reencode = 1;
                         })},
      {"reencoded_windowed_host_tier",
       with(tiny,
            [&](EngineConfig& c) {
              windowed(c);
              c.extra_formats = {
                  {.groups = {{.tail_bytes = 100, .sealed_bytes = 30, .same_format = false},
                              {.tail_bytes = 70, .sealed_bytes = 20, .same_format = false, .window_tokens = 9}},
                   .tail_name = "again",
                   .sealed_name = "again",
                   .key = "again"}};
              c.kv_reencode = 1;
              c.kv_host_bytes = 800;
            })},
      {"formats_reserve_full", with(tiny,
                                    [&](EngineConfig& c) {
                                      with_extra_formats(c);
                                      c.kv_reserve = KvReserve::full;
                                      c.kv_budget_bytes = 4000;
                                    })},
      {"tinier_than_the_context", with(tiny,
                                       [](EngineConfig& c) {
                                         c.kv_budget_bytes = 1100;
                                         c.max_model_len_tokens = 200;
                                       })},
      {"small_budget", with(tiny, [](EngineConfig& c) { c.max_num_batched_tokens = 5; })},
      {"one_row", with(tiny,
                       [](EngineConfig& c) {
                         c.max_num_batched_tokens = 1;
                         c.max_num_seqs = 3;
                       })},
      {"no_prefix_caching", with(tiny, [](EngineConfig& c) { c.prefix_caching = false; })},
      {"newest_gives_way", with(tiny,
                                [](EngineConfig& c) {
                                  c.victim = VictimRule::newest;
                                  c.eviction = EvictionPolicy::lru;
                                })},
      {"fifo", with(tiny, [](EngineConfig& c) { c.eviction = EvictionPolicy::fifo; })},
      {"disk_tier", with(tiny,
                         [](EngineConfig& c) {
                           c.kv_disk_bytes = 3000;
                           c.kv_disk_class_bytes = {120, 0};
                         })},
      {"host_and_disk_tiers", with(tiny,
                                   [](EngineConfig& c) {
                                     c.kv_host_bytes = 600;
                                     c.kv_disk_bytes = 6000;
                                     c.kv_disk_class_bytes = {120, 0};
                                   })},
      {"disk_tier_encoded_windowed",
       with(tiny,
            [&](EngineConfig& c) {
              encoded(c);
              c.groups.push_back({.tail_bytes = 64, .sealed_bytes = 20, .same_format = false, .window_tokens = 6});
              c.kv_budget_bytes = 1500;
              c.kv_disk_bytes = 2000;
              c.kv_disk_class_bytes = {0, 40, 0, 30};
            })},
      {"host_tier", with(tiny, [](EngineConfig& c) { c.kv_host_bytes = 2000; })},
      {"host_tier_smaller_than_the_pool", with(tiny,
                                               [](EngineConfig& c) {
                                                 c.kv_host_bytes = 500;
                                                 c.eviction = EvictionPolicy::fifo;
                                                 c.prefix_caching = false;
                                               })},
      {"host_tier_encoded_windowed",
       with(tiny,
            [&](EngineConfig& c) {
              encoded(c);
              c.groups.push_back({.tail_bytes = 64, .sealed_bytes = 20, .same_format = false, .window_tokens = 6});
              c.kv_budget_bytes = 1500;
              c.kv_host_bytes = 900;
            })},
      {"windowed", with(tiny, windowed)},
      {"encoded", with(tiny, encoded)},
      {"encoded_windowed", with(tiny,
                                [&](EngineConfig& c) {
                                  encoded(c);
                                  c.groups.push_back(
                                      {.tail_bytes = 64, .sealed_bytes = 20, .same_format = false, .window_tokens = 6});
                                  c.kv_budget_bytes = 2000;
                                })},
      {"priority", with(tiny,
                        [](EngineConfig& c) {
                          c.policy = PolicyKind::priority;
                          c.priority_aging = std::chrono::milliseconds(200);
                        })},
      {"timed", with(tiny, [](EngineConfig& c) { c.itl_multiple = 2.3; })},
      {"timed_beyond_reach", with(tiny,
                                  [](EngineConfig& c) {
                                    c.target_itl = std::chrono::milliseconds(5);
                                    c.min_prompt_rows = 2;
                                    c.priority_aging = std::chrono::milliseconds(100);
                                    c.policy = PolicyKind::priority;
                                  })},
      {"batching_none", with(tiny, [](EngineConfig& c) { c.batching = BatchingMode::none; })},
      {"batching_fixed", with(tiny, [](EngineConfig& c) { c.batching = BatchingMode::fixed; })},
      {"kv_off", with(tiny, [](EngineConfig& c) { c.kv_cache = false; })},
      {"kv_off_windowed_encoded",
       with(tiny,
            [&](EngineConfig& c) {
              c.kv_cache = false;
              encoded(c);
              c.kv_budget_bytes = 3000;
              c.groups.push_back({.tail_bytes = 64, .sealed_bytes = 20, .same_format = false, .window_tokens = 6});
            })},
      {"reserve_full", with(tiny, [](EngineConfig& c) { c.kv_reserve = KvReserve::full; })},
      {"tenants", with(tiny, [](EngineConfig& c) { c.max_running_per_tenant = 2; })},
  };
}

class RandomOperations : public testing::TestWithParam<Shape> {};

Request random_request(std::mt19937& random, size_t num_formats) {
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  // Few names and random lengths: prefixes are shared.
  Request request = make_request(pick(1, 40), pick(0, 9) == 0 ? 0 : pick(1, 30), pick(0, 3));
  request.sampling.temperature = static_cast<float>(pick(0, 1));
  request.has_seed = true;
  request.sampling.seed = static_cast<uint64_t>(pick(0, 5));
  request.num_choices = pick(0, 3) == 0 ? pick(2, 4) : 1;
  request.priority = pick(-2, 2);
  request.latency_class = static_cast<LatencyClass>((request.priority + 2) % 3);
  request.tenant = std::string(1, static_cast<char>('a' + pick(0, 2)));
  request.cache_salt = pick(0, 4) == 0 ? "salt" : "";
  request.prompt_logprobs = pick(0, 5) == 0 ? 1 : -1;
  request.sampling.logprobs = pick(0, 2) == 0 ? 2 : -1;
  request.want_progress = pick(0, 1) == 0;
  request.may_read_reencoded = pick(0, 1) == 0;
  if (num_formats > 1) request.kv_format = static_cast<KvFormatId>(pick(0, static_cast<int32_t>(num_formats) - 1));
  if (pick(0, 3) == 0) request.sampling.stop_token_ids = {pick(0, 30), pick(0, 30)};
  return request;
}

// What the request gets alone, in a pool that is large enough, without any cache.
std::vector<Answer> reference(Request request, int32_t context) {
  request.kv_format = 0;  // a simulated token is the same in every format
  Harness harness(with(pool_config(400, 16, context), [](EngineConfig& c) { c.prefix_caching = false; }),
                  {.vocab_size = 60});
  const RequestId id = harness.submit(request);
  harness.run();
  std::vector<Answer> answers;
  for (int32_t choice = 0; choice < request.num_choices; ++choice) answers.push_back(harness.answer(id, choice));
  return answers;
}

TEST_P(RandomOperations, EveryAnswerIsTheOneItGetsAlone) {
  const EngineConfig& config = GetParam().config;
  std::mt19937 random(std::getenv("TM_SEED") ? std::atoi(std::getenv("TM_SEED")) : 12345);
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  SimulatedOptions options{.vocab_size = 60};
  options.disk_fails = [](uint64_t number, const DiskMove&) { return number % 7 == 3; };
  Harness harness(config, options);
  std::map<RequestId, Request> requests;
  std::map<RequestId, bool> disturbed;
  for (int operation = 0; operation < 1500; ++operation) {
    const int32_t what = pick(0, 9);
    if (what <= 2) {
      const Request request = random_request(random, config.kv_reencode ? 1 : 1 + config.extra_formats.size());
      auto result = harness.engine().submit(request);
      if (const RequestId* id = std::get_if<RequestId>(&result)) requests[*id] = request;
    } else if (what == 3 && !requests.empty()) {
      const auto victim = std::next(requests.begin(), pick(0, static_cast<int32_t>(requests.size()) - 1))->first;
      disturbed[victim] = true;
      if (pick(0, 1) == 0) {
        harness.engine().cancel(victim);
      } else {
        const int32_t choice = pick(0, 3);
        harness.engine().finish_choice(victim, choice, pick(0, 20));
      }
    } else {
      harness.step(pick(1, 4));
    }
  }
  harness.expect_quiet();
  int num_compared = 0, num_full = 0;
  for (const auto& [id, request] : requests) {
    for (int32_t choice = 0; choice < request.num_choices; ++choice) {
      ASSERT_TRUE(harness.answer(id, choice).finished) << "request " << id << " choice " << choice;
    }
    EXPECT_TRUE(harness.done[id]);
    if (disturbed[id] || num_compared > 150) continue;
    const std::vector<Answer> expected = reference(request, config.max_model_len_tokens);
    for (int32_t choice = 0; choice < request.num_choices; ++choice) {
      const Answer& answer = harness.answer(id, choice);
      const Answer& alone = expected[choice];
      ++num_compared;
      if (!answer.finished->message.empty()) {  // the pool was full: a prefix
        ++num_full;
        ASSERT_LE(answer.draws.size(), alone.draws.size());
        EXPECT_TRUE(std::equal(answer.draws.begin(), answer.draws.end(), alone.draws.begin()));
        continue;
      }
      EXPECT_EQ(answer.draws, alone.draws) << "request " << id << " choice " << choice;
      EXPECT_EQ(answer.finished->reason, alone.finished->reason);
      EXPECT_EQ(answer.finished->stop_token, alone.finished->stop_token);
      EXPECT_EQ(answer.finished->usage.completion_tokens, alone.finished->usage.completion_tokens);
      EXPECT_EQ(answer.finished->usage.prompt_tokens, static_cast<int32_t>(request.prompt.size()));
    }
    EXPECT_EQ(harness.prompt_logprobs.contains(id), request.prompt_logprobs >= 0);
    if (request.prompt_logprobs >= 0) {
      EXPECT_EQ(harness.prompt_logprobs[id].size(), request.prompt.size() - 1);
    }
  }
  EXPECT_GT(num_compared, 100);
  EXPECT_LT(num_full, num_compared / 2);
  if (config.kv_cache) {
    EXPECT_LE(harness.max_rows, config.max_num_batched_tokens);
  }
  const EngineStats stats = harness.engine().stats();
  RecordProperty("preemptions", static_cast<int>(stats.num_preemptions));
  RecordProperty("hits", static_cast<int>(stats.prefix_cache_hits));
  std::cout << GetParam().name << ": " << requests.size() << " requests, " << stats.num_steps << " steps, "
            << stats.num_preemptions << " preemptions, " << stats.prefix_cache_hits << " tokens hit, " << num_full
            << " ended by a full pool\n";
}

INSTANTIATE_TEST_SUITE_P(Shapes, RandomOperations, testing::ValuesIn(shapes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tidemill
