#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tidemill {
namespace {

using ::testing::HasSubstr;

TEST(Json, DepthCountsBracketsOutsideStrings) {
  EXPECT_EQ(json_depth("7"), 0u);
  EXPECT_EQ(json_depth(R"({"a":[1,{"b":"]}[[[[\"[["}]})"), 3u);
  EXPECT_EQ(json_depth("]]]]["), 1u);
  EXPECT_EQ(json_depth("\"\\"), 0u);
}

TEST(Json, ParsesUpToTheLimit) {
  EXPECT_EQ((*parse_json(R"({"a":[1]})", 2))["a"][0], 1);
  EXPECT_THAT(parse_json(R"({"a":[1]})", 1).error().message, HasSubstr("2 deep, above the limit of 1"));
  EXPECT_THAT(parse_json(std::string(1000000, '[')).error().message, HasSubstr("1000000 deep"));
}

TEST(Json, ByteOrderMarkIsSkipped) {
  EXPECT_TRUE(parse_json("\xEF\xBB\xBF{}").ok());
}

TEST(Json, WhatIsNotJsonIsRefusedWithItsPlace) {
  EXPECT_THAT(parse_json("{\"a\": nope}").error().message, HasSubstr("at byte"));
  for (std::string_view bad : {"", "{", "1 2", "[1,]", "NaN", "1e999", "\"\xFF\"", "\"\\ud800\""}) {
    EXPECT_FALSE(parse_json(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace tidemill
