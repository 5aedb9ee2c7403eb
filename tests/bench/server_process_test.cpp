#include "bench/server_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "server/test_server.h"
#include "test_data.h"

namespace tidemill {
namespace {

using std::chrono::milliseconds;
using testing::eventually;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(ServerProcess, EndsWithAllThatItStarted) {
  const TemporaryFolder folder;
  auto process = ServerProcess::start("sleep 600 & sleep 600", folder.path() / "out");
  ASSERT_TRUE(process.ok());
  const pid_t group = (*process)->group();
  EXPECT_TRUE(eventually([&] { return (*process)->peak_resident_bytes() > 0; }));
  (*process)->stop();
  EXPECT_TRUE(eventually([&] { return kill(-group, 0) != 0; }));
}

TEST(ServerProcess, KillsWhatDoesNotListen) {
  const TemporaryFolder folder;
  auto process = ServerProcess::start("trap '' TERM; echo ready; while :; do sleep 0.05; done", folder.path() / "out");
  ASSERT_TRUE(process.ok());
  const pid_t group = (*process)->group();
  ASSERT_TRUE(eventually([&] { return testing::read_file(folder.path() / "out") == "ready\n"; }));
  (*process)->stop(milliseconds(50));
  EXPECT_TRUE(eventually([&] { return kill(-group, 0) != 0; }));
}

TEST(ServerProcess, QuotesAServerThatEnds) {
  const TemporaryFolder folder;
  auto process = ServerProcess::start("echo 'no such model' >&2; exit 3", folder.path() / "out");
  ASSERT_TRUE(process.ok());
  const Result<void> healthy = (*process)->wait_healthy({"127.0.0.1", "1", ""}, std::chrono::seconds(20));
  ASSERT_FALSE(healthy.ok());
  EXPECT_THAT(healthy.error().message, HasSubstr("no such model"));
}

TEST(ServerProcess, WaitsForHealthAndNoLongerThanTheLimit) {
  const TemporaryFolder folder;
  testing::TestServer server;
  const HttpUrl url = {"127.0.0.1", std::to_string(server.port()), "/v1"};
  auto process = ServerProcess::start("exec sleep 600", folder.path() / "out");
  ASSERT_TRUE(process.ok());
  EXPECT_TRUE((*process)->wait_healthy(url, std::chrono::seconds(20)).ok());
  EXPECT_TRUE(answers({"127.0.0.1", std::to_string(server.port()), ""}));
  const Result<void> late = (*process)->wait_healthy({"127.0.0.1", "1", ""}, milliseconds(100));
  EXPECT_THAT(late.error().message, HasSubstr("did not get ready"));
  const Result<void> interrupted =
      (*process)->wait_healthy({"127.0.0.1", "1", ""}, std::chrono::seconds(20), [] { return true; });
  EXPECT_EQ(interrupted.error().message, "interrupted");
}

TEST(FreePort, CanBeListenedOn) {
  EXPECT_GT(free_port(), 0);
}

TEST(ShellQuoted, IsOneWord) {
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace tidemill
