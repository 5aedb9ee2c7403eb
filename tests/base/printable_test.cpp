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

}  // namespace
}  // namespace tidemill
