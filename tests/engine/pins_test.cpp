// Pinned prefixes survive what else would push them out, within their limit and their time.
#include <gtest/gtest.h>

#include <tuple>

#include "engine/engine_harness.h"

namespace tidemill {
namespace {

using std::chrono::milliseconds;

constexpr int32_t block_size = 16;

EngineConfig config_of(int32_t num_blocks = 40) {
  return pool_config(num_blocks, block_size);
}

Request pin_request(int32_t num_tokens, milliseconds time, int32_t name = 0) {
  Request request = make_request(num_tokens, 0, name);
  request.pin_for = time;
  return request;
}

int32_t pin(Harness& harness, const Request& request) {
  const RequestId id = harness.submit(request);
  harness.run();
  return harness.answer(id).finished->usage.pinned_tokens;
}

int32_t cached(Harness& harness, int32_t num_tokens, int32_t name = 0) {
  const RequestId id = harness.submit(make_request(num_tokens, 1, name));
  harness.run();
  return harness.answer(id).finished->usage.cached_tokens;
}

// Needs every block that nobody holds.
void flood(Harness& harness) {
  for (int32_t i = 0; i < 6; ++i) harness.run_alone(make_request(18 * block_size, 2, 50 + i));
}

TEST(Pins, SurviveAFlood) {
  Harness harness(config_of());
  harness.run_alone(make_request(100, 1));
  flood(harness);
  EXPECT_EQ(cached(harness, 100), 0) << "the flood pushes out what is not pinned";
  EXPECT_EQ(pin(harness, pin_request(100, milliseconds(1000000))), 96);
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 600u);
  flood(harness);
  EXPECT_EQ(cached(harness, 100), 96);
  harness.engine().check_integrity();
  // Ended, they are like any others.
  EXPECT_EQ(pin(harness, pin_request(100, milliseconds(0))), 0);
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 0u);
  flood(harness);
  EXPECT_EQ(cached(harness, 100), 0);
  harness.expect_quiet();
}

TEST(Pins, EndWithTheirTime) {
  Harness harness(config_of());
  EXPECT_EQ(pin(harness, pin_request(100, milliseconds(500))), 96);
  EXPECT_EQ(pin(harness, pin_request(100, milliseconds(5000))), 96) << "the same prefix lasts longer, and counts once";
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 600u);
  harness.clock().advance(milliseconds(1000));
  flood(harness);
  EXPECT_EQ(cached(harness, 100), 96);
  harness.clock().advance(milliseconds(5000));
  flood(harness);
  EXPECT_EQ(cached(harness, 100), 0);
  harness.expect_quiet();
}

TEST(Pins, StayWithinTheirShare) {
  Harness harness(config_of());  // 10 of 40 blocks
  EXPECT_EQ(pin(harness, pin_request(100, milliseconds(1000000), 0)), 96);
  EXPECT_EQ(pin(harness, pin_request(100, milliseconds(1000000), 1)), 0);
  EXPECT_EQ(pin(harness, pin_request(70, milliseconds(1000000), 1)), 64);
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 1000u);
  EXPECT_FALSE(harness.engine().resize_cache(2000));
  harness.run();
  EXPECT_LE(harness.engine().stats().kv_pinned_bytes, 500u) << "a smaller pool has room for fewer";
  harness.engine().check_integrity();
}

TEST(Pins, ARequestThatInsistsEndsWithoutOne) {
  Harness harness(config_of());  // 10 of 40 blocks
  const auto insisting = [&](int32_t num_tokens, int32_t name) {
    Request request = make_request(num_tokens, 5, name);
    request.pin_for = milliseconds(1000000);
    request.pin_or_end = true;
    request.num_choices = 2;
    const RequestId id = harness.submit(request);
    harness.run();
    return harness.answer(id, 0);
  };
  const Answer pinned = insisting(100, 0);
  EXPECT_EQ(pinned.tokens.size(), 5u);
  EXPECT_EQ(pinned.finished->usage.pinned_tokens, 96);
  const Answer refused = insisting(100, 1);
  EXPECT_EQ(refused.tokens.size(), 0u);
  EXPECT_EQ(refused.finished->reason, FinishReason::refused);
  EXPECT_EQ(insisting(10, 2).finished->reason, FinishReason::refused) << "fills no block";
  // Prompts whose choices all draw in the step that shows that nothing can be pinned.
  EXPECT_EQ(insisting(1, 3).finished->reason, FinishReason::refused);
  EXPECT_EQ(insisting(6 * block_size, 4).finished->reason, FinishReason::refused);
  EXPECT_EQ(insisting(5 * block_size + 1, 4).finished->reason, FinishReason::refused);
  EXPECT_EQ(insisting(100, 0).finished->usage.pinned_tokens, 96) << "pinned already, so there is room";
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 600u);
  harness.engine().check_integrity();
}

