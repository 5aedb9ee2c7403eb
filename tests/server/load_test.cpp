// Many clients, clients that leave, clients that do not read, and the end of the server.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "server/test_server.h"

namespace tidemill::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

std::string request(int max_tokens, bool stream, int n = 1, size_t prompt_bytes = 2) {
  return json{{"prompt", std::string(prompt_bytes, 'a')}, {"max_tokens", max_tokens}, {"stream", stream}, {"n", n}}
      .dump();
}

TEST(Load, BeyondTheQueueComes429WithRetryAfter) {
  TestOptions options;
  options.engine.max_num_seqs = 2;
  options.engine.max_num_queued_requests = 4;
  TestServer server(options);
  server.script.say(std::string(200, 'x'));
  server.script.step_delay_us = 5000;
  std::vector<Socket> sockets;
  for (int i = 0; i < 2; ++i) {
    sockets.push_back(server.connect());
    sockets.back().send(post_text("/v1/completions", request(100, false)));
  }
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_requests_running == 2; }));
  for (int i = 0; i < 18; ++i) {
    sockets.push_back(server.connect());
    sockets.back().send(post_text("/v1/completions", request(100, false)));
  }
  int accepted = 0, refused = 0;
  for (Socket& socket : sockets) {
    const Reply reply = socket.read_reply();
    accepted += reply.status == 200;
    if (reply.status != 429) continue;
    ++refused;
    EXPECT_GE(std::stoi(reply.headers.at("retry-after")), 1);
    EXPECT_EQ(reply.json()["error"]["code"], "rate_limit_exceeded");
  }
  EXPECT_EQ(accepted, 6);
  EXPECT_EQ(refused, 14);
  EXPECT_TRUE(server.quiet());
  server.script.step_delay_us = 0;
  EXPECT_EQ(server.post("/v1/completions", request(3, false)).status, 200);
}

TEST(Load, HealthAnswersBesideStreamsAndHalfRequests) {
  TestServer server;
  server.script.say(std::string(5000, 'x'));
  server.script.step_delay_us = 2000;
  std::vector<Socket> sockets;
  for (int i = 0; i < 64; ++i) {
    sockets.push_back(server.connect());
    sockets.back().send(post_text("/v1/completions", request(500, true)));
  }
  for (int i = 0; i < 200; ++i) {
    sockets.push_back(server.connect());
    sockets.back().send("GET /hea");
  }
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(server.get("/health").status, 200);
    EXPECT_EQ(server.get("/metrics").status, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
  sockets.clear();
  EXPECT_TRUE(server.quiet());
}

TEST(Load, TimeInTheQueueAndInAllIsLimited) {
  TestOptions options;
  options.engine.max_num_seqs = 1;
  options.engine.queue_timeout = milliseconds(200);
  options.engine.request_timeout = milliseconds(1500);
  TestServer server(options);
  server.script.say(std::string(900, 'x'));
  server.script.step_delay_us = 5000;
  Socket running = server.connect(), waiting = server.connect();
  running.send(post_text("/v1/completions", request(900, true)));
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_requests_running == 1; }));
  waiting.send(post_text("/v1/completions", request(900, true)));
  const Reply refused = waiting.read_reply();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "timeout");
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  const std::vector<std::string> events = running.read_reply().events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(json::parse(events[events.size() - 2])["error"]["code"], "timeout");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_TRUE(server.quiet());
}

TEST(Load, LoadingAnswers503UntilReady) {
  TestOptions options;
  options.ready = false;
  TestServer server(options);
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.get("/health").json()["status"], "loading");
  EXPECT_EQ(server.post("/v1/completions", request(1, false)).status, 503);
  EXPECT_EQ(server.get("/metrics").status, 503);
  EXPECT_EQ(server.get("/v1/models").status, 503);
  EXPECT_EQ(server.get("/version").status, 200);
  server.make_ready();
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(Load, ToldToShutDownWhileLoadingItNeverBecomesReady) {
  TestOptions options;
  options.ready = false;
  TestServer server(options);
  server.server().begin_shutdown(milliseconds(60000));
  server.make_ready();
  EXPECT_TRUE(eventually([&] { return server.server().finished(); }));
}

