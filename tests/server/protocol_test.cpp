// What may go wrong on the wire: bodies that are not JSON, routes, keys, origins, limits, timeouts, half requests.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <mutex>
#include <random>
#include <thread>

#include "base/printable.h"
#include "base/utf8.h"
#include "server/router.h"
#include "server/test_server.h"
#include "test_data.h"

namespace tidemill::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string valid = R"({"model":"tiny","prompt":"hi","max_tokens":3})";

void expect_json_error(const Reply& reply, int status) {
  ASSERT_EQ(reply.status, status) << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  EXPECT_TRUE(is_valid_utf8(reply.body));
  EXPECT_TRUE(reply.json()["error"]["message"].is_string());
}

TEST(Protocol, BodiesThatAreNoJson) {
  TestServer server;
  server.script.say("ok");
  using namespace std::string_literals;
  for (const std::string& body :
       {"{\"prompt\":\"a\xC3\"}"s, "{\"prompt\":\"\xC4\xE3\xBA\xC3\"}"s, "{\"prompt\":\"\xED\xA0\x80\"}"s,
        "\xFF\xFE{\0\"\0"s, ""s, "{:"s, "{\"prompt\":\"a\""s, valid + valid, valid + "\0"s, "{\"temperature\":NaN}"s,
        "[1]"s, "null"s, "7"s, "{\"temperature\":1e999}"s, std::string(100000, '['), std::string(100000, '{')}) {
    expect_json_error(server.post("/v1/completions", body), 400);
    expect_json_error(server.post("/v1/chat/completions", body), 400);
    expect_json_error(server.post("/tokenize", body), 400);
  }
  EXPECT_EQ(server.post("/v1/completions", "\xEF\xBB\xBF" + valid).status, 200);
  // Of two equal keys the last one counts.
  EXPECT_EQ(
      server.post("/v1/completions", std::string(R"({"prompt":"abcd","prompt":"a"})")).json()["usage"]["prompt_tokens"],
      2);
  EXPECT_TRUE(server.alive());
  EXPECT_TRUE(server.quiet());
}

