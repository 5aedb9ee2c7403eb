// The load generator against the project's own server, with an executor that says what a script tells it.
#include "bench/load_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/test_server.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;
using testing::TestOptions;
using testing::TestServer;

LoadOptions options_for(const TestServer& server) {
  LoadOptions options;
  options.url = {"127.0.0.1", std::to_string(server.port()), ""};
  options.model = "tiny";
  options.limit_s = 30;
  return options;
}

std::vector<BenchRequest> some_requests(int count, int32_t max_tokens) {
  std::vector<BenchRequest> requests;
  for (int i = 0; i < count; ++i)
    requests.push_back({"prompt " + std::to_string(i), max_tokens, i % 2 ? "odd" : "even", {}});
  return requests;
}

TestOptions many_sequences() {
  TestOptions options;
  options.engine.max_num_seqs = 256;
  options.engine.max_num_batched_tokens = 4096;
  options.engine.kv_budget_bytes *= 64;
  return options;
}

TEST(LoadClient, CountsTheTokensOfEveryStream) {
  TestServer server(many_sequences());
  server.script.say(std::string(100, 'x'));
  const auto result = run_load(some_requests(40, 20), options_for(server));
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->records.size(), 40u);
  for (const RequestRecord& record : result->records) {
    EXPECT_EQ(record.error, "");
    EXPECT_EQ(record.token_s.size(), 20u);
    EXPECT_EQ(record.output_tokens, 20);
    EXPECT_GT(record.prompt_tokens, 8);
    EXPECT_GE(record.token_s.front(), record.start_s);
    EXPECT_GE(record.end_s, record.token_s.back());
    EXPECT_EQ(record.class_name, record.index % 2 ? "odd" : "even");
  }
  EXPECT_TRUE(server.quiet());
}

TEST(LoadClient, HoldsManyStreamsAtOnce) {
  TestServer server(many_sequences());
  server.script.say(std::string(100, 'x'));
  server.script.step_delay_us = 2000;
  LoadOptions options = options_for(server);
  options.concurrency = 256;
  size_t most_open = 0;
  options.on_progress = [&](const RunProgress& progress) { most_open = std::max(most_open, progress.num_open); };
  const auto result = run_load(some_requests(256, 16), options);
  ASSERT_TRUE(result.ok());
  const LoadSummary summary = summarize(result->records, result->wall_s);
  EXPECT_EQ(summary.num_errors, 0u) << result->records.front().error;
  EXPECT_EQ(summary.output_tokens, 256 * 16);
  EXPECT_EQ(most_open, 256u);
}

TEST(LoadClient, SpeaksChat) {
  TestOptions with_template;
  with_template.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
  TestServer server(with_template);
  server.script.say("hello there");
  LoadOptions options = options_for(server);
  options.chat = true;
  const auto result = run_load(some_requests(3, 5), options);
  ASSERT_TRUE(result.ok());
  for (const RequestRecord& record : result->records) {
    EXPECT_EQ(record.error, "");
    EXPECT_EQ(record.token_s.size(), 5u);
  }
}

TEST(LoadClient, OpenLoopKeepsItsTimes) {
  TestServer server;
  server.script.say(std::string(100, 'x'));
  std::vector<BenchRequest> requests = some_requests(4, 4);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].arrival_s = 0.05 * static_cast<double>(i);
  LoadOptions options = options_for(server);
  options.open_loop = true;
  const auto result = run_load(requests, options);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->records.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GE(result->records[i].start_s, 0.05 * static_cast<double>(i));
    EXPECT_EQ(result->records[i].error, "");
  }
}

TEST(LoadClient, NotesWhatTheServerRefuses) {
  TestServer server;
  LoadOptions options = options_for(server);
  options.model = "other";
  const auto result = run_load(some_requests(2, 5), options);
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->records[0].error, HasSubstr("HTTP 404"));
  options.extra_fields = "[1]";
  EXPECT_FALSE(run_load(some_requests(2, 5), options).ok());
}

TEST(LoadClient, NotesThatNobodyListens) {
  LoadOptions options;
  options.url = {"127.0.0.1", "1", ""};
  const auto result = run_load(some_requests(3, 5), options);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->records.size(), 3u);
  EXPECT_EQ(result->records[2].error, "Connection refused");
  EXPECT_FALSE(first_model(options.url, "").ok());
}

TEST(LoadClient, EndsAtItsLimit) {
  TestServer server;
  server.script.say(std::string(2000, 'x'));
  server.script.step_delay_us = 20000;
  LoadOptions options = options_for(server);
  options.limit_s = 0.3;
  options.concurrency = 2;
  const auto result = run_load(some_requests(6, 400), options);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->records.size(), 2u);
  EXPECT_THAT(result->records[0].error, HasSubstr("time limit"));
  EXPECT_LT(result->wall_s, 5);
  EXPECT_TRUE(server.quiet());
}

TEST(LoadClient, FindsTheServersModel) {
  TestServer server;
  EXPECT_EQ(*first_model({"127.0.0.1", std::to_string(server.port()), ""}, ""), "tiny");
  EXPECT_EQ(*first_model({"127.0.0.1", std::to_string(server.port()), "/v1"}, ""), "tiny");
}

}  // namespace
}  // namespace tidemill
