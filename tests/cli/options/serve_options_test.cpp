#include "cli/options/serve_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "cli/options/option_parser.h"

namespace tidemill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string fault(ServeOptions& options, const std::vector<std::string>& arguments) {
  OptionList list;
  add_serve_options(list, options);
  const Result<ParsedCommand> parsed = parse_options(list, arguments, {});
  if (!parsed) return parsed.error().message;
  const Result<void> finished = finish_serve_options(options);
  return finished ? "" : finished.error().message;
}

TEST(ServeOptions, KnownNamesOfOtherServersWork) {
  ServeOptions options;
  ASSERT_EQ(fault(options, {"--gpu-memory-utilization",
                            "0.9",
                            "--num-gpu-blocks-override",
                            "64",
                            "--max-model-len",
                            "auto",
                            "--kv-cache-dtype",
                            "float32",
                            "--block-size",
                            "16",
                            "--batching",
                            "static",
                            "--kv-cache",
                            "off",
                            "--kv-reserve",
                            "full",
                            "--scheduling-policy",
                            "priority",
                            "--no-enable-prefix-caching",
                            "--quantization",
                            "q8_0",
                            "--generation-config",
                            "vllm"}),
            "");
  EXPECT_EQ(options.run.kv_budget.memory_utilization, 0.9);
  EXPECT_EQ(options.run.kv_budget.num_blocks, 64);
  EXPECT_EQ(options.run.max_model_len, RunOptions::auto_length);
  EXPECT_EQ(options.run.kv_choice.formats().sealed, KvFormat::fp32);
  EXPECT_EQ(options.run.engine.block_size_tokens, 16);
  EXPECT_EQ(options.run.engine.batching, BatchingMode::fixed);
  EXPECT_FALSE(options.run.engine.kv_cache);
  EXPECT_EQ(options.run.engine.kv_reserve, KvReserve::full);
  EXPECT_EQ(options.run.engine.policy, PolicyKind::priority);
  EXPECT_FALSE(options.run.engine.prefix_caching);
  EXPECT_EQ(options.run.quantization, DType::q8_0);
  EXPECT_FALSE(options.run.model_sampling);
}

TEST(ServeOptions, KeysOfFlagsAndFileAreJoined) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "keys.txt";
  std::ofstream(file) << "# ours\nsecond\n\nthird\n";
  ServeOptions options;
  ASSERT_EQ(fault(options, {"--api-key", "first", "--api-key-file", file.string()}), "");
  EXPECT_THAT(options.server.keys.keys, ElementsAre("first", "second", "third"));
  ServeOptions absent;
  EXPECT_THAT(fault(absent, {"--api-key-file", "/nowhere/keys"}), HasSubstr("--api-key-file"));
}

TEST(ServeOptions, OriginsAreListedOrJson) {
  ServeOptions every;
  ASSERT_EQ(fault(every, {}), "");
  EXPECT_THAT(every.server.cors.origins, ElementsAre("*"));
  ServeOptions some;
  ASSERT_EQ(fault(some, {"--allowed-origins", "https://a.test", "--allowed-origins", "[\"https://b.test\"]"}), "");
  EXPECT_THAT(some.server.cors.origins, ElementsAre("https://a.test", "https://b.test"));
  ServeOptions broken;
  EXPECT_THAT(fault(broken, {"--allowed-origins", "[1]"}), HasSubstr("something else than strings"));
}

TEST(ServeOptions, FormatsThatRequestsMayAskFor) {
  ServeOptions usual;
  ASSERT_EQ(fault(usual, {}), "");
  EXPECT_THAT(usual.run.kv_request_formats, ElementsAre(KvFormat::int8, KvFormat::fp16, KvFormat::fp32));
  ServeOptions some;
  ASSERT_EQ(fault(some, {"--kv-request-formats", "bf16,q8_0"}), "");
  EXPECT_THAT(some.run.kv_request_formats, ElementsAre(KvFormat::bf16, KvFormat::q8_0));
  ServeOptions none;
  ASSERT_EQ(fault(none, {"--kv-request-formats", "none"}), "");
  EXPECT_TRUE(none.run.kv_request_formats.empty());
  ServeOptions wrong;
  EXPECT_THAT(fault(wrong, {"--kv-request-formats", "fp16,int7"}), HasSubstr("int7 is neither 'none' nor one of"));
  EXPECT_THAT(fault(wrong, {"--kv-request-formats", "fp32,fp16,bf16,q8_0,int8,fp8,int4,q4_0"}),
              HasSubstr("at most 7 formats"));
}

TEST(ServeOptions, WhatColdBlocksAreEncodedIn) {
  ServeOptions usual;
  ASSERT_EQ(fault(usual, {}), "");
  EXPECT_EQ(usual.run.kv_reencode, std::nullopt);
  ServeOptions int4;
  ASSERT_EQ(fault(int4, {"--kv-reencode", "int4"}), "");
  EXPECT_EQ(int4.run.kv_reencode, KvFormat::int4);
  ServeOptions wrong;
  EXPECT_THAT(fault(wrong, {"--kv-reencode", "zip"}), HasSubstr("zip is neither 'off' nor one of"));
}

TEST(ServeOptions, ACertificateNeedsItsKey) {
  ServeOptions options;
  EXPECT_THAT(fault(options, {"--ssl-certfile", "c.pem"}), HasSubstr("belong together"));
}

TEST(ServeOptions, NoNameIsTakenTwice) {
  ServeOptions options;
  OptionList list;
  add_serve_options(list, options);
  std::set<std::string> names;
  for (const Option& option : list.options()) {
    for (const std::string& name : option.names) EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_FALSE(option.help.empty()) << option.names.front();
  }
}

}  // namespace
}  // namespace tidemill