TEST(Protocol, ContentTypes) {
  TestServer server;
  server.script.say("ok");
  const auto post = [&](const std::string& type) {
    Socket socket = server.connect();
    socket.send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}", type,
                            valid.size(), valid));
    return socket.read_reply();
  };
  for (const char* type : {"", "Content-Type: text/plain\r\n", "Content-Type: application/json; charset=utf-8\r\n",
                           "Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: APPLICATION/JSON\r\n"})
    EXPECT_EQ(post(type).status, 200) << type;
  for (const char* type : {"Content-Type: multipart/form-data; boundary=x\r\n", "Content-Type: image/png\r\n"})
    expect_json_error(post(type), 415);
  expect_json_error(post("Content-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(post("Content-Encoding: identity\r\n").status, 200);
}

TEST(Protocol, OneHostAndNoTransferCodingButChunked) {
  TestServer server;
  server.script.say("ok");
  const auto status = [&](const std::string& text) {
    Socket socket = server.connect();
    socket.send(text);
    const Reply reply = socket.read_reply();
    if (reply.status != 200) expect_json_error(reply, reply.status);
    // What follows a refused request is never taken for the next one.
    EXPECT_TRUE(reply.status == 200 || socket.closed_within(std::chrono::seconds(3))) << text;
    return reply.status;
  };
  EXPECT_EQ(status("GET /health HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status("GET http://x/health HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost:\r\n\r\n"), 200);
  EXPECT_EQ(status("GET /health HTTP/1.0\r\n\r\n"), 200);
  const std::string body = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", valid.size(), valid);
  const auto post = [&](const std::string& headers, const char* version = "1.1") {
    return status(fmt::format("POST /v1/completions HTTP/{}\r\nHost: x\r\n{}\r\n{}", version, headers, body));
  };
  EXPECT_EQ(post("Transfer-Encoding: Chunked\r\n"), 200);
  for (const char* coding : {"gzip, chunked", "gzip", "identity", "chunked, identity", ""})
    EXPECT_EQ(post(fmt::format("Transfer-Encoding: {}\r\n", coding)), 501) << coding;
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\n", "1.0"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"), 400);
}

TEST(Protocol, TargetThatNamesTheHost) {
  TestServer server;
  const auto get = [&](const std::string& target) {
    Socket socket = server.connect();
    socket.send("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return socket.read_reply();
  };
  EXPECT_EQ(get("http://x:8000/health?deep=1").status, 200);
  EXPECT_EQ(get("HTTPS://x/v1/models").status, 200);
  for (const char* target : {"http://x", "http://", "http:///", "ftp://x/health", "http://x/nope"})
    expect_json_error(get(target), 404);
}

TEST(Protocol, RoutesAndMethods) {
  TestServer server;
  expect_json_error(server.get("/nope"), 404);
  expect_json_error(server.get("/v1/completions"), 405);
  EXPECT_EQ(server.get("/v1/completions").headers.at("allow"), "POST");
  expect_json_error(server.post("/health", std::string("{}")), 405);
  expect_json_error(server.get("/\xFF\xFE?q=\xC3"), 404);
  EXPECT_EQ(server.get("/health?x=\xFF", "X-Odd: \xC3\x28\r\n").status, 200);
  EXPECT_EQ(server.get("/version").json()["version"], "test");
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["id"], "tiny");
  EXPECT_EQ(server.get("/ping").status, 200);
}

TEST(Protocol, TheRequestIdComesBack) {
  TestServer server;
  server.script.say("ok");
  const Reply named = server.post("/v1/completions", valid, "X-Request-Id: abc-1\r\n");
  EXPECT_EQ(named.headers.at("x-request-id"), "abc-1");
  EXPECT_EQ(named.json()["id"], "cmpl-abc-1");
  EXPECT_EQ(server.post("/v1/completions", valid).headers.at("x-request-id").size(), 32u);
  EXPECT_NE(server.get("/health", "X-Request-Id: " + std::string(200, 'x') + "\r\n").headers.at("x-request-id").size(),
            200u);
}

TEST(Protocol, RandomMutationsOfAValidBodyNeverBreakIt) {
  TestServer server;
  server.script.say("ok");
  std::mt19937 random(7);
  const std::string base =
      R"({"model":"tiny","prompt":["hi","b"],"max_tokens":3,"stop":["x","yz"],"n":2,"logprobs":1,"stream":false,)"
      R"("logit_bias":{"5":1.5},"temperature":0.7,"seed":3,"bad_words":["q"],"stream_options":null})";
  Socket socket = server.connect();
  for (int i = 0; i < 10000; ++i) {
    std::string body = base;
    const int num_changes = 1 + static_cast<int>(random() % 4);
    for (int change = 0; change < num_changes; ++change) {
      const size_t at = random() % body.size();
      switch (random() % 4) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.erase(at, 1 + random() % 6);
          break;
        case 2:
          body.insert(at, 1, "{}[]\",:0-e\\"[random() % 12]);
          break;
        default:
          body.insert(at, body.substr(random() % body.size(), random() % 12));
          break;
      }
      if (body.empty()) body = "{";
    }
    if (!socket.connected()) socket = Socket(server.port());
    ASSERT_TRUE(socket.send(post_text("/v1/completions", body)));
    const Reply reply = socket.read_reply();
    ASSERT_TRUE(reply.complete) << printable(body, 500);
    ASSERT_TRUE(reply.status == 200 || reply.status == 400 || reply.status == 404)
        << reply.status << printable(body, 500);
    ASSERT_TRUE(is_valid_utf8(reply.body));
  }
  EXPECT_TRUE(server.alive());
  EXPECT_TRUE(server.quiet());
}

TEST(Protocol, HostileJson) {
  TM_NEEDS_DATA("hostile-json");
  TestServer server;
  server.script.say("ok");
  int num_files = 0;
  for (const char* folder : {"hostile-json/test_parsing", "hostile-json/test_transform"}) {
    for (const auto& entry : std::filesystem::directory_iterator(data_path(folder))) {
      const std::string body = read_file(entry.path());
      const std::string name = entry.path().filename();
      const Reply reply = server.post("/tokenize", body);
      expect_json_error(reply, 400);  // none of them is a request
      const std::string message = reply.json()["error"]["message"];
      // Accepted as JSON or not: a document that parses is refused for its content.
      const bool parsed =
          message.find("JSON object") != std::string::npos || message.find("is needed") != std::string::npos;
      EXPECT_FALSE(name.starts_with("n_") && parsed && message.find("empty") == std::string::npos)
          << name << ": " << message;
      EXPECT_TRUE(!name.starts_with("y_") || parsed) << name << ": " << message;
      ++num_files;
    }
  }
  EXPECT_GT(num_files, 200);
  EXPECT_TRUE(server.alive());
}

