#include "cli/options/values.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

TEST(Values, SizesTakeDecimalAndBinaryUnits) {
  EXPECT_EQ(*parse_scaled("4096"), 4096);
  EXPECT_EQ(*parse_scaled("32k"), 32000);
  EXPECT_EQ(*parse_scaled("32K"), 32768);
  EXPECT_EQ(*parse_scaled("25.6k"), 25600);
  EXPECT_EQ(*parse_scaled("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(*parse_scaled("2 GB"), 2'000'000'000);
  EXPECT_EQ(*parse_scaled("-1"), -1);
}

TEST(Values, SizesRefuseWhatIsNone) {
  for (const char* text : {"", "k", "12x", "1.5", "1e300", "nan", "inf", "9999999T", "3kk", "4 4"}) {
    EXPECT_FALSE(parse_scaled(text).ok()) << text;
  }
  EXPECT_EQ(parse_scaled("12q").error().message,
            "'12q' has the unit 'q'; known are k, m, g, t (powers of 1000), K, M, G, T and KiB, MiB, GiB, TiB");
}

TEST(Values, Durations) {
  EXPECT_EQ(parse_duration("1.5")->count(), 1500);
  EXPECT_EQ(parse_duration("250ms")->count(), 250);
  EXPECT_EQ(parse_duration("5min")->count(), 300'000);
  EXPECT_EQ(parse_duration("2h")->count(), 7'200'000);
  EXPECT_FALSE(parse_duration("-1").ok());
  EXPECT_FALSE(parse_duration("5 years").ok());
}

TEST(Values, Booleans) {
  EXPECT_TRUE(*parse_boolean("On"));
  EXPECT_FALSE(*parse_boolean("disabled"));
  EXPECT_FALSE(parse_boolean("maybe").ok());
}

TEST(Values, BytesForPeople) {
  EXPECT_EQ(bytes_text(512), "512 bytes");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(98362432), "93.8 MiB");
}

}  // namespace
}  // namespace tidemill
