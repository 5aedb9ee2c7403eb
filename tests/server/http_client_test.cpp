#include "server/http/http_client.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

TEST(HttpUrl, TakesAddressesInEveryForm) {
  const HttpUrl plain = *HttpUrl::parse("http://127.0.0.1:8000");
  EXPECT_EQ(plain.host, "127.0.0.1");
  EXPECT_EQ(plain.port, "8000");
  EXPECT_EQ(plain.path, "");
  const HttpUrl with_path = *HttpUrl::parse("http://example.test/api/v1/");
  EXPECT_EQ(with_path.host, "example.test");
  EXPECT_EQ(with_path.port, "80");
  EXPECT_EQ(with_path.path, "/api/v1");
  EXPECT_EQ(HttpUrl::parse("localhost:9")->port, "9");
  EXPECT_EQ(HttpUrl::parse("http://[::1]:8000")->host, "::1");
  EXPECT_EQ(HttpUrl::parse("http://[::1]")->port, "80");
}

TEST(HttpUrl, RefusesWhatIsNone) {
  EXPECT_FALSE(HttpUrl::parse("").ok());
  EXPECT_FALSE(HttpUrl::parse("http://:8000").ok());
  EXPECT_FALSE(HttpUrl::parse("http://host:port").ok());
  EXPECT_EQ(HttpUrl::parse("https://host").error().message, "'https://host': only http:// is supported here");
}

TEST(HttpCall, SaysThatNobodyListens) {
  const Result<HttpAnswer> answer = http_call({"127.0.0.1", "1", ""}, {"GET", "/v1/models", "", ""});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message, "127.0.0.1:1: Connection refused");
}

}  // namespace
}  // namespace tidemill
