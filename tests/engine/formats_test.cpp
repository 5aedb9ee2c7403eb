// Requests whose blocks are kept in another format than the usual one: who shares what, and who pays what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;

// Blocks of 16 tokens: 30 bytes in the usual format, with tails of 100; 100 in the better one.
EngineConfig two_formats(size_t budget_bytes) {
  EngineConfig config = pool_config(1, 16);
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 30, .same_format = false, .window_tokens = 0}};
  config.extra_formats = {
      {.groups = {{.tail_bytes = 100, .sealed_bytes = 100, .same_format = true, .window_tokens = 0}},
       .tail_name = "fp16",
       .sealed_name = "fp16",
       .key = "fp16"}};
  config.kv_format_key = "int4";
  config.kv_budget_bytes = budget_bytes;
  return config;
}

Request request_in(KvFormatId format, int32_t num_prompt_tokens, int64_t max_tokens, int32_t name = 0) {
  Request request = make_request(num_prompt_tokens, max_tokens, name);
  request.kv_format = format;
  return request;
}

// Of the engine's gauges and of its map: the formats' bytes add up to the whole.
void expect_sums(Engine& engine) {
  const EngineStats stats = engine.stats();
  size_t held = 0, cached = 0, idle = 0;
  for (const FormatBytes& format : stats.kv_formats) {
    held += format.held;
    cached += format.cached;
    idle += format.idle;
  }
  EXPECT_EQ(held, stats.kv_held_bytes);
  EXPECT_EQ(cached, stats.kv_cached_bytes);
  EXPECT_EQ(held + cached + idle, stats.kv_occupied_bytes);
  EXPECT_LE(stats.kv_occupied_bytes, stats.kv_budget_bytes);
  const BlockFormats formats(engine.config());
  const std::vector<size_t> class_bytes = formats.class_bytes();
  std::array<FormatBytes, most_kv_formats> counted{};
  for (const CacheBlock& block : engine.cache_map().blocks) {
    if (block.tier != CacheTier::memory) continue;
    const size_t bytes = class_bytes[block.info.place.size_class];
    if (block.info.state == BlockState::held) counted[block.format].held += bytes;
    if (block.info.state == BlockState::cached) counted[block.format].cached += bytes;
    if (block.info.state == BlockState::idle) counted[block.format].idle += bytes;
  }
  for (size_t i = 0; i < formats.size(); ++i) {
    EXPECT_EQ(counted[i].held, stats.kv_formats[i].held);
    EXPECT_EQ(counted[i].cached, stats.kv_formats[i].cached);
    EXPECT_EQ(counted[i].idle, stats.kv_formats[i].idle);
  }
}

TEST(KvFormatsOfRequests, EqualFormatsShareAndDifferentOnesDoNot) {
  Harness harness(two_formats(10000));
  const auto cached_tokens = [&harness](KvFormatId format) {
    const RequestId id = harness.submit(request_in(format, 100, 2));
    harness.run();
    return harness.answer(id).finished->usage.cached_tokens;
  };
  EXPECT_EQ(cached_tokens(0), 0);
  EXPECT_EQ(cached_tokens(1), 0);
  EXPECT_EQ(cached_tokens(0), 96);
  EXPECT_EQ(cached_tokens(1), 96);
  expect_sums(harness.engine());
}

TEST(KvFormatsOfRequests, APromptThatArrivesInBothIsComputedOnceInEach) {
  Harness harness(two_formats(10000));
  for (int i = 0; i < 6; ++i) harness.submit(request_in(static_cast<KvFormatId>(i % 2), 160, 4));
  harness.run();
  // The block with the last prompt token is computed by each.
  EXPECT_EQ(harness.engine().stats().prompt_tokens_computed, 2u * 160 + 4u * 16);
  EXPECT_EQ(harness.engine().stats().prefix_waits, 4u);
  harness.expect_quiet();
}

