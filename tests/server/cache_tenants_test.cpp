// Whose prompts share prefix blocks, seen from outside (H26).
#include <gtest/gtest.h>

#include "server/http/auth.h"
#include "test_server.h"

namespace tidemill::testing {
namespace {

std::string key(const std::string& name) {
  return "Authorization: Bearer " + name + "\r\n";
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

TEST(CacheTenants, KeysShareUnlessTheyAreAssigned) {
  TestOptions options;
  options.server.keys.keys = {"a", "b", "one tenant=red", "two bulk tenant=red", "three tenant=blue interactive"};
  TestServer server(options);
  server.script.say("ok");
  const auto ask = [&](const std::string& name) {
    return cached(server.post("/v1/completions", prompt_of('x'), key(name)));
  };
  EXPECT_EQ(ask("a"), 0);
  const int whole = ask("b");
  EXPECT_GT(whole, 150);
  EXPECT_EQ(ask("one"), 0);
  EXPECT_EQ(ask("two"), whole);
  EXPECT_EQ(ask("three"), 0);
  EXPECT_EQ(ask("three"), whole);
}

TEST(CacheTenants, AProbeComputesAsMuchAsTheFirst) {
  TestOptions options;
  options.server.keys.keys = {"one tenant=red", "three tenant=blue"};
  TestServer server(options);
  server.script.say("ok");
  const auto computed = [&](const std::string& name, const nlohmann::json& more) {
    const uint64_t before = server.engine().stats().prompt_tokens_computed;
    EXPECT_EQ(cached(server.post("/v1/completions", prompt_of('x', more), key(name))), 0);
    return server.engine().stats().prompt_tokens_computed - before;
  };
  const uint64_t first = computed("one", nlohmann::json::object());
  EXPECT_EQ(first, 201u);
  EXPECT_EQ(computed("three", nlohmann::json::object()), first);
  // The victim's salt, and names that spell another tenant, open nothing.
  EXPECT_EQ(computed("one", {{"cache_salt", "s"}}), first);
  EXPECT_EQ(computed("three", {{"cache_salt", "s"}}), first);
  EXPECT_EQ(computed("three", {{"cache_salt", "red"}}), first);
}

TEST(CacheTenants, IsolatedKeysAreTenantsEach) {
  TestOptions options;
  options.server.keys.keys = {"a", "b", "c tenant=red", "d tenant=red"};
  options.server.keys.isolate = true;
  TestServer server(options);
  server.script.say("ok");
  for (const char* name : {"a", "b", "c"})
    EXPECT_EQ(cached(server.post("/v1/completions", prompt_of('x'), key(name))), 0) << name;
  for (const char* name : {"a", "b", "d"})
    EXPECT_GT(cached(server.post("/v1/completions", prompt_of('x'), key(name))), 0) << name;
}

TEST(CacheTenants, AnAdministratorIsACallerToo) {
  const KeyRing closed = *KeyRing::make({.keys = {"a"}, .admin_keys = {"root"}});
  const KeyRing open = *KeyRing::make({.admin_keys = {"root"}});
  const auto who = [](const KeyRing& ring, const std::string& name) {
    HttpRequest request;
    if (!name.empty()) request.headers.emplace_back("x-api-key", name);
    return ring.identify(request);
  };
  EXPECT_TRUE(who(closed, "root")->admin);
  EXPECT_FALSE(who(closed, "a")->admin);
  EXPECT_FALSE(who(closed, "b"));
  EXPECT_FALSE(who(closed, ""));
  EXPECT_TRUE(who(open, "root")->admin);
  EXPECT_FALSE(who(open, "")->admin);
  EXPECT_FALSE(who(open, "wrong")->admin);
  EXPECT_TRUE(who(*KeyRing::make({.keys = {"both"}, .admin_keys = {"both"}}), "both")->admin);
  for (const char* entry : {"k tenant=", "k tenant=a tenant=b", "k tenant=a b", "k =a"})
    EXPECT_FALSE(KeyRing::make({.keys = {entry}}).ok()) << entry;
}

}  // namespace
}  // namespace tidemill::testing
