#include "cli/engine_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

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

TEST_F(EngineStackTest, TheCacheKeepsTheFormatsThatRequestsMayAskFor) {
  options_.kv_choice.both = KvFormat::int4;
  options_.kv_request_formats = {KvFormat::fp16, KvFormat::nvfp4, KvFormat::int8};
  const auto stack = load_engine_stack(options_, nullptr);
  ASSERT_TRUE(stack.ok()) << stack.error().message;
  const EngineConfig& config = (*stack)->engine_config;
  ASSERT_EQ(config.extra_formats.size(), 2u);
  EXPECT_EQ(config.extra_formats[0].sealed_name, "int8");
  EXPECT_EQ(config.extra_formats[1].sealed_name, "fp16");
  EXPECT_GT(config.extra_formats[0].groups[0].sealed_bytes, config.groups[0].sealed_bytes);
  EXPECT_EQ(config.extra_formats[1].groups[0].sealed_bytes, config.groups[0].tail_bytes);
  EXPECT_EQ((*stack)->kv_better[1].fidelity, KvFidelity::exact);
  EXPECT_EQ((*stack)->kv_better[0].fidelity, std::nullopt) << "never measured for this file";
}

TEST_F(EngineStackTest, ColdBlocksInFp16AreEncodedAnew) {
  options_.kv_request_formats = {KvFormat::fp32};
  options_.kv_reencode = KvFormat::int4;
  const auto stack = load_engine_stack(options_, nullptr);
  ASSERT_TRUE(stack.ok()) << stack.error().message;
  const EngineConfig& config = (*stack)->engine_config;
  ASSERT_EQ(config.extra_formats.size(), 2u);
  EXPECT_EQ(config.kv_reencode, 2);
  EXPECT_EQ(config.extra_formats[1].sealed_name, "int4");
  for (const auto& [usual, copies] : {std::pair{KvFormat::int8, KvFormat::int4}, {KvFormat::fp16, KvFormat::bf16}}) {
    options_.kv_choice.both = usual;
    options_.kv_reencode = copies;
    const auto refused = load_engine_stack(options_, nullptr);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("--kv-reencode makes encoded copies of blocks in fp16"), std::string::npos);
  }
}

class EventCollector final : public EventListener {
 public:
  void publish(std::vector<RequestEvent> events) override {
    for (RequestEvent& event : events) events_.push_back(std::move(event));
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> tokens;
    for (const RequestEvent& event : events_)
      if (event.kind == RequestEvent::Kind::token) tokens.push_back(event.draw.token);
    return tokens;
  }

 private:
  std::vector<RequestEvent> events_;
};

// Greedy, from a short prompt.
std::vector<TokenId> answer(EngineStack& stack, int32_t num_tokens) {
  EventCollector events;
  const SystemClock clock;
  const std::unique_ptr<Engine> engine = make_engine(stack, clock, events);
  Request request;
  request.prompt = {3, 4, 5, 6, 7};
  request.max_tokens = num_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  EXPECT_TRUE(std::holds_alternative<RequestId>(engine->submit(request)));
  while (engine->step_once()) {
  }
  return events.tokens();
}

TEST_F(EngineStackTest, ATraceShowsEveryOperationOfAStepAndItsTime) {
  options_.trace_path = (folder_.path() / "trace.json").string();
  options_.num_threads = 2;
  constexpr int32_t num_tokens = 4;
  int32_t num_layers = 0;
  {
    const auto stack = load_engine_stack(options_, nullptr);
    ASSERT_TRUE(stack.ok()) << stack.error().message;
    num_layers = (*stack)->model->info().num_layers;
    ASSERT_EQ(answer(**stack, num_tokens).size(), static_cast<size_t>(num_tokens));
  }
  std::map<std::string, int> count;
  std::map<std::string, double> time_us;
  for (const auto& event : nlohmann::json::parse(testing::read_file(folder_.path() / "trace.json"))) {
    if (event["ph"] != "X" || event["tid"] != 0) continue;
    const std::string name = event["name"];
    ++count[name];
    time_us[name] += event["dur"].get<double>();
    if (name.ends_with("product")) {
      EXPECT_LT(event["args"]["layer"].get<int>(), num_layers);
    }
  }
  for (const char* name : {"step", "schedule", "execute", "inputs", "embed", "head", "sampling", "apply", "publish"}) {
    EXPECT_EQ(count[name], num_tokens) << name;
  }
  double operations_us = time_us["inputs"] + time_us["embed"] + time_us["head"] + time_us["sampling"];
  for (const char* name :
       {"qkv product", "rotate and store", "attention", "output product", "gated product", "down product"}) {
    EXPECT_EQ(count[name], num_tokens * num_layers) << name;
    operations_us += time_us[name];
  }
  EXPECT_LE(operations_us, time_us["execute"]);
  EXPECT_LE(time_us["schedule"] + time_us["execute"] + time_us["apply"] + time_us["publish"], time_us["step"]);
}

TEST_F(EngineStackTest, PackedWeightsOnDiskChangeNoAnswer) {
  const std::string folder = folder_.path() / "cache";
  const char* before = std::getenv("TIDEMILL_CACHE");
  const std::optional<std::string> saved = before ? std::optional<std::string>(before) : std::nullopt;
  setenv("TIDEMILL_CACHE", folder.c_str(), 1);
  std::vector<std::vector<TokenId>> answers;
  for (const PackedCache cache : {PackedCache::off, PackedCache::automatic, PackedCache::on, PackedCache::on}) {
    options_.packed_cache = cache;
    const auto stack = load_engine_stack(options_, nullptr);
    ASSERT_TRUE(stack.ok()) << stack.error().message;
    answers.push_back(answer(**stack, 6));
    // So small a model is packed at once, and kept only where it is asked for.
    EXPECT_EQ(fs::exists(fs::path(folder) / "packed"), cache == PackedCache::on);
    EXPECT_EQ(answers.back(), answers.front());
  }
  // A file that changed has other packed weights.
  fs::last_write_time(folder_.path() / "model.safetensors", fs::file_time_type::clock::now());
  ASSERT_TRUE(load_engine_stack(options_, nullptr).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(folder) / "packed"), fs::directory_iterator()), 2);
  saved ? setenv("TIDEMILL_CACHE", saved->c_str(), 1) : unsetenv("TIDEMILL_CACHE");
}

}  // namespace
}  // namespace tidemill
