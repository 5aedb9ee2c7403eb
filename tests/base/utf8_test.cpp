#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

const std::string kBad(kReplacementCharacter);

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char decoded = decode_utf8(text, 0);
    ASSERT_TRUE(decoded.valid) << static_cast<uint32_t>(c);
    ASSERT_EQ(static_cast<uint32_t>(decoded.code_point), static_cast<uint32_t>(c));
    ASSERT_EQ(decoded.length_bytes, text.size());
  }
}

TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  const struct {
    std::string text, clean;
  } kCases[] = {
      {"", ""},
      {"plain ASCII of more than eight bytes", "plain ASCII of more than eight bytes"},
      {"a\xFFz", "a" + kBad + "z"},
      {"\x80", kBad},
      {"\xC3(", kBad + "("},
      {"\xF0\x9Fx", kBad + "x"},
      {"\xF0\x9F", kBad},
      {"\xE2\x82\xAC\xE2\x82", "\xE2\x82\xAC" + kBad},
      {"\xC0\xAF", kBad + kBad},             // overlong
      {"\xED\xA0\x80", kBad + kBad + kBad},  // surrogate
      {"\xF4\x90\x80\x80", kBad + kBad + kBad + kBad},
      {"\xF1\x80\x80\xE1\x80\xC2", kBad + kBad + kBad},  // the Unicode standard's own example (table 3-8)
  };
  for (const auto& [text, clean] : kCases) {
    EXPECT_EQ(sanitize_utf8(text), clean);
    EXPECT_EQ(is_valid_utf8(text), text == clean);
    EXPECT_TRUE(is_valid_utf8(clean));
  }
}

TEST(Utf8, RefusesOverlongSurrogatesAndTheCutEnd) {
  EXPECT_TRUE(is_valid_utf8("aé日😀\xF4\x8F\xBF\xBF"));
  for (std::string_view bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
                               "\xF0\x9F\x98", "\x80", "\xF5\x80\x80\x80", "\xE2\x28\xA1"}) {
    EXPECT_FALSE(is_valid_utf8(bad));
  }
}

}  // namespace
}  // namespace tidemill