TEST(Protocol, KeysAreNeededEverywhereButForHealth) {
  TestOptions options;
  options.server.keys.keys = {"first-key", "second-key"};
  TestServer server(options);
  server.script.say("ok");
  for (const Route& route : route_table()) {
    for (const std::string& header :
         {std::string(), std::string("Authorization: Bearer wrong\r\n"),
          std::string("Authorization: Bearer first-kez\r\n"), std::string("Authorization: Bearer first-keyx\r\n"),
          std::string("Authorization: Bearer first\r\n"), std::string("Authorization: Bearer \r\n"),
          std::string("Authorization: first-key\r\n"), std::string("X-Key: first-key\r\n")}) {
      const std::string path = std::string(route.path).ends_with("/") ? std::string(route.path) + "tiny" : route.path;
      const Reply reply =
          std::string(route.method) == "GET" ? server.get(path, header) : server.post(path, valid, header);
      if (route.is_public) {
        EXPECT_EQ(reply.status, 200) << path;
      } else {
        expect_json_error(reply, 401);
        EXPECT_EQ(reply.json()["error"]["type"], "authentication_error");
      }
    }
  }
  for (const char* header : {"Authorization: Bearer first-key\r\n", "Authorization: Bearer second-key\r\n",
                             "Authorization: bearer first-key\r\n", "x-api-key: second-key\r\n"})
    EXPECT_EQ(server.post("/v1/completions", valid, header).status, 200) << header;
  expect_json_error(
      server.post("/v1/completions", valid, "Authorization: Bearer " + std::string(1 << 20, 'x') + "\r\n"), 431);
  const Reply metrics = server.get("/metrics", "Authorization: Bearer first-key\r\n");
  EXPECT_EQ(metrics.body.find("first-key"), std::string::npos);
  EXPECT_EQ(server.engine().stats().num_requests_waiting, 0);
}

TEST(Protocol, OriginsByExactName) {
  TestOptions options;
  options.server.cors = {
      .origins = {"https://app.example"}, .methods = "GET, POST", .headers = "*", .credentials = true};
  options.server.keys.keys = {"k"};
  TestServer server(options);
  server.script.say("ok");
  const auto preflight = [&](const std::string& origins) {
    Socket socket = server.connect();
    socket.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + origins +
                "Access-Control-Request-Method: POST\r\n\r\n");
    return socket.read_reply();
  };
  const Reply allowed = preflight("Origin: https://app.example\r\n");
  EXPECT_EQ(allowed.status, 204);
  EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(allowed.headers.at("access-control-allow-credentials"), "true");
  EXPECT_EQ(allowed.headers.at("vary"), "Origin");
  EXPECT_TRUE(allowed.headers.contains("x-request-id"));
  for (const char* origins : {"Origin: https://evil.example\r\n", "Origin: https://app.example.evil.example\r\n",
                              "Origin: null\r\n", "Origin: https://app.example\r\nOrigin: https://evil.example\r\n"})
    EXPECT_FALSE(preflight(origins).headers.contains("access-control-allow-origin")) << origins;
  // Also on errors and on streams.
  EXPECT_TRUE(server.get("/nope", "Origin: https://app.example\r\n").headers.contains("access-control-allow-origin"));
  const Reply stream = server.post("/v1/completions", std::string(R"({"prompt":"a","stream":true})"),
                                   "Origin: https://app.example\r\nAuthorization: Bearer k\r\n");
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.headers.contains("access-control-allow-origin"));
  EXPECT_THAT(server.get("/metrics", "Authorization: Bearer k\r\n").body,
              ::testing::ContainsRegex("http_requests_total[{][^}]*status=\"204\"[}] 5\n"));
  EXPECT_FALSE(Cors::make({.origins = {"*"}, .methods = "", .headers = "", .credentials = true}).ok());
}

TEST(Protocol, LimitsOfBodyAndHeaders) {
  TestOptions options;
  options.server.http.max_body_bytes = 1000;
  options.server.http.max_header_bytes = 2000;
  TestServer server(options);
  server.script.say("ok");
  expect_json_error(server.post("/v1/completions", std::string(1001, ' ')), 413);
  Socket socket = server.connect();
  socket.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
              std::string(2000, ' ') + "\r\n0\r\n\r\n");
  expect_json_error(socket.read_reply(), 413);
  expect_json_error(server.get("/health", "X: " + std::string(3000, 'x') + "\r\n"), 431);
  Socket garbage = server.connect();
  garbage.send("\x16\x03\x01 what\r\n\r\n");
  expect_json_error(garbage.read_reply(), 400);
  EXPECT_TRUE(server.alive());
}