// An encoded block that fills with the prompt's last row is sealed, and entered, a step after the first token.
TEST(Pins, AreRefusedBeforeTheFirstTokenInEveryFormat) {
  EngineConfig config = config_of();
  config.groups = {{.tail_bytes = 100, .sealed_bytes = 40, .same_format = false, .window_tokens = 0}};
  config.kv_budget_bytes = 1600;  // of which pins may have 400
  config.max_num_batched_tokens = 40;
  Harness harness(config);
  const auto insisting = [&](int32_t num_blocks, int32_t name) {
    Request request = make_request(num_blocks * block_size, 5, name);
    request.pin_for = milliseconds(1000000);
    request.pin_or_end = true;
    return request;
  };
  // Both at once: the room is the first one's from its start.
  const RequestId first = harness.submit(insisting(6, 0)), second = harness.submit(insisting(5, 1));
  harness.run();
  EXPECT_EQ(harness.answer(first).finished->usage.pinned_tokens, 6 * block_size);
  EXPECT_EQ(harness.answer(first).tokens.size(), 5u);
  EXPECT_EQ(harness.answer(second).finished->reason, FinishReason::refused);
  EXPECT_EQ(harness.answer(second).tokens.size(), 0u);
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 240u);
  // One that leaves before its blocks are there gives the room back.
  const RequestId gone = harness.submit(insisting(4, 2));
  harness.step();
  harness.engine().cancel(gone);
  harness.run();
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 320u) << "with what was there";
  const RequestId next = harness.submit(insisting(2, 3));
  harness.run();
  EXPECT_EQ(harness.answer(next).finished->usage.pinned_tokens, 2 * block_size);
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 400u);
  harness.engine().check_integrity();
}

TEST(Pins, OneRoomIsPromisedToAllWhoWantTheSamePrefix) {
  EngineConfig config = config_of();  // 10 of 40 blocks
  config.max_num_batched_tokens = 40;
  Harness harness(config);
  Request request = make_request(6 * block_size, 5, 0);
  request.pin_for = milliseconds(1000000);
  request.pin_or_end = true;
  const RequestId ids[] = {harness.submit(request), harness.submit(request), harness.submit(request)};
  harness.run();
  for (const RequestId id : ids) EXPECT_EQ(harness.answer(id).finished->usage.pinned_tokens, 6 * block_size);
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 600u);
  // Nothing stays promised: the four blocks that are left can be pinned.
  EXPECT_EQ(pin(harness, pin_request(4 * block_size, milliseconds(1000000), 1)), 4 * block_size);
  harness.engine().check_integrity();
}

TEST(Pins, GiveWayToARequestThatCannotRunOtherwise) {
  Harness harness(config_of());
  EXPECT_EQ(pin(harness, pin_request(100, milliseconds(1000000))), 96);
  const Request large = make_request(36 * block_size, 40, 7);
  const RequestId id = harness.submit(large);
  harness.run();
  EXPECT_EQ(harness.answer(id).tokens.size(), 40u);
  EXPECT_EQ(harness.engine().stats().kv_pinned_bytes, 0u);
  harness.expect_quiet();
}

TEST(Pins, WithAWindowedGroup) {
  EngineConfig config = config_of(80);
  config.groups.push_back({.tail_bytes = 50, .sealed_bytes = 50, .same_format = true, .window_tokens = 40});
  Harness harness(config);
  EXPECT_EQ(pin(harness, pin_request(200, milliseconds(1000000))), 192);
  for (int32_t i = 0; i < 6; ++i) harness.run_alone(make_request(40 * block_size, 2, 50 + i));
  EXPECT_EQ(cached(harness, 200), 192);
  harness.engine().check_integrity();
}