TEST(Load, ClientsThatLeaveFreeEverything) {
  TestOptions options;
  options.engine.kv_budget_bytes = 1024 * 64;
  TestServer server(options);
  server.script.say(std::string(2000, 'x'));
  server.script.step_delay_us = 300;
  std::mt19937 random(3);
  // One that stays: its answer must not change.
  Socket steady = server.connect();
  steady.send(post_text("/v1/completions", request(400, false)));
  for (int round = 0; round < 25; ++round) {
    std::vector<Socket> sockets;
    for (int i = 0; i < 8; ++i) {
      sockets.push_back(server.connect());
      const std::string whole =
          post_text("/v1/completions", request(200, random() % 2 == 0, random() % 4 == 0 ? 3 : 1, 1 + random() % 300));
      sockets.back().send(random() % 8 == 0 ? whole.substr(0, random() % whole.size()) : whole);
    }
    std::this_thread::sleep_for(milliseconds(random() % 20));
    for (Socket& socket : sockets) {
      switch (random() % 3) {
        case 0:
          socket.close();
          break;
        case 1:
          socket.reset();
          break;
        default:
          socket.half_close();
          break;
      }
    }
    // Half-closed counts as gone: the server closes its side as well.
    for (Socket& socket : sockets) EXPECT_TRUE(!socket.connected() || socket.closed_within(milliseconds(3000)));
  }
  const Reply kept = steady.read_reply();
  EXPECT_EQ(kept.json()["choices"][0]["text"], std::string(400, 'x'));
  EXPECT_TRUE(server.quiet());
  EXPECT_TRUE(eventually([&] { return server.server().num_connections() == 1; }));  // the one that stays
  EXPECT_TRUE(server.alive());
  EXPECT_GT(server.engine().stats().num_aborted_requests, 100u);
}

TEST(Load, AClientThatLeavesAWholeReplyStopsItsRequest) {
  TestServer server;
  server.script.say(std::string(900, 'x'));
  server.script.step_delay_us = 1000;
  Socket socket = server.connect();
  socket.send(post_text("/v1/completions", request(900, false)));
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_requests_running == 1; }));
  socket.close();
  EXPECT_TRUE(eventually([&] { return server.engine().stats().num_requests_running == 0; }, milliseconds(300)));
  EXPECT_EQ(server.engine().stats().num_aborted_requests, 1u);
  EXPECT_LT(server.engine().stats().generation_tokens, 800u);
}

