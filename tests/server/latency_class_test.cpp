// A request's latency class: by field, by OpenAI's service_tier, by header, by key; and what the metrics show of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http/auth.h"
#include "server/test_server.h"

namespace tidemill::testing {
namespace {

using nlohmann::json;

json completion(std::initializer_list<std::pair<const std::string, json>> more = {}) {
  json body = {{"model", "tiny"}, {"prompt", "hi"}, {"max_tokens", 4}};
  for (const auto& [key, value] : more) body[key] = value;
  return body;
}

// The class that the engine counted the next answer under, or -1.
int class_of(TestServer& server, const json& body, const std::string& headers = {}) {
  const auto counts = [&server] {
    std::vector<uint64_t> counts;
    for (const ClassStats& each : server.engine().stats().classes) counts.push_back(each.time_to_first_token.count());
    return counts;
  };
  const std::vector<uint64_t> before = counts();
  const Reply reply = server.post("/v1/completions", body, headers);
  if (reply.status != 200) return -1;
  const std::vector<uint64_t> after = counts();
  for (size_t i = 0; i < before.size(); ++i)
    if (after[i] == before[i] + 1) return static_cast<int>(i);
  return -1;
}

constexpr int interactive = 0, standard = 1, bulk = 2;

TEST(LatencyClassOfRequests, ByFieldTierAndHeader) {
  TestServer server;
  server.script.say("Hello!");
  EXPECT_EQ(class_of(server, completion()), standard);
  EXPECT_EQ(class_of(server, completion({{"latency_class", nullptr}})), standard);
  EXPECT_EQ(class_of(server, completion({{"latency_class", "interactive"}})), interactive);
  EXPECT_EQ(class_of(server, completion({{"latency_class", "bulk"}})), bulk);
  EXPECT_EQ(class_of(server, completion({{"service_tier", "priority"}})), interactive);
  EXPECT_EQ(class_of(server, completion({{"service_tier", "flex"}})), bulk);
  for (const char* tier : {"auto", "default", "scale"})
    EXPECT_EQ(class_of(server, completion({{"service_tier", tier}})), standard) << tier;
  EXPECT_EQ(class_of(server, completion(), "X-Latency-Class: bulk\r\n"), bulk);
  EXPECT_EQ(class_of(server, completion({{"latency_class", "interactive"}}), "x-latency-class: bulk\r\n"), interactive);
  EXPECT_EQ(class_of(server, completion({{"service_tier", "auto"}}), "X-Latency-Class: bulk\r\n"), bulk);
  const json chat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"latency_class", "bulk"}};
  const uint64_t before = server.engine().stats().classes[bulk].time_to_first_token.count();
  if (server.post("/v1/chat/completions", chat).status == 200) {
    EXPECT_EQ(server.engine().stats().classes[bulk].time_to_first_token.count(), before + 1);
  }
}

TEST(LatencyClassOfRequests, WrongOnesAreRefusedByName) {
  TestServer server;
  server.script.say("Hello!");
  const auto param = [&server](const json& body, const std::string& headers = {}) {
    const Reply reply = server.post("/v1/completions", body, headers);
    EXPECT_EQ(reply.status, 400) << reply.body;
    return reply.json()["error"]["param"].get<std::string>();
  };
  EXPECT_EQ(param(completion({{"latency_class", "fast"}})), "latency_class");
  EXPECT_EQ(param(completion({{"latency_class", 1}})), "latency_class");
  EXPECT_EQ(param(completion({{"service_tier", "gold"}})), "service_tier");
  EXPECT_EQ(param(completion({{"service_tier", "flex"}, {"latency_class", "interactive"}})), "service_tier");
  EXPECT_EQ(param(completion(), "X-Latency-Class: fast\r\n"), "X-Latency-Class");
  EXPECT_TRUE(server.alive());
}

TEST(LatencyClassOfRequests, AKeysClassIsTheDefaultAndTheBest) {
  TestOptions options;
  options.server.keys.keys = {"plain", "batch bulk", "app standard", "desk  interactive"};
  TestServer server(options);
  server.script.say("Hello!");
  const auto with = [](const char* key) { return std::string("Authorization: Bearer ") + key + "\r\n"; };
  EXPECT_EQ(class_of(server, completion(), with("plain")), standard);
  EXPECT_EQ(class_of(server, completion({{"latency_class", "interactive"}}), with("plain")), interactive);
  EXPECT_EQ(class_of(server, completion(), with("batch")), bulk);
  EXPECT_EQ(class_of(server, completion({{"latency_class", "interactive"}}), with("batch")), bulk);
  EXPECT_EQ(class_of(server, completion({{"service_tier", "priority"}}), with("app")), standard);
  EXPECT_EQ(class_of(server, completion(), with("desk")), interactive);
  EXPECT_EQ(class_of(server, completion({{"latency_class", "bulk"}}), with("desk")), bulk);
  EXPECT_EQ(server.post("/v1/completions", completion(), with("batch bulk")).status, 401);
}

TEST(LatencyClassOfRequests, KeysWithSomethingElseBesideThemAreRefused) {
  EXPECT_TRUE(KeyRing::make({.keys = {"key bulk"}}).ok());
  for (const char* entry : {"key slow", "key bulk bulk", "key Bulk", " bulk"})
    EXPECT_FALSE(KeyRing::make({.keys = {entry}}).ok()) << entry;
}

TEST(LatencyClassOfRequests, TheMetricsTellThemApart) {
  TestServer server;
  server.script.say("Hello!");
  server.post("/v1/completions", completion({{"latency_class", "bulk"}, {"max_tokens", 6}}));
  const std::string text = server.get("/metrics").body;
  for (const char* line :
       {"tidemill:class_time_to_first_token_seconds_count{model_name=\"tiny\",engine=\"0\",latency_class=\"bulk\"} 1",
        "tidemill:class_time_to_first_token_seconds_count{model_name=\"tiny\",engine=\"0\",latency_class=\"standard\"} "
        "0",
        "tidemill:class_inter_token_latency_seconds_count{model_name=\"tiny\",engine=\"0\",latency_class=\"bulk\"} 5",
        "tidemill:class_itl_jitter_ratio_count{model_name=\"tiny\",engine=\"0\",latency_class=\"bulk\"} 1",
        "tidemill:class_requests_running{model_name=\"tiny\",engine=\"0\",latency_class=\"interactive\"} 0",
        "tidemill:class_requests_waiting{", "tidemill:step_limit_seconds{", "tidemill:step_time_error_ratio_count{",
        "tidemill:step_cost_seconds{model_name=\"tiny\",engine=\"0\",of=\"row\"}",
        "tidemill:step_phase_seconds_total{model_name=\"tiny\",engine=\"0\",phase=\"schedule\"}"})
    EXPECT_THAT(text, ::testing::HasSubstr(line));
}

}  // namespace
}  // namespace tidemill::testing
