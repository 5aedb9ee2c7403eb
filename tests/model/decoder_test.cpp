#include "model/decoder.h"

#include <gtest/gtest.h>

#include <numeric>

#include "count_allocations.h"
#include "model/loader.h"
#include "model/model_run.h"
#include "model/tiny_model.h"

namespace tidemill {
namespace {

using testing::allocations_are_counted;
using testing::num_allocations;

// One step of one row range per sequence; returns what it allocated.
size_t allocations_of_step(Model& model, testing::TestKv& kv, std::span<const testing::RowRange> ranges) {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, wanted;
  for (const testing::RowRange& range : ranges) {
    for (int32_t i = 0; i < range.num_rows; ++i) {
      positions.push_back(range.first_position + i);
      tokens.push_back(positions.back() % 200 + range.sequence);
    }
    wanted.push_back(static_cast<int32_t>(tokens.size()) - 1);
  }
  const StepInputs inputs{tokens, positions, kv.views(ranges)};
  const size_t before = num_allocations;
  model.forward(inputs);
  model.logits(wanted);
  return num_allocations - before;
}

TEST(Decoder, StepsAllocateNothingOnceTheLargestWasSeen) {
  if (!allocations_are_counted) GTEST_SKIP() << "a sanitizer counts allocations itself";
  for (const char* name : {"llama", "gemma3"}) {
    auto tiny =
        testing::open_tiny(testing::golden_path(std::string("tiny-models/") + name), testing::TinyFormat::safetensors);
    ASSERT_TRUE(tiny.ok()) << tiny.error().message;
    auto backend = make_cpu_backend({.num_threads = 2, .kernels = ""});
    ASSERT_TRUE(backend.ok());
    auto model = load_model(*tiny->weights, tiny->config, **backend, {});
    ASSERT_TRUE(model.ok()) << model.error().message;
    (*model)->reserve(80, 2);
    testing::TestKv kv((*model)->kv_layout(), KvFormat::fp16, 2, 256, 32);
    int32_t position = 0;
    for (; position < 120; position += 40) {
      const testing::RowRange chunks[] = {{0, position, 40}, {1, position, 40}};
      allocations_of_step(**model, kv, chunks);
    }
    for (; position < 150; ++position) {
      const testing::RowRange rows[] = {{0, position, 1}, {1, position, 1}};
      ASSERT_EQ(allocations_of_step(**model, kv, rows), 0u) << name << " at position " << position;
    }
  }
}

}  // namespace
}  // namespace tidemill
