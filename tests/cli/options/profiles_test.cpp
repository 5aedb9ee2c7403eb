#include "cli/options/profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/options/option_parser.h"
#include "cli/options/serve_options.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;

std::string fault(ServeOptions& options, const std::vector<std::string>& arguments,
                  const Environment& environment = {}) {
  OptionList list;
  add_serve_options(list, options);
  const Result<ParsedCommand> parsed = parse_options(list, arguments, environment);
  return parsed ? "" : parsed.error().message;
}

TEST(Profiles, EveryOneSetsOptionsThatExistToValuesThatTheyTake) {
  EXPECT_EQ(profiles().size(), 4u);
  for (const Profile& profile : profiles()) {
    ServeOptions options;
    OptionList list;
    add_serve_options(list, options);
    for (const auto& [name, value] : profile.options) {
      const Option* option = list.find(name);
      ASSERT_NE(option, nullptr) << profile.name << " sets " << name;
      EXPECT_EQ(option->names.front(), "--" + name) << "profiles use main names";
      EXPECT_TRUE(option->set(value).ok()) << profile.name << ": --" << name << " " << value;
    }
    ServeOptions parsed;
    EXPECT_EQ(fault(parsed, {"--profile", std::string(profile.name)}), "");
    EXPECT_EQ(parsed.profile, profile.name);
  }
}

TEST(Profiles, OneWordSetsLevers) {
  ServeOptions options;
  ASSERT_EQ(fault(options, {"--profile", "throughput"}), "");
  EXPECT_EQ(options.run.engine.max_num_seqs, 256);
  EXPECT_EQ(options.run.engine.itl_multiple, 0);
  EXPECT_EQ(options.run.kv_budget.memory_utilization, 0.8);
  ServeOptions plain;
  ASSERT_EQ(fault(plain, {}), "");
  EXPECT_EQ(plain.run.engine.max_num_seqs, EngineConfig{}.max_num_seqs);
  EXPECT_EQ(plain.run.engine.itl_multiple, EngineConfig{}.itl_multiple);
}

TEST(Profiles, WhatIsGivenByItselfCounts) {
  ServeOptions flag;
  ASSERT_EQ(fault(flag, {"--max-num-seqs", "7", "--profile", "edge"}), "");
  EXPECT_EQ(flag.run.engine.max_num_seqs, 7);
  EXPECT_EQ(flag.run.engine.block_size_tokens, 16);
  ServeOptions variable;
  ASSERT_EQ(fault(variable, {"--profile", "edge"}, {{"TIDEMILL_MAX_NUM_SEQS", "9"}}), "");
  EXPECT_EQ(variable.run.engine.max_num_seqs, 9);
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "profile.yaml";
  std::ofstream(file) << "profile: realtime\nmax-num-seqs: 5\n";
  ServeOptions in_file;
  ASSERT_EQ(fault(in_file, {"--config", file.string()}), "");
  EXPECT_EQ(in_file.profile, "realtime");
  EXPECT_EQ(in_file.run.engine.max_num_seqs, 5);
  EXPECT_EQ(in_file.run.engine.itl_multiple, 1.5);
  ServeOptions over_file;  // the command line's profile, not the file's; the file's other lines count
  ASSERT_EQ(fault(over_file, {"--config", file.string(), "--profile", "throughput"}), "");
  EXPECT_EQ(over_file.run.engine.itl_multiple, 0);
  EXPECT_EQ(over_file.run.engine.max_num_seqs, 5);
}

TEST(Profiles, AnUnknownOneIsAnError) {
  ServeOptions options;
  EXPECT_THAT(fault(options, {"--profile", "fast"}),
              HasSubstr("is not one of throughput, long-context, edge, realtime"));
}

TEST(Profiles, TheHelpShowsWhatEachSets) {
  const std::string help = profiles_help();
  for (const Profile& profile : profiles()) {
    EXPECT_THAT(help, HasSubstr(std::string(profile.name)));
    for (const auto& [name, value] : profile.options) EXPECT_THAT(help, HasSubstr("--" + name + " " + value));
  }
}

TEST(Profiles, TheTargetIsReadInMilliseconds) {
  ServeOptions options;
  ASSERT_EQ(fault(options, {"--target-itl-ms", "12.5"}), "");
  EXPECT_EQ(options.run.engine.target_itl, std::chrono::microseconds(12500));
  EXPECT_THAT(fault(options, {"--target-itl-ms", "-1"}), HasSubstr("not between 0 and 60000"));
  EXPECT_THAT(fault(options, {"--itl-multiple", "-1"}), HasSubstr("--itl-multiple"));
}

}  // namespace
}  // namespace tidemill
