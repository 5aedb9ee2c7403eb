#include "runtime/memory_plan.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

KvLayout layout_of(int32_t num_layers, int32_t num_kv_heads, int32_t head_dim, int32_t window = 0) {
  KvLayerGroup group;
  for (int32_t layer = 0; layer < num_layers; ++layer) group.layers.push_back(layer);
  group.shape = {.num_kv_heads = num_kv_heads, .head_dim = head_dim, .value_dim = head_dim, .block_size = 0};
  group.window = window;
  return {{group}};
}

// The right-hand column of the product document's table: 2 x layers x kv_heads x head_dim x bytes per value.
TEST(MemoryPlan, BytesPerTokenOfKnownModels) {
  const KvFormats fp16{KvFormat::fp16};
  EXPECT_EQ(kv_bytes_per_token(layout_of(30, 3, 64), 32, fp16), 23040u);     // SmolLM2-135M
  EXPECT_EQ(kv_bytes_per_token(layout_of(32, 8, 128), 32, fp16), 131072u);   // LLaMA-3-8B
  EXPECT_EQ(kv_bytes_per_token(layout_of(32, 32, 128), 32, fp16), 524288u);  // LLaMA-2-7B
  EXPECT_EQ(kv_bytes_per_token(layout_of(32, 32, 128), 32, {KvFormat::fp32}), 1048576u);
}

TEST(MemoryPlan, AWindowedGroupStopsGrowing) {
  const KvFormats fp16{KvFormat::fp16};
  const KvLayout windowed = layout_of(15, 1, 256, 512);
  EXPECT_EQ(sequence_kv_bytes(windowed, 32, fp16, 10000), sequence_kv_bytes(windowed, 32, fp16, 32768));
  EXPECT_EQ(sequence_kv_bytes(windowed, 32, fp16, 100), 4u * 32 * 15 * 256 * 2 * 2);
}

TEST(MemoryPlan, TheFirstGivenOptionCounts) {
  const KvLayout layout = layout_of(2, 2, 16);
  const KvFormats fp16{KvFormat::fp16};
  const size_t block = 2 * 2 * 16 * 2 * 2 * 32;
  KvBudgetOptions options;
  options.num_blocks = 64;
  auto plan = plan_memory(layout, 32, fp16, 1000, 500, size_t{1} << 30, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kv_budget_bytes, 64 * block);
  EXPECT_EQ(plan->num_blocks, 64);
  EXPECT_EQ(num_sequences_that_fit(*plan, layout, fp16, 64), 32);
  options.bytes = 10 * block + 5;
  EXPECT_EQ(plan_memory(layout, 32, fp16, 1000, 500, size_t{1} << 30, options)->num_blocks, 10);
}

TEST(MemoryPlan, ImpossibleBudgetsAreRefusedWithBothNumbers) {
  const KvLayout layout = layout_of(2, 2, 16);
  KvBudgetOptions options;
  options.bytes = 100;
  auto small = plan_memory(layout, 32, {}, 0, 0, size_t{1} << 30, options);
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.error().message.find("100 bytes"), std::string::npos);
  options.bytes = size_t{1} << 40;
  EXPECT_FALSE(plan_memory(layout, 32, {}, 0, 0, size_t{1} << 30, options).ok());
  options.bytes.reset();
  options.num_blocks = INT64_MAX;
  EXPECT_FALSE(plan_memory(layout, 32, {}, 0, 0, size_t{1} << 30, options).ok());
}

TEST(MemoryPlan, AHostTierTakesItsRoomFirst) {
  const KvLayout layout = layout_of(2, 2, 16);
  const size_t available = size_t{1} << 30;
  KvBudgetOptions options;
  options.host_bytes = available / 4;
  EXPECT_EQ(plan_memory(layout, 32, {}, 0, 0, available, options)->kv_budget_bytes, available / 8 * 3);
  options.bytes = available / 4 * 3 + 1;
  auto both = plan_memory(layout, 32, {}, 0, 0, available, options);
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(
      both.error().message,
      "a KV cache of 805306369 bytes does not fit beside a host tier of 268435456 bytes: 1073741824 bytes of memory "
      "are available");
  options.bytes = 1 << 20;
  options.host_bytes = available + 1;
  auto host = plan_memory(layout, 32, {}, 0, 0, available, options);
  ASSERT_FALSE(host.ok());
  EXPECT_EQ(host.error().message,
            "a host tier of 1073741825 bytes does not fit: 1073741824 bytes of memory are available");
}

TEST(MemoryPlan, ThisMachineHasMemory) {
  EXPECT_GT(available_memory_bytes(), size_t{1} << 20);
  EXPECT_LT(available_memory_bytes(), size_t{1} << 50);
}

}  // namespace
}  // namespace tidemill
