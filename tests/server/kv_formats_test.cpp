// Requests that ask for a better KV cache than the server's usual one, over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_server.h"

namespace tidemill::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A cache in int8 that keeps fp16 for who asks.
TestOptions int8_server() {
  TestOptions options;
  options.engine.groups = {{.tail_bytes = 1024, .sealed_bytes = 520, .same_format = false, .window_tokens = 0}};
  options.engine.kv_tail_format = "fp16";
  options.engine.kv_sealed_format = options.engine.kv_format_key = "int8";
  options.engine.extra_formats = {
      {.groups = {{.tail_bytes = 1024, .sealed_bytes = 1024, .same_format = true, .window_tokens = 0}},
       .tail_name = "fp16",
       .sealed_name = "fp16",
       .key = "fp16"}};
  options.kv = {.offers = {{"int8", KvFidelity::high, 1}, {"fp16", KvFidelity::exact, 2}},
                .rank_by_format = {{"fp32", 3}, {"fp16", 2}, {"int8", 1}, {"int4", 0}}};
  return options;
}

json asking(json more) {
  json body = {{"prompt", std::string(100, 'a')}, {"max_tokens", 2}, {"temperature", 0}};
  body.update(more);
  return body;
}

class KvFormatsServer : public ::testing::Test {
 protected:
  json answer(const json& more) {
    const Reply reply = server_.post("/v1/completions", asking(more));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  static int cached(const json& reply) { return reply["usage"]["prompt_tokens_details"]["cached_tokens"]; }

  TestServer server_{int8_server()};
};

TEST_F(KvFormatsServer, TheReplySaysWhatWasUsed) {
  const json fp16 = {{"formats", "fp16"}, {"fidelity", "exact"}}, int8 = {{"formats", "int8"}, {"fidelity", "high"}};
  EXPECT_EQ(answer({{"kv_fidelity", "exact"}})["kv_cache"], fp16);
  EXPECT_EQ(answer({{"kv_cache_dtype", "fp16"}, {"kv_fidelity", "compact"}})["kv_cache"], fp16);
  EXPECT_EQ(answer({{"kv_fidelity", "high"}})["kv_cache"], int8);
  EXPECT_EQ(answer({{"kv_cache_dtype", "int4"}})["kv_cache"], int8);
  EXPECT_FALSE(answer(json::object()).contains("kv_cache"));
  const json chat = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"kv_fidelity", "exact"}};
  EXPECT_EQ(server_.post("/v1/chat/completions", chat).json()["kv_cache"], fp16);
}

TEST_F(KvFormatsServer, BlocksAreSharedWithinAFormatOnly) {
  EXPECT_EQ(cached(answer(json::object())), 0);
  EXPECT_EQ(cached(answer({{"kv_cache_dtype", "fp16"}})), 0);
  EXPECT_GT(cached(answer({{"kv_fidelity", "exact"}})), 0);
  EXPECT_GT(cached(answer({{"kv_fidelity", "balanced"}})), 0);
}

TEST_F(KvFormatsServer, MapAndMetricsTellTheFormatsApart) {
  answer(json::object());
  answer({{"kv_cache_dtype", "fp16"}});
  const json map = server_.get("/v1/cache").json();
  std::map<std::string, size_t> cached_bytes;
  for (const json& row : map["blocks"]) {
    if (row[2] == "cached") cached_bytes[row[3]] += row[3] == "int8" ? 520 : 1024;
  }
  EXPECT_GT(cached_bytes["int8"], 0u);
  EXPECT_GT(cached_bytes["fp16"], 0u);
  const json& totals = map["totals"];
  ASSERT_EQ(totals["formats"].size(), 2u);
  size_t sum = 0;
  for (const json& format : totals["formats"]) {
    EXPECT_EQ(format["cached_bytes"], cached_bytes[format["format"]]);
    for (const char* state : {"held_bytes", "cached_bytes", "idle_bytes"}) sum += format[state].get<size_t>();
  }
  EXPECT_EQ(sum, totals["held_bytes"].get<size_t>() + totals["cached_bytes"].get<size_t>() +
                     totals["idle_bytes"].get<size_t>());
  EXPECT_EQ(map["groups"][0]["format"], "int8");
  EXPECT_EQ(map["groups"][0]["extra_formats"][0]["block_bytes"], 1024);
  const std::string metrics = server_.get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("tidemill:kv_cache_format_bytes{"));
  EXPECT_THAT(metrics, HasSubstr("format=\"fp16\",state=\"cached\"} " + std::to_string(cached_bytes["fp16"])));
}

// A small cache in fp16 whose cold blocks are encoded anew in int8.
TEST(KvReencodingServer, TheReplyNamesTheCopiesThatWereRead) {
  TestOptions options = int8_server();
  std::swap(options.engine.groups, options.engine.extra_formats[0].groups);
  options.engine.kv_sealed_format = options.engine.kv_format_key = "fp16";
  options.engine.extra_formats[0].sealed_name = options.engine.extra_formats[0].key = "int8";
  options.engine.kv_reencode = 1;
  options.engine.kv_budget_bytes = 32 << 10;
  options.kv = {.offers = {{"fp16", KvFidelity::exact, 2}},
                .reencoded = KvOffer{"int8", KvFidelity::high, 1},
                .rank_by_format = options.kv.rank_by_format};
  TestServer server(options);
  server.script.say("ok");
  const auto post = [&](char letter, json more) {
    more["prompt"] = std::string(200, letter);
    return server.post("/v1/completions", asking(std::move(more)));
  };
  for (char letter = 'a'; letter < 'g'; ++letter) EXPECT_EQ(post(letter, json::object()).status, 200);
  const json streamed = {{"kv_fidelity", "high"}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  const std::vector<std::string> events = post('c', streamed).events();
  ASSERT_GE(events.size(), 2u);
  const json last = json::parse(events[events.size() - 2]);  // before [DONE]
  const json details = last["usage"]["prompt_tokens_details"];
  ASSERT_GT(details.value("reencoded_tokens", 0), 0) << last.dump();
  EXPECT_EQ(last["kv_cache"]["formats"], "fp16");
  EXPECT_EQ(last["kv_cache"]["reencoded"],
            (json{{"formats", "int8"}, {"fidelity", "high"}, {"tokens", details["reencoded_tokens"]}}));
  EXPECT_FALSE(json::parse(events.front())["kv_cache"].contains("reencoded")) << "not known yet";
  EXPECT_FALSE(post('d', json{{"kv_fidelity", "exact"}}).json()["kv_cache"].contains("reencoded"));
}

TEST_F(KvFormatsServer, WhatTheServerDoesNotKeepIsRefused) {
  const Reply reply = server_.post("/v1/completions", asking({{"kv_cache_dtype", "fp32"}}));
  EXPECT_EQ(reply.status, 400);
  const json error = reply.json()["error"];
  EXPECT_EQ(error["param"], "kv_cache_dtype");
  EXPECT_THAT(error["message"].get<std::string>(),
              HasSubstr("is fp32, and the server keeps KV blocks in int8 (high), fp16 (exact)"));
}

}  // namespace
}  // namespace tidemill::testing