TEST(Load, AClientThatDoesNotReadIsCutAndNobodyWaits) {
  TestOptions options;
  options.server.http.max_output_buffer_bytes = 16 << 10;
  options.server.http.write_timeout = milliseconds(500);
  options.engine.max_model_len_tokens = 100000;
  options.engine.kv_budget_bytes = 1024 * 10000;
  TestServer server(options);
  server.script.say(std::string(90000, 'x'));
  server.script.step_delay_us = 200;  // or the engine is done before the kernel's megabytes of buffers are full
  Socket deaf = server.connect();
  const int small = 4096;
  setsockopt(deaf.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  json body = json::parse(request(90000, true));
  body["logprobs"] = 10;
  deaf.send(post_text("/v1/completions", body.dump()));
  EXPECT_TRUE(eventually([&] { return server.engine().stats().num_aborted_requests == 1; }, std::chrono::seconds(60)));
  EXPECT_TRUE(server.quiet());
  EXPECT_EQ(server.post("/v1/completions", request(3, false)).status, 200);
}

TEST(Load, PingsWhileNothingElseComes) {
  TestOptions options;
  options.server.http.ping_interval = milliseconds(150);
  TestServer server(options);
  server.script.say("ok");
  server.script.step_delay_us = 600000;
  Socket socket = server.connect();
  socket.send(post_text("/v1/completions", request(2, true)));
  const std::string early = socket.read_some(milliseconds(500));
  EXPECT_NE(early.find("HTTP/1.1 200"), std::string::npos);
  EXPECT_NE(early.find(": ping\n\n"), std::string::npos);
}

TEST(Load, ShutdownLetsRunningRequestsFinishAndAnswersTheRest) {
  TestOptions options;
  options.engine.max_num_seqs = 2;
  TestServer server(options);
  server.script.say(std::string(60, 'x'));
  server.script.step_delay_us = 5000;
  Socket running = server.connect(), whole = server.connect(), idle = server.connect(), half = server.connect();
  idle.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(idle.read_reply().status, 200);
  half.send("POST /v1/comp");
  running.send(post_text("/v1/completions", request(50, true)));
  whole.send(post_text("/v1/completions", request(50, false)));
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_requests_running == 2; }));
  std::vector<Socket> queued;
  for (int i = 0; i < 4; ++i) {
    queued.push_back(server.connect());
    queued.back().send(post_text("/v1/completions", request(50, i % 2 == 0)));
  }
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_requests_waiting == 4; }));
  server.server().begin_shutdown(milliseconds(5000));
  for (Socket& socket : queued) EXPECT_EQ(socket.read_reply().status, 503);
  EXPECT_TRUE(idle.closed_within(milliseconds(1000)));
  EXPECT_TRUE(half.closed_within(milliseconds(1000)));
  EXPECT_FALSE(Socket(server.port()).connected());
  const Reply stream = running.read_reply();
  EXPECT_EQ(stream.events().back(), "[DONE]");
  EXPECT_EQ(json::parse(stream.events()[stream.events().size() - 2])["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole.read_reply().json()["choices"][0]["text"], std::string(50, 'x'));
  EXPECT_TRUE(eventually([&] { return server.server().finished(); }));
}

TEST(Load, ShutdownEndsWhatDoesNotFinishWithALastEvent) {
  TestServer server;
  server.script.say(std::string(900, 'x'));
  server.script.step_delay_us = 10000;
  Socket stream = server.connect(), whole = server.connect();
  stream.send(post_text("/v1/completions", request(900, true)));
  whole.send(post_text("/v1/completions", request(900, false)));
  ASSERT_TRUE(eventually([&] { return server.engine().stats().generation_tokens >= 6; }));
  server.server().begin_shutdown(milliseconds(200));
  const Reply cut = stream.read_reply();
  ASSERT_GE(cut.events().size(), 2u);
  EXPECT_EQ(cut.events().back(), "[DONE]");
  EXPECT_EQ(json::parse(cut.events()[cut.events().size() - 2])["error"]["code"], "shutting_down");
  EXPECT_EQ(whole.read_reply().status, 503);
  EXPECT_TRUE(eventually([&] { return server.server().finished(); }));
}

// A strict reader of Prometheus' text format: every line, every rule that H33 lists. Series -> value.
std::map<std::string, double> read_metrics(const std::string& text) {
  std::map<std::string, double> series;
  std::map<std::string, std::string> types;
  std::set<std::string> ended;
  std::string family;
  const std::regex sample(
      R"re(^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? ([^ ]+)$)re");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark, kind, name;
    words >> mark >> kind >> name;
    if (mark == "#") {
      if (name != family) {
        EXPECT_TRUE(ended.insert(name).second) << "twice: " << name;
        family = name;
      }
      if (kind == "TYPE") words >> types[name];
      continue;
    }
    std::smatch match;
    if (!std::regex_match(line, match, sample)) {
      ADD_FAILURE() << line;
      continue;
    }
    const std::string sampled = match[1];
    EXPECT_TRUE(sampled.starts_with(family)) << line;
    EXPECT_EQ(std::count(sampled.begin(), sampled.end(), ':'), 1) << line;
    EXPECT_TRUE(types.contains(family)) << line;
    EXPECT_TRUE(types[family] != "counter" || family.ends_with("_total")) << family;
    const double value = std::stod(match[4].str());
    EXPECT_TRUE(std::isfinite(value)) << line;
    EXPECT_TRUE(series.emplace(sampled + match[2].str(), value).second) << "twice: " << line;
  }
  // Buckets are cumulative and end with the count, for each set of labels.
  for (const auto& [name, type] : types) {
    if (type != "histogram") continue;
    std::map<std::string, double> last_bucket;
    std::istringstream again(text);
    for (std::string line; std::getline(again, line);) {
      if (!line.starts_with(name + "_bucket{")) continue;
      const double value = std::stod(line.substr(line.rfind(' ')));
      double& before =
          last_bucket[name + "_count" + line.substr(line.find('{'), line.rfind(",le=") - line.find('{')) + "}"];
      EXPECT_GE(value, before) << line;
      before = value;
    }
    EXPECT_FALSE(last_bucket.empty()) << name;
    for (const auto& [key, value] : last_bucket) {
      EXPECT_TRUE(series.contains(key)) << key;
      EXPECT_EQ(series[key], value) << key;
    }
  }
  return series;
}

