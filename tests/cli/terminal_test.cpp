#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace tidemill {
namespace {

TEST(Terminal, KeysLeaveNoTraceInATypedLine) {
  EXPECT_EQ(without_escape_sequences("plain text, caf\u00e9 \U0001F30A"), "plain text, caf\u00e9 \U0001F30A");
  EXPECT_EQ(without_escape_sequences("\033[A/history"), "/history");                  // arrow up
  EXPECT_EQ(without_escape_sequences("a\033[1;5Cb\033OPc\033[3~d"), "abcd");          // Ctrl-right, F1, delete
  EXPECT_EQ(without_escape_sequences("a\033[200~two words\033[201~"), "atwo words");  // a bracketed paste
  EXPECT_EQ(without_escape_sequences("one\033btwo"), "onetwo");                       // Alt-b
  EXPECT_EQ(without_escape_sequences("a\tb\001\177c"), "a\tbc");
}

TEST(Terminal, UnfinishedSequencesEndWithTheLine) {
  EXPECT_EQ(without_escape_sequences("a\033"), "a");
  EXPECT_EQ(without_escape_sequences("a\033["), "a");
  EXPECT_EQ(without_escape_sequences("a\033[12"), "a12");
  EXPECT_EQ(without_escape_sequences("a\033O"), "a");
  EXPECT_EQ(without_escape_sequences("a\033\u00e9"), "a\u00e9");
  EXPECT_EQ(without_escape_sequences("\033\033[Ab"), "b");
}

}  // namespace
}  // namespace tidemill
