#include "text/preparation/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <ctime>

namespace tidemill {
namespace {

using Words = std::vector<std::string>;

Words cut(const PreTokenizer& pre_tokenizer, const std::string& text) {
  PreTokenizer::Cutter cutter(pre_tokenizer);
  const auto& words = cutter.cut(text, true);
  return Words(words.begin(), words.end());
}

Words cut_by_name(const std::string& name, const std::string& text) {
  auto named = named_pre_tokenizer(name);
  EXPECT_TRUE(named.ok()) << name;
  return cut(named->pre_tokenizer, text);
}

const char* const names[] = {"gpt-2",        "phi-2",          "olmo",        "mpt",       "jais",
                             "exaone4",      "starcoder",      "refact",      "command-r", "smollm",
                             "codeshell",    "exaone",         "llama-bpe",   "llama3",    "llama-v3",
                             "falcon3",      "lfm2",           "dbrx",        "smaug-bpe", "glm4",
                             "chatglm-bpe",  "qwen2",          "qwen35",      "stablelm2", "deepseek-r1-qwen",
                             "gpt-4o",       "llama4",         "tekken",      "tiny_aya",  "falcon",
                             "deepseek-llm", "deepseek-coder", "deepseek-v3", "youtu",     "seed-coder",
                             "bailingmoe",   "exaone-moe",     "superbpe",    "bloom",     "viking",
                             "default"};

TEST(PreTokenizer, EveryNamedRuleKeepsTheWholeText) {
  const std::string text =
      "It's WE'LL 3.14 12345678  a\n\n b \t\r\nHTTPServer  中文 ひらがな 한국어, naïve — «q» 😀  ½ x_y $9 e\u0301 "
      "\u3000end   ";
  for (const char* name : names) {
    std::string joined;
    for (const std::string& word : cut_by_name(name, text)) joined += word;
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(PreTokenizer, AnUnknownNameIsRefusedByName) {
  const auto named = named_pre_tokenizer("martian");
  ASSERT_FALSE(named.ok());
  EXPECT_NE(named.error().message.find("martian"), std::string::npos);
}

TEST(PreTokenizer, CutsAsTheModelsWereTrained) {
  EXPECT_EQ(cut_by_name("gpt-2", "it's  2024!\n\nok"), (Words{"it", "'s", " ", " 2024", "!", "\n", "\n", "ok"}));
  EXPECT_EQ(cut_by_name("llama-bpe", "It'S 12345 x\n\n y"), (Words{"It", "'S", " ", "123", "45", " x", "\n\n", " y"}));
  EXPECT_EQ(cut_by_name("qwen2", "a 123"), (Words{"a", " ", "1", "2", "3"}));
  EXPECT_EQ(cut_by_name("gpt-4o", "HTTPServer isn't"), (Words{"HTTPServer", " isn't"}));
  EXPECT_EQ(cut_by_name("tekken", "camelCase 12"), (Words{"camel", "Case", " ", "1", "2"}));
  EXPECT_EQ(cut_by_name("superbpe", "1234567 12"), (Words{"1", "234", "567", " ", "12"}));
}

TEST(PreTokenizer, HandWrittenStagesCutLikeTheirPatterns) {
  const auto stage = [](const char* pattern) {
    PreTokenizer pre_tokenizer;
    auto made = make_regex_stage(pattern);
    EXPECT_TRUE(made.ok());
    pre_tokenizer.add(std::move(*made));
    return pre_tokenizer;
  };
  // A group around the pattern makes it another text for make_regex_stage, and the same regular expression.
  const std::pair<const char*, const char*> pairs[] = {
      {"\\s+$", "(?:\\s+$)"},
      {"(?=(\\d{3})+(?!\\d))", "(?:(?=(\\d{3})+(?!\\d)))"},
      {"\\d{1,3}(?=(?:\\d{3})*\\b)", "(?:\\d{1,3}(?=(?:\\d{3})*\\b))"},
  };
  const std::string texts[] = {
      "",      " ",     "a  ",           "a \n b \n\n", "\n \n", "a 1 12 123 1234 12345 123456 1234567x 99y 1,234",
      "x1234", "1234_", "  \t\n  \tz  ", "\u3000\u00a0"};
  for (const auto& [fast, plain] : pairs) {
    for (const std::string& text : texts) {
      EXPECT_EQ(cut(stage(fast), text), cut(stage(plain), text)) << fast << " on '" << text << "'";
    }
  }
}

TEST(PreTokenizer, CutsInFrontOfBlankMarksUnlessATokenCrosses) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(BlankMarkSplit{{U'>', U'\u2581'}});
  EXPECT_EQ(cut(pre_tokenizer, "▁a▁b>▁c▁▁d"), (Words{"▁a", "▁b>▁c", "▁▁d"}));
}

TEST(PreTokenizer, EveryNamedRuleTakesLinearTimeWithoutDeepStacks) {
  constexpr size_t bytes = 1 << 18;
  for (const char* name : names) {
    for (const char* unit : {"x", "X", "-", " ", "\n", " \n", "1", "é", "a ", "aB", "  x", "'", "\u0301"}) {
      std::string text;
      while (text.size() < bytes) text += unit;
      const std::clock_t start = std::clock();
      size_t joined = 0;
      for (const std::string& word : cut_by_name(name, text)) joined += word.size();
      EXPECT_EQ(joined, text.size());
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      EXPECT_LT(seconds, 3.0) << name << " '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace tidemill
