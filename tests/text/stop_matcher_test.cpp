#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace tidemill {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> stop;
};

Outcome run(std::vector<std::string> stops, const std::vector<std::string>& pieces, bool include_stop = false) {
  StopMatcher matcher(std::move(stops), include_stop);
  Outcome result;
  for (const std::string& piece : pieces) {
    auto output = matcher.push(piece);
    result.text += output.text;
    if (output.matched_stop) result.stop = output.matched_stop;
  }
  if (!matcher.stopped()) result.text += matcher.flush();
  return result;
}

TEST(StopMatcher, CutsWhereAStopStringCompletes) {
  const std::vector<std::string> pieces = {"AB", "CDE", "F", "GH"};
  const struct {
    std::vector<std::string> stops;
    std::string text;
    std::optional<size_t> stop;
  } cases[] = {
      {{"CDEFGH"}, "AB", 0},
      {{"BC"}, "A", 0},
      {{"E", "DE"}, "ABC", 1},
      {{"CDEFGX"}, "ABCDEFGH", {}},
      {{"H"}, "ABCDEFG", 0},
      {{""}, "ABCDEFGH", {}},
      {{}, "ABCDEFGH", {}},
      {{"AB"}, "", 0},
      {{"EFG", "BCDE"}, "A", 1},
      {{"X", "GH"}, "ABCDEF", 1},
      {{"FGHI", "CDEF", "F"}, "AB", 1},
      {{std::string(10'000, 'C')}, "ABCDEFGH", {}},
  };
  for (const auto& c : cases) {
    const Outcome result = run(c.stops, pieces);
    EXPECT_EQ(result.text, c.text) << ::testing::PrintToString(c.stops);
    EXPECT_EQ(result.stop, c.stop) << ::testing::PrintToString(c.stops);
  }
}

TEST(StopMatcher, DeliversTheStopStringWhenAsked) {
  EXPECT_EQ(run({"CDE"}, {"AB", "CD", "EF"}, true).text, "ABCDE");
  EXPECT_EQ(run({"CDE"}, {"AB", "CD", "EF"}, false).text, "AB");
}

TEST(StopMatcher, HoldsOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher({"\n\nUser:", "é!"});
  EXPECT_EQ(matcher.push("Hi\n").text, "Hi");
  EXPECT_EQ(matcher.push("x").text, "\nx");
  EXPECT_EQ(matcher.push("\n\n").text, "");
  EXPECT_EQ(matcher.push("\n").text, "\n");
  EXPECT_EQ(matcher.push("Us").text, "");
  EXPECT_EQ(matcher.push("é").text, "\n\nUs");
  EXPECT_EQ(matcher.push("?").text, "é?");
  EXPECT_EQ(matcher.push("é").text, "");
  const auto output = matcher.push("! more");
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.matched_stop, 1u);
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("late").text, "");
}

TEST(StopMatcher, FlushGivesWhatWasHeld) {
  StopMatcher matcher({"CDEFGH"});
  EXPECT_EQ(matcher.push("AB").text, "AB");
  EXPECT_EQ(matcher.push("CDE").text, "");
  EXPECT_EQ(matcher.flush(), "CDE");
}

// The whole text at once, searched without any state.
Outcome naive(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].empty() || !std::string_view(text).substr(0, end).ends_with(stops[i])) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, AgreesWithAPlainSearchHoweverTheTextIsCut) {
  std::mt19937 random(7);
  const auto word = [&](size_t longest) {
    std::string text(random() % longest, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 4; i-- > 0;) stops.push_back(word(7));
    std::vector<std::string> pieces;
    std::string text;
    for (int i = 0; i < 8; ++i) text += pieces.emplace_back(word(5));
    const Outcome expected = naive(stops, text);
    const Outcome found = run(stops, pieces);
    ASSERT_EQ(found.text, expected.text) << text << " " << ::testing::PrintToString(stops);
    ASSERT_EQ(found.stop, expected.stop) << text << " " << ::testing::PrintToString(stops);
  }
}

}  // namespace
}  // namespace tidemill
