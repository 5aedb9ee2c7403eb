#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

const std::string replaced(replacement_character);

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
  } cases[] = {
      {"", ""},
      {"plain ASCII of more than eight bytes", "plain ASCII of more than eight bytes"},
      {"a\xFFz", "a" + replaced + "z"},
      {"\x80", replaced},
      {"\xC3(", replaced + "("},
      {"\xF0\x9Fx", replaced + "x"},
      {"\xF0\x9F", replaced},
      {"\xE2\x82\xAC\xE2\x82", "\xE2\x82\xAC" + replaced},
      {"\xC0\xAF", replaced + replaced},                 // overlong
      {"\xED\xA0\x80", replaced + replaced + replaced},  // surrogate
      {"\xF4\x90\x80\x80", replaced + replaced + replaced + replaced},
      {"\xF1\x80\x80\xE1\x80\xC2", replaced + replaced + replaced},  // the Unicode standard's own example (table 3-8)
  };
  for (const auto& [text, clean] : cases) {
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
