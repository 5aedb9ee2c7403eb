#include "bench/response_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemill {
namespace {

using ::testing::ElementsAre;

struct Outcome {
  std::string body;
  bool broken = false;
  bool complete = false;
  int status = 0;
};

// Fed in pieces of `size` bytes.
Outcome read(std::string_view bytes, size_t size) {
  Outcome outcome;
  ResponseReader reader([&](std::string_view body) { outcome.body += body; });
  for (; !bytes.empty() && !outcome.broken; bytes.remove_prefix(std::min(size, bytes.size()))) {
    outcome.broken = !reader.feed(bytes.substr(0, size)).ok();
  }
  if (!outcome.broken) outcome.broken = !reader.finish().ok();
  outcome.complete = reader.complete();
  outcome.status = reader.status();
  return outcome;
}

TEST(ResponseReader, JoinsBodiesHoweverTheyArrive) {
  const std::pair<std::string, std::string> cases[] = {
      {"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n00002;x=y\r\nlo\r\n0\r\nT: 1\r\n\r\n",
       "hello"},
      {"HTTP/1.0 200 OK\r\n\r\nhello", "hello"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
  };
  for (const auto& [bytes, body] : cases) {
    for (size_t size = 1; size <= bytes.size(); ++size) {
      const Outcome outcome = read(bytes, size);
      EXPECT_EQ(outcome.body, body) << size;
      EXPECT_FALSE(outcome.broken) << bytes;
      EXPECT_TRUE(outcome.complete);
      EXPECT_EQ(outcome.status, 200);
    }
  }
}

TEST(ResponseReader, RefusesWhatIsBroken) {
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& bytes :
       {std::string("SSH-2.0-x\r\n\r\n"), std::string("HTTP/1.1 2x0 OK\r\n\r\n"), std::string("HTTP/1.1\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"), chunked + "x\r\n", chunked + "\r\n",
        chunked + "fffffffffffffffff\r\n", chunked + "2\r\nabc\r\n0\r\n\r\n", chunked + "2\r\nab\r\n",
        chunked + std::string(1000, '1'), std::string(1 << 17, 'a'), std::string()}) {
    for (const size_t size : {size_t{1}, size_t{7}, size_t{1} << 20}) {
      EXPECT_TRUE(read(bytes, size).broken) << bytes.substr(0, 60);
    }
  }
}

TEST(EventReader, GivesTheDataOfEachEventHoweverItArrives) {
  const std::string text = ": ping\n\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:two\n\ndata: [DONE]\n\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    std::vector<std::string> seen;
    EventReader reader([&](std::string_view data) { seen.emplace_back(data); });
    for (size_t at = 0; at < text.size(); at += size) ASSERT_TRUE(reader.feed(text.substr(at, size)).ok());
    EXPECT_THAT(seen, ElementsAre("{\"a\":1}", "two", "[DONE]"));
  }
}

TEST(EventReader, BoundsALine) {
  EventReader reader([](std::string_view) {});
  const std::string piece(1 << 20, 'x');
  bool refused = false;
  for (int i = 0; i < 20 && !refused; ++i) refused = !reader.feed(piece).ok();
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace tidemill