TEST(CacheMap, AddsUp) {
  Harness harness(config_of());
  pin(harness, pin_request(40, milliseconds(1000000), 3));
  Request request = make_request(100, 50);
  request.cache_tenant = "red";
  harness.submit(request);
  harness.step(4);
  const CacheMap map = harness.engine().cache_map();
  size_t held = 0, cached_bytes = 0, idle = 0;
  int32_t pinned = 0, reds = 0;
  for (const CacheBlock& block : map.blocks) {
    held += block.info.state == BlockState::held ? 100 : 0;
    cached_bytes += block.info.state == BlockState::cached ? 100 : 0;
    idle += block.info.state == BlockState::idle ? 100 : 0;
    pinned += block.pinned;
    reds += block.owner != 0;
  }
  EXPECT_EQ(held, map.totals.held_bytes);
  EXPECT_EQ(cached_bytes, map.totals.cached_bytes);
  EXPECT_EQ(idle, map.totals.idle_bytes);
  EXPECT_EQ(pinned, 2);
  EXPECT_EQ(reds, 7);
  EXPECT_EQ(map.totals.pinned_bytes, 200u);
}

TEST(CacheMap, AndItsChangesGiveTheNext) {
  EngineConfig config = config_of(24);
  config.kv_host_bytes = 900;
  config.kv_disk_bytes = 4000;
  config.kv_disk_class_bytes = {120, 0};
  Harness harness(config);
  harness.run_alone(make_request(50, 3));
  CacheFeed& feed = harness.engine().cache_feed();
  feed.watch(true);
  std::map<std::tuple<CacheTier, uint8_t, uint32_t>, CacheBlock> blocks;
  const auto key = [](const CacheBlock& block) {
    return std::tuple(block.tier, block.info.place.size_class, block.info.place.slot);
  };
  for (const CacheBlock& block : harness.engine().cache_map().blocks) blocks[key(block)] = block;
  for (int32_t i = 0; i < 30; ++i) harness.submit(make_request(10 + i * 7, 20, i % 5));
  std::array<size_t, 3> most{};
  for (int32_t step = 0; step < 400; ++step) {
    if (step == 60) {
      EXPECT_FALSE(harness.engine().resize_cache(2000));
    }
    harness.step();
    while (const auto changes = feed.take(milliseconds(0))) {
      EXPECT_FALSE(changes->lost);
      for (const CacheBlock& block : changes->blocks) {
        blocks[key(block)] = block;
        if (block.info.state == BlockState::unbacked) blocks.erase(key(block));
      }
    }
    const CacheMap map = harness.engine().cache_map();
    ASSERT_EQ(map.blocks.size(), blocks.size());
    std::array<size_t, 3> bytes{};
    for (const CacheBlock& block : map.blocks) bytes[static_cast<size_t>(block.tier)] += block.bytes;
    const CacheTotals& totals = map.totals;
    ASSERT_EQ(bytes[0], totals.held_bytes + totals.cached_bytes + totals.idle_bytes);
    ASSERT_EQ(bytes[1], totals.host.held + totals.host.cached + totals.host.idle);
    ASSERT_EQ(bytes[2], totals.disk.held + totals.disk.cached + totals.disk.idle);
    for (size_t tier = 0; tier < 3; ++tier) most[tier] = std::max(most[tier], bytes[tier]);
    for (const CacheBlock& block : map.blocks) {
      const BlockInfo& seen = blocks[key(block)].info;
      ASSERT_EQ(seen.state, block.info.state);
      ASSERT_EQ(seen.num_references, block.info.num_references);
      ASSERT_EQ(seen.since_ms, block.info.since_ms);
    }
  }
  EXPECT_EQ(most[1], 900u) << "the host tier was full";
  EXPECT_GT(most[2], 2000u);
  feed.watch(false);
  harness.expect_quiet();
  EXPECT_FALSE(feed.take(milliseconds(0)));
}

TEST(CacheFeed, ForgetsRatherThanGrows) {
  CacheFeed feed;
  CacheChanges changes;
  changes.blocks.resize(1000);
  for (uint64_t step = 1; step <= 100; ++step) {
    changes.step = step;
    feed.add(changes);
  }
  const auto taken = feed.take(milliseconds(0));
  ASSERT_TRUE(taken);
  EXPECT_TRUE(taken->lost);
  EXPECT_EQ(taken->step, 100u);
  EXPECT_TRUE(taken->blocks.empty());
  feed.add(changes);
  EXPECT_FALSE(feed.take(milliseconds(0))->lost);
}

}  // namespace
}  // namespace tidemill
