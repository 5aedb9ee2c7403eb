// /v1/cache: who may look and change, what is shown, and that it is true.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "test_server.h"

namespace tidemill::testing {
namespace {

const std::string admin = "x-api-key: root\r\n";

TestOptions with_admin() {
  TestOptions options;
  options.server.keys.admin_keys = {"root"};
  return options;
}

nlohmann::json prompt_of(char letter, nlohmann::json more = nlohmann::json::object()) {
  nlohmann::json body = {{"prompt", std::string(200, letter)}, {"max_tokens", 2}, {"temperature", 0}};
  body.update(more);
  return body;
}

int cached(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"];
}

TEST(CacheAccess, OnlyAnAdministratorChangesTheCache) {
  TestServer nobody;
  EXPECT_EQ(nobody.post("/v1/cache/resize", {{"share", 0.5}}).status, 403);
  EXPECT_EQ(nobody.post("/v1/cache/pin", prompt_of('a')).status, 403);
  EXPECT_EQ(nobody.get("/v1/cache").status, 200);
  TestOptions options = with_admin();
  options.server.keys.keys = {"user", "other tenant=red"};
  TestServer server(options);
  for (const char* path : {"/v1/cache/resize", "/v1/cache/pin"}) {
    EXPECT_EQ(server.post(path, prompt_of('a', {{"share", 0.5}})).status, 401) << path;
    EXPECT_EQ(server.post(path, prompt_of('a', {{"share", 0.5}}), "x-api-key: user\r\n").status, 403) << path;
    EXPECT_EQ(server.post(path, prompt_of('a', {{"share", 0.5}}), admin).status, 200) << path;
  }
  // One tenant must not see another's blocks.
  EXPECT_EQ(server.get("/v1/cache", "x-api-key: user\r\n").status, 403);
  EXPECT_EQ(server.get("/v1/cache/events", "x-api-key: user\r\n").status, 403);
  EXPECT_EQ(server.get("/v1/cache", admin).status, 200);
}

TEST(CacheResize, RefusesWhatCannotBe) {
  TestServer server(with_admin());
  const size_t budget = server.engine().stats().kv_budget_bytes;
  for (const nlohmann::json& body :
       {nlohmann::json::object(), nlohmann::json{{"bytes", 0}}, nlohmann::json{{"bytes", "x"}},
        nlohmann::json{{"bytes", budget + 1}}, nlohmann::json{{"share", 1.1}}, nlohmann::json{{"share", 0}},
        nlohmann::json{{"bytes", 1}}, nlohmann::json{{"num_blocks", int64_t{1} << 32}},
        nlohmann::json{{"share", 0.5}, {"bytes", budget}}, nlohmann::json::array()})
    EXPECT_EQ(server.post("/v1/cache/resize", body, admin).status, 400) << body.dump();
  EXPECT_EQ(server.post("/v1/cache/resize", {{"share", 0.5}}, admin).json()["wanted_bytes"], budget / 2);
  EXPECT_TRUE(server.alive());
  EXPECT_EQ(server.engine().stats().kv_budget_bytes, budget / 2);
  EXPECT_EQ(server.post("/v1/cache/resize", {{"bytes", budget}}, admin).status, 200);
  EXPECT_TRUE(server.alive());
  EXPECT_EQ(server.engine().stats().kv_budget_bytes, budget);
}

TEST(CachePin, KeepsAPromptForATenant) {
  TestOptions options = with_admin();
  options.server.keys.keys = {"user tenant=red", "other"};
  TestServer server(options);
  server.script.say("ok");
  const Reply pinned = server.post("/v1/cache/pin", prompt_of('p', {{"ttl", 60}, {"tenant", "red"}}), admin);
  ASSERT_EQ(pinned.status, 200) << pinned.body;
  const int tokens = pinned.json()["pinned_tokens"];
  EXPECT_GT(tokens, 150);
  EXPECT_EQ(pinned.json()["prompt_tokens"], 201);
  EXPECT_EQ(cached(server.post("/v1/completions", prompt_of('p'), "x-api-key: user\r\n")), tokens);
  EXPECT_EQ(cached(server.post("/v1/completions", prompt_of('p'), "x-api-key: other\r\n")), 0);
  const nlohmann::json totals = server.get("/v1/cache", admin).json()["totals"];
  EXPECT_EQ(totals["pins"], 1);
  EXPECT_GT(totals["pinned_bytes"], 0);
  EXPECT_EQ(server.post("/v1/cache/pin", prompt_of('p', {{"ttl", 0}, {"tenant", "red"}}), admin).status, 200);
  EXPECT_EQ(server.get("/v1/cache", admin).json()["totals"]["pins"], 0);
  // Nothing to pin, and not understood.
  EXPECT_EQ(server.post("/v1/cache/pin", {{"prompt", "x"}}, admin).status, 409);
  for (const nlohmann::json& more :
       {nlohmann::json{{"ttl", -1}}, nlohmann::json{{"ttl", "x"}}, nlohmann::json{{"tenant", 3}},
        nlohmann::json{{"prompt", {"a", "b"}}}, nlohmann::json{{"prompt", nullptr}}})
    EXPECT_EQ(server.post("/v1/cache/pin", prompt_of('p', more), admin).status, 400) << more.dump();
  EXPECT_TRUE(server.quiet());
}

TEST(CachePin, IsAFieldOfARequestToo) {
  TestOptions options = with_admin();
  options.server.keys.keys = {"user tenant=red"};
  TestServer server(options);
  server.script.say("ok");
  const auto pinning = [&](char letter, int ttl, nlohmann::json more = nlohmann::json::object()) {
    more["cache_pin_ttl"] = ttl;
    return prompt_of(letter, more);
  };
  EXPECT_EQ(server.post("/v1/completions", pinning('p', 60), "x-api-key: user\r\n").status, 403);
  const Reply pinned = server.post("/v1/completions", pinning('p', 60), admin);
  ASSERT_EQ(pinned.status, 200) << pinned.body;
  const nlohmann::json details = pinned.json()["usage"]["prompt_tokens_details"];
  EXPECT_GT(details["pinned_tokens"], 150);
  EXPECT_EQ(pinned.json()["choices"][0]["text"], "ok");
  EXPECT_EQ(server.get("/v1/cache", admin).json()["totals"]["pins"], 1);
  const size_t held = server.engine().stats().kv_pinned_bytes;
  // Beyond what pins may hold, and what fills no block.
  server.post("/v1/cache/resize", {{"bytes", 5 * held}}, admin);
  const Reply refused = server.post("/v1/completions", pinning('q', 60), admin);
  EXPECT_EQ(refused.status, 409) << refused.body;
  EXPECT_EQ(refused.json()["error"]["code"], "nothing_pinned");
  EXPECT_EQ(server.post("/v1/completions", pinning('q', 60, {{"stream", true}}), admin).status, 409);
  EXPECT_EQ(server.post("/v1/completions", pinning('q', 60, {{"prompt", "x"}}), admin).status, 409);
  EXPECT_EQ(server.engine().stats().kv_pinned_bytes, held);
  EXPECT_EQ(server.post("/v1/completions", pinning('p', 0), admin).status, 200) << "ends it";
  EXPECT_EQ(server.get("/v1/cache", admin).json()["totals"]["pins"], 0);
  for (const nlohmann::json& ttl : {nlohmann::json(-1), nlohmann::json("x"), nlohmann::json(31 * 24 * 3600 + 1)})
    EXPECT_EQ(server.post("/v1/completions", prompt_of('p', {{"cache_pin_ttl", ttl}}), admin).status, 400)
        << ttl.dump();
  EXPECT_EQ(server.post("/v1/completions", pinning('p', 60, {{"prompt", {"a", "b"}}}), admin).status, 400);
  EXPECT_TRUE(server.quiet());
}

TEST(CacheMapRoute, AddsUpAndNamesNobody) {
  TestOptions options = with_admin();
  options.server.keys.keys = {"user tenant=red"};
  TestServer server(options);
  server.script.say("ok");
  server.post("/v1/completions", prompt_of('p'), "x-api-key: user\r\n");
  const Reply reply = server.get("/v1/cache", admin);
  EXPECT_EQ(reply.body.find("red"), std::string::npos);
  const nlohmann::json map = reply.json();
  const std::vector<std::string> columns = map["columns"];
  ASSERT_GT(map["blocks"].size(), 5u);
  int64_t bytes = 0;
  for (const nlohmann::json& block : map["blocks"]) {
    ASSERT_EQ(block.size(), columns.size());
    bytes += map["groups"][block[1].get<size_t>()]["block_bytes"].get<int64_t>();
    if (block[2] == "cached") {
      EXPECT_EQ(block[7].get<std::string>().size(), 9u);
    }
  }
  const nlohmann::json& totals = map["totals"];
  EXPECT_EQ(bytes, totals["held_bytes"].get<int64_t>() + totals["cached_bytes"].get<int64_t>() +
                       totals["idle_bytes"].get<int64_t>());
  EXPECT_EQ(totals["budget_bytes"].get<int64_t>(), bytes + totals["unbacked_bytes"].get<int64_t>());
}

TEST(CacheMapRoute, ShowsEveryTier) {
  TestOptions options;
  options.engine.kv_host_bytes = options.engine.kv_budget_bytes / 2;
  TestServer server(options);
  server.script.say("ok");
  for (char letter = 'a'; letter < 'z'; ++letter) server.post("/v1/completions", prompt_of(letter));
  const nlohmann::json map = server.get("/v1/cache").json();
  const std::vector<std::string> columns = map["columns"];
  const size_t tier = std::ranges::find(columns, "tier") - columns.begin();
  const size_t bytes = std::ranges::find(columns, "bytes") - columns.begin();
  std::map<std::string, int64_t> sums;
  std::set<std::string> ids;
  for (const nlohmann::json& block : map["blocks"]) {
    sums[block[tier]] += block[bytes].get<int64_t>();
    EXPECT_TRUE(ids.insert(block[0]).second) << "an id names one block";
  }
  ASSERT_EQ(map["totals"]["tiers"].size(), 2u);
  for (const nlohmann::json& of : map["totals"]["tiers"]) {
    const int64_t occupied =
        of["held_bytes"].get<int64_t>() + of["cached_bytes"].get<int64_t>() + of["idle_bytes"].get<int64_t>();
    EXPECT_GT(of["cached_bytes"], 0) << of.dump();
    EXPECT_EQ(sums[of["tier"]], occupied) << of.dump();
    EXPECT_EQ(of["budget_bytes"].get<int64_t>(), occupied + of["unbacked_bytes"].get<int64_t>()) << of.dump();
  }
}

TEST(CacheEventsRoute, TellsOfChangesAndEndsWithTheServer) {
  TestServer server;
  server.script.say("a long answer that takes a few blocks of its own to hold");
  Socket watcher = server.connect();
  ASSERT_TRUE(watcher.send("GET /v1/cache/events HTTP/1.1\r\nHost: h\r\n\r\n"));
  std::string seen;
  for (int i = 0; i < 50 && seen.find("the cache from now on") == std::string::npos; ++i) {
    seen += watcher.read_some(std::chrono::milliseconds(200));
  }
  EXPECT_NE(seen.find("text/event-stream"), std::string::npos) << seen;
  // A second one that reads nothing does not hold up anybody.
  Socket silent = server.connect();
  ASSERT_TRUE(silent.send("GET /v1/cache/events HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(server.post("/v1/completions", prompt_of('q', {{"max_tokens", 60}})).status, 200);
  for (int i = 0; i < 50 && seen.find("\"cached\"") == std::string::npos; ++i) {
    seen += watcher.read_some(std::chrono::milliseconds(200));
  }
  EXPECT_NE(seen.find("\"cached\""), std::string::npos) << seen;
  EXPECT_NE(seen.find("\"totals\""), std::string::npos);
  watcher.close();
  EXPECT_TRUE(server.alive());
  server.server().begin_shutdown(std::chrono::milliseconds(100));
  const Reply rest = silent.read_reply(std::chrono::seconds(3));
  EXPECT_TRUE(rest.complete);
}

}  // namespace
}  // namespace tidemill::testing