TEST(Protocol, TheBodiesOfAllRequestsTogetherAreBounded) {
  TestOptions options;
  options.server.http.max_held_bytes = 10000;
  TestServer server(options);
  server.script.say("ok");
  Socket holder = server.connect();
  holder.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n" + std::string(9900, ' '));
  Reply refused;
  ASSERT_TRUE(eventually([&] {
    refused = server.post("/v1/completions", valid + std::string(150, ' '));
    return refused.status != 200;
  }));
  expect_json_error(refused, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(server.get("/health").status, 200);
  holder.close();
  // Room again, and an answered request keeps none of it.
  ASSERT_TRUE(eventually([&] { return server.post("/v1/completions", valid + std::string(9000, ' ')).status == 200; }));
  Socket socket = server.connect();
  for (int i = 0; i < 5; ++i) {
    socket.send(post_text("/v1/completions", valid + std::string(5000, ' ')));
    EXPECT_EQ(socket.read_reply().status, 200);
  }
}

TEST(Protocol, ChunkedBodiesPipelinesAndKeepAlive) {
  TestServer server;
  server.script.say("ok");
  Socket socket = server.connect();
  socket.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char c : valid) socket.send(fmt::format("1\r\n{}\r\n", c));
  socket.send("0\r\n\r\n");
  EXPECT_EQ(socket.read_reply().status, 200);
  const std::string two = post_text("/v1/completions", valid) + post_text("/tokenize", R"({"content":"a"})");
  socket.send(two);
  EXPECT_EQ(socket.read_reply().json()["choices"][0]["text"], "ok");
  EXPECT_EQ(socket.read_reply().json()["tokens"], json({'a'}));
  socket.send(post_text("/v1/completions", valid, "Expect: 100-continue\r\n"));
  EXPECT_EQ(socket.read_reply().status, 200);
  socket.send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(socket.read_reply().status, 200);
  EXPECT_TRUE(socket.closed_within(std::chrono::seconds(2)));
}

TEST(Protocol, HalfRequestsAndIdleConnectionsAreClosed) {
  TestOptions options;
  options.server.http.header_timeout = std::chrono::milliseconds(300);
  options.server.http.body_timeout = std::chrono::milliseconds(300);
  options.server.http.idle_timeout = std::chrono::milliseconds(300);
  TestServer server(options);
  Socket half_line = server.connect(), half_body = server.connect(), silent = server.connect(), idle = server.connect();
  half_line.send("POST /v1/comp");
  half_body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  idle.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(idle.read_reply().status, 200);
  expect_json_error(half_line.read_reply(), 408);
  expect_json_error(half_body.read_reply(), 408);
  EXPECT_TRUE(silent.closed_within(std::chrono::seconds(2)));
  EXPECT_TRUE(idle.closed_within(std::chrono::seconds(2)));
}

TEST(Protocol, UnixSocket) {
  TestOptions options;
  options.server.listen.unix_socket = fmt::format("{}/tidemill-{}.sock", ::testing::TempDir(), getpid());
  TestServer server(options);
  Socket socket(options.server.listen.unix_socket);
  ASSERT_TRUE(socket.connected());
  socket.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(socket.read_reply().status, 200);
}

TEST(Protocol, OneLineForEachRequest) {
  std::mutex mutex;
  std::vector<std::string> lines;
  TestOptions options;
  options.server.keys.keys = {"very-secret"};
  options.server.request_log = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  };
  TestServer server(options);
  server.script.say("ok");
  EXPECT_EQ(server.post("/v1/completions", valid, "Authorization: Bearer very-secret\r\nX-Request-Id: r1\r\n").status,
            200);
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return lines.size() == 1;
  }));
  EXPECT_THAT(lines[0], HasSubstr("request=r1"));
  EXPECT_THAT(lines[0], HasSubstr("POST /v1/completions status=200"));
  EXPECT_THAT(lines[0], HasSubstr("prompt_tokens=3 completion_tokens=3 finish=stop"));
  EXPECT_EQ(lines[0].find("very-secret"), std::string::npos);
}

}  // namespace
}  // namespace tidemill::testing
