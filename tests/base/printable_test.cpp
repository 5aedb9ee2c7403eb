#include "base/printable.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

TEST(Printable, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(printable("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
  EXPECT_EQ(printable("aé日😀"), "aé日😀");
  EXPECT_EQ(printable("a\nb\x7F"), "a\\x0Ab\\x7F");
  EXPECT_EQ(printable("\xFF\xC3("), "\\xFF\\xC3(");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("a日b", 3), "a...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(Utf8, RefusesOverlongSurrogatesAndTheCutEnd) {
  EXPECT_TRUE(is_valid_utf8("aé日😀\xF4\x8F\xBF\xBF"));
  for (std::string_view bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
                               "\xF0\x9F\x98", "\x80", "\xF5\x80\x80\x80", "\xE2\x28\xA1"}) {
    EXPECT_FALSE(is_valid_utf8(bad)) << printable(bad);
  }
}

}  // namespace
}  // namespace tidemill
