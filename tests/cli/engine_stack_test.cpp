#include "cli/engine_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "test_data.h"

namespace tidemill {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// A folder with the tiny Llama, whose files a test may change.
class EngineStackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
      fs::copy_file(testing::golden_path("tiny-models/llama") / name, folder_.path() / name);
    }
    options_.model_path = folder_.path().string();
    options_.num_threads = 1;
    options_.kv_budget.num_blocks = 8;
  }

  void write(const char* name, const nlohmann::json& content) { folder_.write(name, content.dump()); }

  testing::TemporaryFolder folder_;
  RunOptions options_;
};

TEST_F(EngineStackTest, EveryFileMayNameEndTokens) {
  nlohmann::json config = nlohmann::json::parse(testing::read_file(folder_.path() / "config.json"));
  config["eos_token_id"] = {7, 9};
  write("config.json", config);
  write("generation_config.json", {{"eos_token_id", 8}, {"temperature", 0.5}});
  for (const bool model_sampling : {true, false}) {
    options_.model_sampling = model_sampling;
    const auto stack = load_engine_stack(options_, nullptr);
    ASSERT_TRUE(stack.ok()) << stack.error().message;
    EXPECT_THAT(default_sampling(**stack).end_token_ids, ElementsAre(1, 7, 8, 9));
    EXPECT_EQ(default_sampling(**stack).temperature, model_sampling ? 0.5f : 1.0f);
  }
}

}  // namespace
}  // namespace tidemill
