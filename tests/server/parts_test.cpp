// The parts that need no server: JSON reading, keys, requests in pieces, thinking marks, log lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http/auth.h"
#include "server/http/request_parser.h"
#include "server/json_fields.h"
#include "server/openai/thinking_splitter.h"
#include "server/request_log.h"

namespace tidemill {
namespace {

std::string problem(const std::string& text) {
  auto parsed = parse_client_json(text);
  const ApiError* error = std::get_if<ApiError>(&parsed);
  return error ? error->message : "";
}

TEST(JsonFields, BoundsWhatHostileTextsCost) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_EQ(problem(nested(max_json_depth)), "");
  EXPECT_THAT(problem(nested(max_json_depth + 1)), ::testing::HasSubstr("100"));
  std::string wide = "{";
  for (int64_t i = 0; i <= max_keys_per_object; ++i) wide += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  EXPECT_THAT(problem(wide + "}"), ::testing::HasSubstr("2048"));
  EXPECT_EQ(problem(R"({"a":"}}]]:{[\"","b":[1]})"), "");
  EXPECT_THAT(problem("{\"a\":\xFF}"), ::testing::HasSubstr("byte"));
}

TEST(JsonFields, KeepsTheFirstErrorAndNamesTheField) {
  const Json body = {{"a", 1.5}, {"b", "x"}, {"c", 16.0}, {"d", nullptr}, {"e", 18446744073709551615ULL}};
  Fields fields(body, "options.");
  EXPECT_EQ(fields.integer("c", 0, 100), 16);
  EXPECT_FALSE(fields.integer("d", 0, 100));
  EXPECT_FALSE(fields.failed());
  EXPECT_FALSE(fields.integer("a", 0, 100));
  EXPECT_FALSE(fields.boolean("b"));
  EXPECT_EQ(fields.error()->param, "options.a");
  EXPECT_EQ(fields.error()->message, "options.a must be an integer from 0 to 100, not 1.5");
  EXPECT_FALSE(as_integer(body["e"]));
}

TEST(KeyRing, LooksAtAllBytesOfAllKeys) {
  const KeyRing ring = *KeyRing::make({.keys = {"one", "two", "three"}});
  for (const char* guess : {"one", "three", "thref", "", "o", "something else that is long"}) {
    EXPECT_EQ(ring.match(guess).num_bytes_compared, 3 * 32u) << guess;
  }
  EXPECT_EQ(ring.match("three").key, 2u);
  EXPECT_FALSE(ring.match("thre").key);
  EXPECT_FALSE(ring.match(std::string_view("one\0", 4)).key);
  EXPECT_FALSE(KeyRing::make({.keys = {""}}).ok());
  EXPECT_FALSE(KeyRing::make({.keys = {"a b"}}).ok());
}

TEST(RequestParser, TakesARequestInAnyPieces) {
  const std::string text =
      "POST /x?y=1 HTTP/1.1\r\nHost: h\r\nX-A:  b \r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    RequestParser parser(1000, 1000);
    std::string buffer;
    bool saw_header = false, complete = false;
    for (size_t at = 0; at < text.size() && !complete; at += piece) {
      buffer += text.substr(at, piece);
      while (!complete) {
        std::string_view rest = buffer;
        const RequestParser::State state = parser.feed(rest);
        buffer.erase(0, buffer.size() - rest.size());
        if (state == RequestParser::State::incomplete) break;
        if (state == RequestParser::State::header_done) {
          saw_header = true;
          EXPECT_TRUE(parser.has_body());
          continue;
        }
        ASSERT_EQ(state, RequestParser::State::complete) << piece;
        complete = true;
      }
    }
    ASSERT_TRUE(saw_header && complete) << piece;
    const HttpRequest request = parser.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/x");
    EXPECT_EQ(request.query, "y=1");
    EXPECT_EQ(request.header("x-a"), "b");
    EXPECT_EQ(request.body, "hello");
  }
}

TEST(ThinkingSplitter, SplitsAtMarksHoweverTheTextArrives) {
  const auto split = [](const std::string& text, size_t piece, bool starts = false) {
    ThinkingSplitter splitter({"<think>", "</think>"}, starts);
    ThinkingSplitter::Parts all;
    const auto add = [&](const ThinkingSplitter::Parts& parts) {
      all.thinking += parts.thinking;
      all.answer += parts.answer;
    };
    for (size_t at = 0; at < text.size(); at += piece) add(splitter.push(text.substr(at, piece)));
    add(splitter.finish());
    return std::pair(all.thinking, all.answer);
  };
  for (size_t piece = 1; piece < 30; ++piece) {
    EXPECT_EQ(split("<think>\na < b\n</think>\n\nyes", piece), std::pair(std::string("a < b\n"), std::string("yes")));
    EXPECT_EQ(split("plain <think>x</think>", piece), std::pair(std::string(), std::string("plain <think>x</think>")));
    EXPECT_EQ(split("a</think>b", piece, true), std::pair(std::string("a"), std::string("b")));
    EXPECT_EQ(split("never ends </thi", piece, true), std::pair(std::string("never ends </thi"), std::string()));
    EXPECT_EQ(split("<thin", piece), std::pair(std::string(), std::string("<thin")));
  }
}

TEST(RequestLog, ShowsNoRawBytesOfAClient) {
  const std::string line = log_line({.request_id = "r",
                                     .tenant = "",
                                     .peer = "p",
                                     .method = "GET",
                                     .path = "/\xFF\n\x1B[31m",
                                     .status = 404,
                                     .finish_reasons = ""});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.find('\x1B'), std::string::npos);
}

}  // namespace
}  // namespace tidemill