double total(const std::map<std::string, double>& series, const std::string& name, const std::string& label = {}) {
  double sum = 0;
  for (const auto& [key, value] : series)
    if (key.starts_with(name + "{") && key.find(label) != std::string::npos) sum += value;
  return sum;
}

TEST(Load, MetricsAreReadableAndTrue) {
  TestOptions options;
  options.names = {"ti\"n\\y\nname"};
  TestServer server(options);
  server.script.say("hello world");
  const Reply first = server.get("/metrics");
  EXPECT_EQ(first.headers.at("content-type").substr(0, 25), "text/plain; version=0.0.4");
  const std::map<std::string, double> before = read_metrics(first.body);
  EXPECT_EQ(total(before, "tidemill:generation_tokens_total"), 0);
  int64_t prompt = 0, completion = 0, num_choices = 0;
  for (int i = 0; i < 12; ++i) {
    json body = {{"prompt", std::string(static_cast<size_t>(i) + 1, 'a')}, {"max_tokens", i}, {"n", 1 + i % 3}};
    if (i % 4 == 0) body["stop"] = "wor";
    const json reply = server.post("/v1/completions", body.dump()).json();
    prompt += reply["usage"]["prompt_tokens"].get<int64_t>();
    completion += reply["usage"]["completion_tokens"].get<int64_t>();
    num_choices += static_cast<int64_t>(reply["choices"].size());
  }
  for (int i = 0; i < 100; ++i)
    server.post("/v1/completions", json{{"model", fmt::format("m{}", i)}, {"prompt", "a"}}.dump());
  ASSERT_TRUE(server.quiet());
  const std::map<std::string, double> after = read_metrics(server.get("/metrics").body);
  EXPECT_EQ(after.size(), before.size());
  for (const auto& [key, value] : before)
    EXPECT_TRUE(key.find("_total{") == std::string::npos || after.at(key) >= value) << key;
  EXPECT_EQ(total(after, "tidemill:generation_tokens_total"), completion);
  EXPECT_EQ(total(after, "tidemill:prompt_tokens_total"), prompt);
  EXPECT_EQ(total(after, "tidemill:request_success_total"), num_choices);
  EXPECT_EQ(total(after, "tidemill:http_requests_total", "status=\"404\""), 100);
  // All cancelled at once: the gauges are true at once.
  server.script.say(std::string(900, 'x'));
  server.script.step_delay_us = 2000;
  std::vector<Socket> sockets;
  for (int i = 0; i < 8; ++i) {
    sockets.push_back(server.connect());
    sockets.back().send(post_text("/v1/completions", request(900, true)));
  }
  ASSERT_TRUE(eventually([&] { return server.engine().stats().num_requests_running == 8; }));
  EXPECT_GT(total(read_metrics(server.get("/metrics").body), "tidemill:kv_cache_usage_perc"), 0);
  sockets.clear();
  EXPECT_TRUE(eventually(
      [&] {
        const auto now = read_metrics(server.get("/metrics").body);
        return total(now, "tidemill:num_requests_running") == 0 && total(now, "tidemill:num_requests_waiting") == 0 &&
               total(now, "tidemill:kv_cache_usage_perc") == 0;
      },
      milliseconds(1000)));
}

TEST(Load, AThousandStreamsAThirdCut) {
  TestOptions options;
  options.engine.max_num_queued_requests = 2000;
  options.engine.max_num_seqs = 64;
  options.engine.max_num_batched_tokens = 512;
  options.engine.kv_budget_bytes = 1024 * 2048;
  TestServer server(options);
  server.script.say("abcdefghijklmnopqrstuvwxyz");
  std::vector<Socket> sockets;
  for (int i = 0; i < 1000; ++i) {
    sockets.push_back(server.connect());
    ASSERT_TRUE(sockets.back().connected());
    sockets.back().send(post_text("/v1/completions", request(26, true)));
  }
  for (size_t i = 0; i < sockets.size(); i += 3) sockets[i].close();
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (i % 3 == 0) continue;
    const Reply reply = sockets[i].read_reply(std::chrono::seconds(30));
    ASSERT_TRUE(reply.complete) << i;
    EXPECT_EQ(reply.events().back(), "[DONE]");
  }
  EXPECT_TRUE(server.quiet());
  sockets.clear();
  EXPECT_TRUE(eventually([&] { return server.server().num_connections() == 0; }));
}

}  // namespace
}  // namespace tidemill::testing
