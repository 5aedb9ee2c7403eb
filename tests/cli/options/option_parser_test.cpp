#include "cli/options/option_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tidemill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OptionParserTest : public ::testing::Test {
 protected:
  OptionParserTest() {
    list.positional("PATH", &path, "A path.");
    list.group("Network");
    list.integer("--port,-p", &port, "PORT", 0, 65535, "Port to listen on.");
    list.texts("--api-key", &keys, "KEY", "A key.");
    list.duration("--request-timeout", &timeout, "Longest life of a request.");
    list.group("Memory");
    list.integer("--kv-cache-memory-bytes", &memory, "SIZE", 1, int64_t{1} << 50, "Bytes.", "by share");
    list.flag("--enable-prefix-caching", &prefix, "Share prefixes.");
    list.choice("--batching", &batching, {{"none", 0}, {"static", 1}, {"continuous", 2}}, "How to batch.");
    list.number("--memory-utilization,--gpu-memory-utilization", &share, 0.0, 1.0, "Share.");
    std::string name = "--config";
    list.text(name, &config, "FILE", "Settings.");
  }

  Result<ParsedCommand> parse(std::vector<std::string> arguments, Environment environment = {}) {
    return parse_options(list, arguments, environment);
  }
  std::string fault(std::vector<std::string> arguments, Environment environment = {}) {
    const Result<ParsedCommand> parsed = parse(std::move(arguments), std::move(environment));
    return parsed ? "" : parsed.error().message;
  }
  std::string config_with(const std::string& text) {
    const std::filesystem::path file =
        std::filesystem::path(::testing::TempDir()) /
        (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".yaml");
    std::ofstream(file) << text;
    return file.string();
  }

  OptionList list;
  std::string path, config;
  int32_t port = 8000;
  std::vector<std::string> keys;
  std::chrono::milliseconds timeout{0};
  std::optional<int64_t> memory;
  bool prefix = true;
  int batching = 2;
  double share = 0.9;
};

TEST_F(OptionParserTest, TakesOptionsInEveryForm) {
  ASSERT_TRUE(parse({"model.gguf", "--port=1", "--api-key", "a", "--api-key", "b", "--no-enable-prefix-caching",
                     "--kv-cache-memory-bytes", "2GiB", "--batching", "static", "--gpu-memory-utilization", "0.5",
                     "--request-timeout", "90"}));
  EXPECT_EQ(path, "model.gguf");
  EXPECT_EQ(port, 1);
  EXPECT_THAT(keys, ElementsAre("a", "b"));
  EXPECT_FALSE(prefix);
  EXPECT_EQ(memory, int64_t{2} << 30);
  EXPECT_EQ(batching, 1);
  EXPECT_EQ(share, 0.5);
  EXPECT_EQ(timeout.count(), 90'000);
}

TEST_F(OptionParserTest, TheLastOfARepeatedSingleOptionCounts) {
  ASSERT_TRUE(parse({"-p", "1", "--port", "2"}));
  EXPECT_EQ(port, 2);
}

TEST_F(OptionParserTest, CommandLineOverEnvironmentOverFile) {
  const std::string file = config_with("port: 1\nkv_cache_memory_bytes: 1k\napi-key: [x, y]\nbatching: none\n");
  const Environment environment = {{"TIDEMILL_CONFIG", file}, {"TIDEMILL_PORT", "2"}, {"TIDEMILL_BATCHING", "static"}};
  ASSERT_TRUE(parse({"--port", "3"}, environment));
  EXPECT_EQ(port, 3);
  EXPECT_EQ(batching, 1);
  EXPECT_EQ(memory, 1000);
  EXPECT_THAT(keys, ElementsAre("x", "y"));
}

TEST_F(OptionParserTest, ASourceReplacesALowerOnesList) {
  const std::string file = config_with("api-key: [x, y]\n");
  ASSERT_TRUE(parse({"--config", file, "--api-key", "z"}));
  EXPECT_THAT(keys, ElementsAre("z"));
}

TEST_F(OptionParserTest, SuggestsTheNearestName) {
  EXPECT_EQ(fault({"--prot", "1"}), "there is no option --prot; did you mean --port?");
  EXPECT_EQ(fault({"--batchin=none"}), "there is no option --batchin; did you mean --batching?");
  EXPECT_EQ(fault({"--zzzzzzzzzzzz"}), "there is no option --zzzzzzzzzzzz");
  EXPECT_THAT(fault({"--config", config_with("kv-cache-memory-byte: 1\n")}),
              HasSubstr("there is no option 'kv-cache-memory-byte'; did you mean kv-cache-memory-bytes?"));
}

TEST_F(OptionParserTest, WarnsOfANearMissInTheEnvironment) {
  const Result<ParsedCommand> parsed = parse({}, {{"TIDEMILL_PROT", "1"}, {"TIDEMILL_CACHE", "x"}});
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->warnings, ElementsAre("the environment variable TIDEMILL_PROT means nothing here; did you mean "
                                            "TIDEMILL_PORT?"));
}

TEST_F(OptionParserTest, ErrorsNameTheirSource) {
  EXPECT_EQ(fault({"--port", "99999"}), "--port: 99999 is not between 0 and 65535");
  EXPECT_EQ(fault({"--port", "-5"}), "--port: -5 is not between 0 and 65535");
  EXPECT_EQ(fault({}, {{"TIDEMILL_PORT", "x"}}), "TIDEMILL_PORT: 'x' is not a number");
  EXPECT_THAT(fault({"--config", config_with("batching: some\n")}),
              HasSubstr(", batching: 'some' is not one of none, static, continuous"));
  EXPECT_EQ(fault({"--batching", "some"}), "--batching: 'some' is not one of none, static, continuous");
  EXPECT_EQ(fault({"--port"}).substr(0, 6), "--port");
  EXPECT_EQ(fault({"--api-key", "--port", "1"}), "--api-key needs a value (KEY)");
  EXPECT_EQ(fault({"one", "two"}), "'two' is one argument too many");
}

TEST_F(OptionParserTest, BrokenFilesAreNamedWithTheirLine) {
  EXPECT_THAT(fault({"--config", config_with("port: 1\n  batching: [\n")}), HasSubstr(", line "));
  EXPECT_THAT(fault({"--config", config_with("- a\n- b\n")}), HasSubstr("not a mapping"));
  EXPECT_THAT(fault({"--config", config_with("port: {a: 1}\n")}), HasSubstr("'port' is a mapping"));
  EXPECT_THAT(fault({"--config", "/nowhere/x.yaml"}), HasSubstr("/nowhere/x.yaml"));
}

TEST_F(OptionParserTest, HelpShowsGroupsDefaultsAndUnits) {
  EXPECT_TRUE(parse({"--help"})->help_wanted);
  const std::string text = help_text({"serve", "Serves.", ""}, list);
  EXPECT_THAT(text, HasSubstr("\nNetwork:\n  --port, -p PORT"));
  EXPECT_THAT(text, HasSubstr("[default: 8000]"));
  EXPECT_THAT(text, HasSubstr("--batching none|static|continuous"));
  EXPECT_THAT(text, HasSubstr("[default: continuous]"));
  EXPECT_THAT(text, HasSubstr("--[no-]enable-prefix-caching"));
}

}  // namespace
}  // namespace tidemill
