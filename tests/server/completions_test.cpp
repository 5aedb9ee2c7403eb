// /v1/completions and /v1/chat/completions from outside, over sockets: shapes, parameters, stop strings, choices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/test_server.h"

namespace tidemill::testing {
namespace {

using nlohmann::json;

json completion(std::initializer_list<std::pair<const std::string, json>> more = {}) {
  json body = {{"model", "tiny"}, {"prompt", "hi"}, {"max_tokens", 64}};
  for (const auto& [key, value] : more) body[key] = value;
  return body;
}

json chat(std::initializer_list<std::pair<const std::string, json>> more = {}) {
  json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  for (const auto& [key, value] : more) body[key] = value;
  return body;
}

// The text of choice 0, joined from a stream's chunks; checks what holds for every stream.
std::string streamed_text(const Reply& reply, std::string* finish = nullptr) {
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  std::string text;
  const std::vector<std::string> events = reply.events();
  EXPECT_FALSE(events.empty());
  EXPECT_EQ(events.back(), "[DONE]");
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json event = json::parse(events[i]);
    for (const json& choice : event["choices"]) {
      if (choice.contains("text")) text += choice["text"].get<std::string>();
      if (choice.contains("delta") && choice["delta"].contains("content"))
        text += choice["delta"]["content"].get<std::string>();
      if (finish && choice["finish_reason"].is_string()) *finish = choice["finish_reason"];
    }
  }
  return text;
}

void expect_rejected(const Reply& reply, const std::string& param, int status = 400) {
  ASSERT_EQ(reply.status, status) << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  const json error = reply.json()["error"];
  EXPECT_TRUE(error["message"].is_string());
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"].is_null() ? "" : error["param"].get<std::string>(), param) << reply.body;
  EXPECT_TRUE(error.contains("code"));
  EXPECT_EQ(reply.body.find("/work"), std::string::npos);
}

TEST(Completions, AnswersWithTheModelsText) {
  TestServer server;
  server.script.say("Hello!");
  const json reply = server.post("/v1/completions", completion()).json();
  EXPECT_EQ(reply["object"], "text_completion");
  EXPECT_EQ(reply["model"], "tiny");
  EXPECT_EQ(reply["choices"][0]["text"], "Hello!");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(reply["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 3);  // BOS and two letters
  EXPECT_EQ(reply["usage"]["completion_tokens"], 7);
  EXPECT_EQ(reply["usage"]["total_tokens"], 10);
  EXPECT_TRUE(server.quiet());
}

TEST(Completions, ChatAnswersWithAMessage) {
  TestServer server;
  server.script.say("Hello!");
  const json reply = server.post("/v1/chat/completions", chat()).json();
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "Hello!");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
}

TEST(Completions, StreamHasTheShapeOfOpenAi) {
  TestServer server;
  server.script.say("a\r\nb data: \xE2\x80\xA8 c");
  const Reply reply =
      server.post("/v1/chat/completions", chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  const std::vector<std::string> events = reply.events();
  ASSERT_GE(events.size(), 4u);
  const json first = json::parse(events.front());
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(first["choices"][0]["delta"]["content"], "");
  EXPECT_EQ(first["usage"], nullptr);
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json event = json::parse(events[i]);
    EXPECT_EQ(event["id"], first["id"]);
    EXPECT_EQ(event["created"], first["created"]);
    EXPECT_EQ(event["model"], "tiny");
    EXPECT_EQ(event["choices"].empty(), i + 2 == events.size());
  }
  const json last = json::parse(events[events.size() - 2]);
  EXPECT_EQ(last["usage"]["completion_tokens"], 17);  // bytes and the end token
  const json finish = json::parse(events[events.size() - 3]);
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(streamed_text(reply), "a\r\nb data: \xE2\x80\xA8 c");
  const json whole = server.post("/v1/chat/completions", chat()).json();
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "a\r\nb data: \xE2\x80\xA8 c");
  EXPECT_EQ(whole["usage"]["completion_tokens"], last["usage"]["completion_tokens"]);
}

TEST(Completions, UsageComesOnlyWhenAskedFor) {
  TestServer server;
  server.script.say("abc");
  for (const json& options : {json(), json::object(), json{{"include_usage", false}}}) {
    json body = completion({{"stream", true}});
    if (!options.is_null()) body["stream_options"] = options;
    for (const std::string& event : server.post("/v1/completions", body).events()) {
      if (event == "[DONE]") continue;
      EXPECT_FALSE(json::parse(event).contains("usage")) << event;
    }
  }
  expect_rejected(server.post("/v1/completions", completion({{"stream_options", {{"include_usage", true}}}})),
                  "stream_options");
  const Reply continuous = server.post(
      "/v1/completions", completion({{"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}}));
  for (const std::string& event : continuous.events()) {
    if (event == "[DONE]") continue;
    EXPECT_TRUE(json::parse(event)["usage"]["completion_tokens"].is_number()) << event;
  }
}

struct StopCase {
  json stop;
  std::string text;
  std::string finish;
};

TEST(Completions, StopStringsAcrossTokens) {
  TestServer server;
  server.script.set({{ab_token, cde_token, f_token, gh_token, eos_id}});
  const std::vector<StopCase> cases = {
      {{"CDEFGH"}, "AB", "stop"},
      {{"BC"}, "A", "stop"},
      {{"E", "DE"}, "ABC", "stop"},
      {{"CDEFGX"}, "ABCDEFGH", "stop"},
      {{"H"}, "ABCDEFG", "stop"},
      {json::array(), "ABCDEFGH", "stop"},
      {nullptr, "ABCDEFGH", "stop"},
      {"AB", "", "stop"},
      {{"1", "2", "3", "4", "GH"}, "ABCDEF", "stop"},
      {{std::string(10000, 'x')}, "ABCDEFGH", "stop"},
  };
  for (const StopCase& c : cases) {
    const json body = completion({{"stop", c.stop}});
    const json whole = server.post("/v1/completions", body).json();
    EXPECT_EQ(whole["choices"][0]["text"], c.text) << c.stop;
    EXPECT_EQ(whole["choices"][0]["finish_reason"], c.finish) << c.stop;
    json stream = body;
    stream["stream"] = true;
    std::string finish;
    EXPECT_EQ(streamed_text(server.post("/v1/completions", stream), &finish), c.text) << c.stop;
    EXPECT_EQ(finish, c.finish);
  }
  const json cut = server.post("/v1/completions", completion({{"stop", {"CDEFGH"}}, {"max_tokens", 2}})).json();
  EXPECT_EQ(cut["choices"][0]["text"], "ABCDE");
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  const json kept =
      server.post("/v1/completions", completion({{"stop", {"DEF"}}, {"include_stop_str_in_output", true}})).json();
  EXPECT_EQ(kept["choices"][0]["text"], "ABCDEF");
  EXPECT_EQ(kept["choices"][0]["stop_reason"], "DEF");
  expect_rejected(server.post("/v1/completions", completion({{"stop", {""}}})), "stop");
  expect_rejected(server.post("/v1/completions", completion({{"stop", std::vector<std::string>(17, "x")}})), "stop");
  EXPECT_TRUE(server.quiet());
}

TEST(Completions, AStopStringOverTwoTokensOfACharacterAndTheEchoedPrompt) {
  TestServer server;
  server.script.say("caf\xC3\xA9 noir");
  const json reply = server.post("/v1/completions", completion({{"stop", {"\xC3\xA9"}}})).json();
  EXPECT_EQ(reply["choices"][0]["text"], "caf");
  EXPECT_EQ(reply["choices"][0]["stop_reason"], "\xC3\xA9");
  const json echoed =
      server.post("/v1/completions", completion({{"prompt", "STOP "}, {"stop", {"STOP"}}, {"echo", true}})).json();
  EXPECT_EQ(echoed["choices"][0]["text"], "STOP caf\xC3\xA9 noir");
}

TEST(Completions, CountsOnlyWhatWasDeliveredUpToAStopString) {
  TestServer server;
  server.script.say("one two three four five six");
  const json reply = server.post("/v1/completions", completion({{"stop", {"two"}}})).json();
  EXPECT_EQ(reply["choices"][0]["text"], "one ");
  EXPECT_EQ(reply["usage"]["completion_tokens"], 7);  // up to the "o" that completes it
  EXPECT_TRUE(server.quiet());
  EXPECT_THAT(server.get("/metrics").body, ::testing::ContainsRegex("generation_tokens_total[{][^}]*[}] 7\n"));
}

TEST(Completions, CharactersAreNeverCut) {
  TestServer server;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80z", "a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80z"},
      {"\xFF", "\xEF\xBF\xBD"},
      {"\x80", "\xEF\xBF\xBD"},
      {"\xC3\x28", "\xEF\xBF\xBD("},
      {"\xF0\x9Fx", "\xEF\xBF\xBDx"},
  };
  for (const auto& [bytes, text] : cases) {
    server.script.say(bytes);
    for (const bool logprobs : {false, true}) {
      json body = completion();
      if (logprobs) body["logprobs"] = 2;
      const json whole = server.post("/v1/completions", body).json();
      EXPECT_EQ(whole["choices"][0]["text"], text);
      body["stream"] = true;
      const Reply reply = server.post("/v1/completions", body);
      EXPECT_EQ(streamed_text(reply), text);
      EXPECT_EQ(whole["usage"]["completion_tokens"], bytes.size() + 1);
    }
  }
  // The limit falls inside a character: one U+FFFD, streamed or not.
  server.script.say("\xF0\x9F\x98\x80");
  json body = completion({{"max_tokens", 2}});
  const json whole = server.post("/v1/completions", body).json();
  EXPECT_EQ(whole["choices"][0]["text"], "\xEF\xBF\xBD");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  body["stream"] = true;
  EXPECT_EQ(streamed_text(server.post("/v1/completions", body)), "\xEF\xBF\xBD");
  EXPECT_TRUE(server.alive());
}

TEST(Completions, MaxTokensAtItsLimits) {
  TestServer server;
  server.script.say(std::string(3000, 'x'));
  const json nothing = server.post("/v1/completions", completion({{"max_tokens", 0}})).json();
  EXPECT_EQ(nothing["choices"][0]["text"], "");
  EXPECT_EQ(nothing["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(nothing["usage"]["completion_tokens"], 0);
  const json echoed =
      server.post("/v1/completions", completion({{"max_tokens", 0}, {"echo", true}, {"logprobs", 1}})).json();
  EXPECT_EQ(echoed["choices"][0]["text"], "hi");
  EXPECT_EQ(echoed["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(echoed["choices"][0]["logprobs"]["token_logprobs"][0], nullptr);
  for (const json& bad : {json(-1), json(-2147483649LL), json(1.5), json("16"), json(true)}) {
    expect_rejected(server.post("/v1/completions", completion({{"max_tokens", bad}})), "max_tokens");
    expect_rejected(server.post("/v1/chat/completions", chat({{"max_completion_tokens", bad}})),
                    "max_completion_tokens");
  }
  for (const json& huge : {json(2147483647), json(std::numeric_limits<int64_t>::max()), json(1e18)})
    EXPECT_EQ(server.post("/v1/completions", completion({{"max_tokens", huge}})).json()["usage"]["total_tokens"], 1024)
        << huge;
  EXPECT_EQ(server.post("/v1/completions", completion({{"max_tokens", 16.0}})).json()["usage"]["completion_tokens"],
            16);
  EXPECT_EQ(server.post("/v1/completions", completion({{"max_tokens", nullptr}})).json()["usage"]["completion_tokens"],
            16);
  expect_rejected(server.post("/v1/chat/completions", chat({{"max_tokens", 3}, {"max_completion_tokens", 4}})),
                  "max_tokens");
  EXPECT_TRUE(server.quiet());
}

TEST(Completions, PromptsAsTokenIds) {
  TestServer server;
  server.script.say("ok");
  const auto post = [&](const json& prompt) {
    return server.post("/v1/completions", completion({{"prompt", prompt}}));
  };
  EXPECT_EQ(post("").status, 200);
  EXPECT_EQ(post(json::array({""})).status, 200);
  EXPECT_EQ(post(json::array({0})).status, 200);
  EXPECT_EQ(post(json::array({vocab_size - 1})).status, 200);
  const json two = post({"a", ""}).json();
  ASSERT_EQ(two["choices"].size(), 2u);
  EXPECT_EQ(two["choices"][1]["index"], 1);
  EXPECT_EQ(post({{1, 2}, {3}}).json()["choices"].size(), 2u);
  for (const json& bad :
       {json::array(), json::array({json::array()}), json::array({-1}), json::array({vocab_size}),
        json::array({2147483648LL}), json::array({9223372036854775808ULL}), json::array({1.5}), json::array({true}),
        json::array({1, "a", 2}), json(), json::object(), json(7), json::array({"a", json::array({-1})})})
    expect_rejected(post(bad), "prompt");
  expect_rejected(post(std::vector<std::string>(10001, "a")), "prompt");
  EXPECT_THAT(post(json::array({1, 2, -1})).json()["error"]["message"].get<std::string>(), ::testing::HasSubstr("[2]"));
  EXPECT_TRUE(server.quiet());
}

TEST(Completions, AnEmptyPromptNeedsABeginning) {
  TestOptions options;
  options.with_bos = false;
  TestServer server(options);
  expect_rejected(server.post("/v1/completions", completion({{"prompt", ""}})), "prompt");
}

TEST(Completions, APromptThatFillsTheContextIsRefusedWithBothNumbers) {
  TestOptions options;
  options.engine.max_model_len_tokens = 64;
  TestServer server(options);
  server.script.say(std::string(100, 'x'));
  const auto post = [&](size_t num_tokens, int max_tokens, bool stream) {
    return server.post(
        "/v1/completions",
        completion({{"prompt", std::vector<int>(num_tokens, 'a')}, {"max_tokens", max_tokens}, {"stream", stream}}));
  };
  for (const bool stream : {false, true}) {
    EXPECT_EQ(post(63, 1, stream).status, 200);
    for (const size_t size : {size_t{64}, size_t{65}, size_t{10000}}) {
      const Reply reply = post(size, 1, stream);
      expect_rejected(reply, "prompt");
      EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
      EXPECT_THAT(reply.json()["error"]["message"].get<std::string>(),
                  ::testing::AllOf(::testing::HasSubstr(std::to_string(size)), ::testing::HasSubstr("64")));
    }
  }
  // Nothing to draw: the prompt may have it all.
  EXPECT_EQ(post(64, 0, false).json()["usage"]["prompt_tokens"], 64);
  EXPECT_EQ(post(65, 0, false).json()["error"]["code"], "context_length_exceeded");
  const json cut = post(62, 10, false).json();
  EXPECT_EQ(cut["usage"]["completion_tokens"], 2);
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  const json kept =
      server.post("/v1/completions", completion({{"prompt", std::string(100, 'a')}, {"truncate_prompt_tokens", 10}}))
          .json();
  EXPECT_EQ(kept["usage"]["prompt_tokens"], 10);
}

TEST(Completions, SeveralChoicesKeepTheirIndicesAndEnds) {
  TestServer server;
  server.script.set({{'a', eos_id}, {'b', 'b', 'b', 'b', eos_id}, {'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', eos_id}});
  const json body = completion({{"n", 3}, {"seed", 6}, {"temperature", 1}});
  const json whole = server.post("/v1/completions", body).json();
  ASSERT_EQ(whole["choices"].size(), 3u);
  EXPECT_EQ(whole["choices"][0]["text"], "a");
  EXPECT_EQ(whole["choices"][1]["text"], "bbbb");
  EXPECT_EQ(whole["choices"][2]["text"], "cccccccc");
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 16);
  json stream = body;
  stream["stream"] = true;
  std::vector<std::string> texts(3);
  std::vector<int> ends(3);
  const Reply reply = server.post("/v1/completions", stream);
  int done = 0;
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]") {
      ++done;
      continue;
    }
    const json chunk = json::parse(event);
    for (const json& choice : chunk["choices"]) {
      const size_t index = choice["index"];
      texts.at(index) += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) ++ends.at(index);
    }
  }
  EXPECT_EQ(done, 1);
  EXPECT_THAT(texts, ::testing::ElementsAre("a", "bbbb", "cccccccc"));
  EXPECT_THAT(ends, ::testing::Each(1));
  for (const json& bad : {json(0), json(-1), json(2147483647), json(1.5), json(129)})
    expect_rejected(server.post("/v1/completions", completion({{"n", bad}})), "n");
  EXPECT_TRUE(server.quiet());
}

TEST(Completions, SeedsInTheirRange) {
  TestServer server;
  for (const json& good : {json(0), json(-1), json(9223372036854775807LL), json()})
    EXPECT_EQ(server.post("/v1/completions", completion({{"seed", good}})).status, 200) << good;
  for (const json& bad : {json(-2), json(18446744073709551615ULL), json(1.5), json("42")})
    expect_rejected(server.post("/v1/completions", completion({{"seed", bad}})), "seed");
}

TEST(Completions, LogprobsOfBothApis) {
  TestServer server;
  server.script.say("ab\xC3\xA9");
  const json old = server.post("/v1/completions", completion({{"logprobs", 2}})).json()["choices"][0]["logprobs"];
  EXPECT_EQ(old["tokens"][0], "a");
  EXPECT_EQ(old["tokens"][2], "bytes:\\xc3");
  EXPECT_EQ(old["token_logprobs"][0], -0.5);
  EXPECT_EQ(old["top_logprobs"][0]["b"], -1.5);
  EXPECT_EQ(old["text_offset"], json({0, 1, 2, 3, 3}));
  const json content = server.post("/v1/chat/completions", chat({{"logprobs", true}, {"top_logprobs", 2}}))
                           .json()["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[2]["bytes"], json({0xC3}));
  expect_rejected(server.post("/v1/chat/completions", chat({{"top_logprobs", 2}})), "top_logprobs");
  expect_rejected(server.post("/v1/completions", completion({{"logprobs", 21}})), "logprobs");
  const json prompt =
      server.post("/v1/completions", completion({{"prompt_logprobs", 1}})).json()["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(prompt.size(), 3u);
  EXPECT_EQ(prompt[0], nullptr);
  EXPECT_EQ(prompt[1][std::to_string('h')]["decoded_token"], "h");
  EXPECT_EQ(prompt[1][std::to_string('h')]["rank"], 1);
  const json ids =
      server
          .post("/v1/completions",
                completion({{"return_token_ids", true}, {"logprobs", 0}, {"return_tokens_as_token_ids", true}}))
          .json()["choices"][0];
  EXPECT_EQ(ids["token_ids"], json({'a', 'b', 0xC3, 0xA9, eos_id}));
  EXPECT_EQ(ids["prompt_token_ids"], json({bos, 'h', 'i'}));
  EXPECT_EQ(ids["logprobs"]["tokens"][0], "token_id:97");
}

TEST(Completions, FieldsThatMeanMoreThanWeDoAreRefusedByName) {
  TestServer server;
  server.script.say("ok");
  for (const auto& [name, value] :
       std::initializer_list<std::pair<std::string, json>>{{"best_of", 2},
                                                           {"suffix", "x"},
                                                           {"grammar", "root ::= x"},
                                                           {"mirostat", 2},
                                                           {"use_beam_search", true},
                                                           {"structured_outputs", {{"regex", "a"}}},
                                                           {"response_format", {{"type", "json_object"}}},
                                                           {"logprob_token_ids", {1}}}) {
    const Reply reply = server.post("/v1/completions", completion({{name, value}}));
    expect_rejected(reply, name);
    EXPECT_EQ(reply.json()["error"]["code"], "unsupported_parameter");
  }
  expect_rejected(server.post("/v1/chat/completions", chat({{"tool_choice", "required"}})), "tool_choice");
  EXPECT_EQ(server
                .post("/v1/completions", completion({{"best_of", 1},
                                                     {"mirostat", 0},
                                                     {"never_heard_of", {1, 2}},
                                                     {"response_format", {{"type", "text"}}}}))
                .status,
            200);
}

TEST(Completions, TimingsAndTokenIdsInChunks) {
  TestServer server;
  server.script.say("abc");
  const json timed = server.post("/v1/completions", completion({{"return_timings", true}})).json();
  for (const char* name :
       {"queue_ms", "cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "preemptions", "itl_jitter"})
    EXPECT_TRUE(timed["timings"][name].is_number()) << name;
  EXPECT_FALSE(server.post("/v1/completions", completion()).json().contains("timings"));
  std::vector<int> ids;
  const Reply stream = server.post("/v1/completions", completion({{"return_token_ids", true}, {"stream", true}}));
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    for (const json& id : json::parse(event)["choices"][0].value("token_ids", json::array())) ids.push_back(id);
  }
  EXPECT_THAT(ids, ::testing::ElementsAre('a', 'b', 'c', eos_id));
}

TEST(Completions, ProgressOfALongPrompt) {
  TestServer server;
  server.script.say("x");
  const Reply reply = server.post(
      "/v1/completions", completion({{"prompt", std::string(600, 'a')}, {"stream", true}, {"return_progress", true}}));
  int64_t processed = 0;
  int num_events = 0;
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]" || !json::parse(event).contains("prompt_progress")) continue;
    const json progress = json::parse(event)["prompt_progress"];
    EXPECT_EQ(progress["total"], 601);
    EXPECT_GE(progress["processed"].get<int64_t>(), processed);
    processed = progress["processed"];
    ++num_events;
  }
  EXPECT_GE(num_events, 2);
}

TEST(Completions, StopTokenIdsAndEos) {
  TestServer server;
  server.script.say("abcdef");
  const json stopped = server.post("/v1/completions", completion({{"stop_token_ids", {'d'}}})).json();
  EXPECT_EQ(stopped["choices"][0]["text"], "abc");
  EXPECT_EQ(stopped["choices"][0]["stop_reason"], 'd');
  EXPECT_EQ(stopped["usage"]["completion_tokens"], 4);
  EXPECT_EQ(
      server.post("/v1/completions", completion({{"stop_token_ids", {'d'}}, {"include_stop_str_in_output", true}}))
          .json()["choices"][0]["text"],
      "abcd");
  const json ignored = server.post("/v1/completions", completion({{"ignore_eos", true}, {"max_tokens", 9}})).json();
  EXPECT_EQ(ignored["choices"][0]["finish_reason"], "length");
  const json shown = server
                         .post("/v1/completions",
                               completion({{"ignore_eos", true}, {"max_tokens", 7}, {"skip_special_tokens", false}}))
                         .json();
  EXPECT_EQ(shown["choices"][0]["text"], "abcdef</s>");
}

TEST(Completions, UnknownModelIs404) {
  TestServer server;
  for (const char* name : {"no-such-model", "../x", "..\\x", "%2e%2e%2fx", "/etc/passwd", "", ".", "CON"}) {
    const Reply reply = server.post("/v1/completions", completion({{"model", name}}));
    expect_rejected(reply, "model", 404);
    EXPECT_EQ(reply.json()["error"]["code"], "model_not_found");
  }
  EXPECT_EQ(server.get("/v1/models/tiny").json()["id"], "tiny");
  for (const char* path : {"/v1/models/../x", "/v1/models/%2e%2e%2fx", "/v1/models/nope", "/v1/models//etc/passwd"})
    EXPECT_EQ(server.get(path).status, 404) << path;
}

}  // namespace
}  // namespace tidemill::testing