TEST(KvFormatsOfRequests, EachPaysItsOwnBytes) {
  Harness harness(two_formats(10000));
  const RequestId usual = harness.submit(request_in(0, 65, 3, 1));
  const RequestId better = harness.submit(request_in(1, 65, 3, 2));
  while (harness.answer(usual).tokens.empty() || harness.answer(better).tokens.empty()) harness.step();
  const EngineStats stats = harness.engine().stats();
  EXPECT_EQ(stats.kv_formats[0].held, 4u * 30 + 100);
  EXPECT_EQ(stats.kv_formats[1].held, 5u * 100);
  expect_sums(harness.engine());
  harness.expect_quiet();
}

TEST(KvFormatsOfRequests, HowLongARequestMayBeDependsOnItsFormat) {
  const EngineConfig config = two_formats(1000);
  Harness harness(config);
  // 30 blocks and a tail, or 10 blocks.
  EXPECT_THAT(harness.refused(request_in(1, 161, 1)).message, HasSubstr("at most 160 in fp16"));
  EXPECT_THAT(harness.refused(request_in(0, 481, 1)).message, HasSubstr("at most 480"));
  EXPECT_EQ(harness.refused(request_in(2, 10, 1)).kind, Refusal::Kind::invalid);
  EXPECT_EQ(harness.run_alone(request_in(1, 150, 2)).size(), 2u);
  EXPECT_EQ(harness.run_alone(request_in(0, 450, 2)).size(), 2u);
  harness.expect_quiet();
}

TEST(KvFormatsOfRequests, EvictionTakesBytesFromEitherFormat) {
  Harness harness(two_formats(1000));
  harness.run_alone(request_in(1, 128, 1, 1));
  EXPECT_EQ(harness.engine().stats().kv_formats[1].cached, 800u);
  harness.run_alone(request_in(0, 400, 1, 2));
  const EngineStats after_usual = harness.engine().stats();
  EXPECT_LE(after_usual.kv_formats[1].cached, 200u);
  EXPECT_EQ(after_usual.kv_formats[0].cached, 25u * 30);
  expect_sums(harness.engine());
  harness.run_alone(request_in(1, 140, 1, 3));
  EXPECT_LT(harness.engine().stats().kv_formats[0].cached, 25u * 30);
  expect_sums(harness.engine());
  harness.expect_quiet();
}

TEST(KvFormatsOfRequests, PreemptionAndResizingKeepEveryAnswer) {
  std::vector<std::vector<TokenId>> alone;
  for (int i = 0; i < 8; ++i) {
    Harness harness(two_formats(100000));
    alone.push_back(harness.run_alone(request_in(static_cast<KvFormatId>(i % 2), 60 + 3 * i, 90, i)));
  }
  EngineConfig config = two_formats(3000);
  config.kv_host_bytes = 600;
  Harness harness(config);
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) {
    ids.push_back(harness.submit(request_in(static_cast<KvFormatId>(i % 2), 60 + 3 * i, 90, i)));
    harness.step(5);
    expect_sums(harness.engine());
  }
  EXPECT_EQ(harness.engine().resize_cache(1500), std::nullopt);
  harness.step(40);
  EXPECT_EQ(harness.engine().resize_cache(3000), std::nullopt);
  harness.run();
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(harness.answer(ids[i]).tokens, alone[i]) << i;
  EXPECT_GT(harness.engine().stats().num_preemptions, 0u);
  harness.expect_quiet();
  expect_sums(harness.engine());
}

// Blocks of 16 tokens and 100 bytes, of which the cold ones get a second life in 30.
EngineConfig reencoding(size_t budget_bytes) {
  EngineConfig config = pool_config(1, 16);
  config.kv_budget_bytes = budget_bytes;
  config.extra_formats = {
      {.groups = {{.tail_bytes = 100, .sealed_bytes = 30, .same_format = false, .window_tokens = 0}},
       .tail_name = "fp16",
       .sealed_name = "int4",
       .key = "int4"}};
  config.kv_reencode = 1;
  return config;
}

Request permissive(int32_t num_prompt_tokens, int64_t max_tokens, int32_t name) {
  Request request = make_request(num_prompt_tokens, max_tokens, name);
  request.may_read_reencoded = true;
  return request;
}

TEST(ReencodedBlocks, AreFoundByThoseAloneWhoPermitIt) {
  Harness harness(reencoding(6400));
  // 8 prompts of 10 blocks are more than the pool holds.
  for (int name = 0; name < 8; ++name) harness.run_alone(make_request(161, 8, name));
  const EngineStats before = harness.engine().stats();
  EXPECT_GT(before.kv_formats[1].cached, 0u);
  EXPECT_GT(before.ladder.moves[static_cast<size_t>(MoveKind::reencode)].num_blocks, 0u);
  expect_sums(harness.engine());
  // The first prompt lies there in copies alone: who asks for nothing computes it anew.
  const RequestId lossy = harness.submit(permissive(161, 8, 0));
  harness.run();
  EXPECT_GT(harness.answer(lossy).finished->usage.reencoded_tokens, 0);
  EXPECT_GE(harness.answer(lossy).finished->usage.cached_tokens,
            harness.answer(lossy).finished->usage.reencoded_tokens);
  const RequestId strict = harness.submit(make_request(161, 8, 0));
  harness.run();
  EXPECT_EQ(harness.answer(strict).finished->usage.cached_tokens, 0);
  EXPECT_EQ(harness.answer(strict).finished->usage.reencoded_tokens, 0);
  EXPECT_EQ(harness.answer(strict).tokens, harness.answer(lossy).tokens) << "the simulated executor keeps everything";
  // Now the true blocks are there, and everybody takes them.
  const RequestId again = harness.submit(permissive(161, 8, 0));
  harness.run();
  EXPECT_EQ(harness.answer(again).finished->usage.cached_tokens, 160);
  EXPECT_EQ(harness.answer(again).finished->usage.reencoded_tokens, 0);
  harness.expect_quiet();
}

// A step makes no more copies than its rows need room, and what making them takes is not held against the rows.
TEST(ReencodedBlocks, LengthenNoStepMuch) {
  SimulatedOptions options;
  options.cost.per_moved_block = std::chrono::milliseconds(1);
  uint64_t most_of_step = 0;
  options.observer = [&](const StepPlan& plan, const StepResult& result) {
    const uint64_t num = result.moves[static_cast<size_t>(MoveKind::reencode)].num_blocks;
    most_of_step = std::max(most_of_step, num);
    EXPECT_LE(num, 3 * (static_cast<uint64_t>(plan.num_rows()) + 15) / 16);
  };
  const auto row_cost_s = [&options](const EngineConfig& config, uint64_t& num_reencoded) {
    Harness harness(config, options);
    for (int name = 0; name < 20; ++name) {
      const RequestId id = harness.submit(make_request(161, 40, name));
      for (int i = 0; i < 8; ++i)
        harness.submit(make_request(15, 20, 100 + 8 * name + i));  // that need a block at once
      harness.run();
      EXPECT_TRUE(harness.answer(id).finished);
    }
    const EngineStats stats = harness.engine().stats();
    num_reencoded = stats.ladder.moves[static_cast<size_t>(MoveKind::reencode)].num_blocks;
    return stats.step_cost_s[1];
  };
  EngineConfig config = reencoding(6400);
  uint64_t num_reencoded = 0, none = 0;
  const double with = row_cost_s(config, num_reencoded);
  EXPECT_GT(num_reencoded, 100u);
  EXPECT_GT(most_of_step, 4u) << "as many as rows need";
  config.kv_reencode.reset();
  EXPECT_NEAR(with, row_cost_s(config, none), with / 200);
  EXPECT_EQ(none, 0u);
}

TEST(ReencodedBlocks, AreNoFormatToAskFor) {
  Harness harness(reencoding(3000));
  EXPECT_EQ(harness.refused(request_in(1, 10, 1)).kind, Refusal::Kind::invalid);
}

TEST(ReencodedBlocks, AreNotPinned) {
  Harness harness(reencoding(6400));
  for (int name = 0; name < 8; ++name) harness.run_alone(make_request(161, 8, name));
  Request pinned = permissive(161, 1, 0);
  pinned.pin_for = std::chrono::seconds(100);
  const RequestId id = harness.submit(pinned);
  harness.run();
  EXPECT_EQ(harness.answer(id).finished->usage.reencoded_tokens, 0);
}

}  // namespace
}  // namespace tidemill
