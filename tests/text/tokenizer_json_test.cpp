#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "test_data.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

using nlohmann::json;
using testing::golden_path;
using testing::read_file;
using Ids = std::vector<TokenId>;

// Ids and decoded texts of Hugging Face's tokenizers package for small tokenizers of many kinds
// (tools/make_golden_tokenizers.py).
class GoldenTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, EncodesAndDecodesAsHuggingFace) {
  const json golden = json::parse(read_file(golden_path(std::string("tokenizers/") + GetParam() + ".json")));
  const auto tokenizer = make_tokenizer(golden["tokenizer"].dump(), "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  ASSERT_GT(golden["cases"].size(), 25u);
  for (const json& c : golden["cases"]) {
    const auto text = c["text"].get<std::string>();
    const Ids expected = c["ids"];
    EXPECT_EQ((*tokenizer)->encode(text, {.add_special = true, .parse_special = true}), expected) << c["text"];
    EXPECT_EQ((*tokenizer)->decode(expected, true), c["decoded"].get<std::string>()) << c["text"];
    EXPECT_EQ((*tokenizer)->decode(expected, false), c["decoded_with_special"].get<std::string>()) << c["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GoldenTokenizer,
                         ::testing::Values("llama3_template", "added_flags_nfc", "digits", "gpt4o",
                                           "prefix_space_roberta", "deepseek_like", "superbpe_digits", "aya_digits",
                                           "punctuation_behaviors", "inverted_words", "normalized_text",
                                           "sentencepiece_prepend", "sentencepiece_metaspace_first",
                                           "unigram_metaspace"),
                         [](const auto& info) { return std::string(info.param); });

json small_tokenizer() {
  return json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<s>", "special": true}, {"id": 6, "content": "</s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "abc": 4}, "merges": ["a b", ["ab", "c"]]}})");
}

std::string error_of(const json& tokenizer, const std::string& config = "") {
  const auto made = make_tokenizer(tokenizer.dump(), config);
  return made.ok() ? "" : made.error().message;
}

TEST(TokenizerJson, ReadsConfigTokensAndFlags) {
  const auto made = make_tokenizer(
      small_tokenizer().dump(),
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": true, "add_eos_token": true})");
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Tokenizer& tokenizer = **made;
  EXPECT_EQ(tokenizer.encode("abcab"), (Ids{5, 4, 2, 6}));
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.bos(), 5);
  EXPECT_EQ(tokenizer.eos(), 6);
  EXPECT_EQ(tokenizer.end_of_generation_ids(), (Ids{6}));
  EXPECT_EQ(tokenizer.vocab_size(), 7u);
  EXPECT_EQ(tokenizer.find("abc"), 4);
  EXPECT_EQ(tokenizer.find("x"), std::nullopt);
}

TEST(TokenizerJson, RefusesUnsupportedKindsByName) {
  const struct {
    const char* pointer;
    const char* value;
    const char* name;
  } cases[] = {
      {"/model/type", R"("WordPiece")", "WordPiece"},
      {"/pre_tokenizer", R"({"type": "UnicodeScripts"})", "UnicodeScripts"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "BertPreTokenizer"}]})",
       "BertPreTokenizer"},
      {"/normalizer", R"({"type": "BertNormalizer"})", "BertNormalizer"},
      {"/decoder", R"({"type": "CTC"})", "CTC"},
      {"/post_processor", R"({"type": "Odd"})", "Odd"},
      {"/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix"},
      {"/model/dropout", "0.1", "dropout"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})", "(a"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "[a&&b]"}, "behavior": "Isolated"})", "&&"},
  };
  for (const auto& [pointer, value, name] : cases) {
    json tokenizer = small_tokenizer();
    tokenizer[json::json_pointer(pointer)] = json::parse(value);
    EXPECT_NE(error_of(tokenizer).find(name), std::string::npos) << pointer << ": " << error_of(tokenizer);
  }
}

TEST(TokenizerJson, RefusesBrokenFilesNamingThePlace) {
  const struct {
    const char* pointer;
    const char* value;
    const char* place;
  } cases[] = {
      {"/model", "[]", "model"},
      {"/model/vocab", "{}", "vocab"},
      {"/model/vocab", "7", "vocab"},
      {"/model/vocab/a", "-1", "'a'"},
      {"/model/vocab/a", "1000000000", "'a'"},
      {"/model/vocab/a", "18446744073709551615", "'a'"},
      {"/model/vocab/a", "\"x\"", "'a'"},
      {"/model/merges", "{}", "merges"},
      {"/model/merges/0", "\"ab\"", "merges[0]"},
      {"/model/merges/0", "\"a b c\"", "merges[0]"},
      {"/model/merges/1", "[\"a\", \"zz\"]", "'zz'"},
      {"/model/merges/1", "[\"a\"]", "merges[1]"},
      {"/added_tokens", "{}", "added_tokens"},
      {"/added_tokens/0", "3", "added_tokens[0]"},
      {"/added_tokens/0/id", "-4", "added_tokens[0].id"},
      {"/added_tokens/0/id", "2000000000", "<s>"},
      {"/added_tokens/0/special", "3", "added_tokens[0].special"},
      {"/pre_tokenizer", "3", "pre_tokenizer"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AAAA"})", "precompiled_charsmap"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}]})", "<x>"},
  };
  for (const auto& [pointer, value, place] : cases) {
    json tokenizer = small_tokenizer();
    tokenizer[json::json_pointer(pointer)] = json::parse(value);
    EXPECT_NE(error_of(tokenizer).find(place), std::string::npos) << pointer << ": " << error_of(tokenizer);
  }
  EXPECT_FALSE(make_tokenizer("{", "").ok());
  EXPECT_FALSE(make_tokenizer("[]", "").ok());
  EXPECT_FALSE(make_tokenizer(small_tokenizer().dump(), "{").ok());
  EXPECT_NE(error_of(small_tokenizer(), R"({"eos_token": 3})").find("eos_token"), std::string::npos);
  EXPECT_FALSE(make_tokenizer(std::string(200'000, '['), "").ok());
}

TEST(TokenizerJson, NestedSequencesHaveALimit) {
  json nested = json::parse(R"({"type": "NFC"})");
  for (int depth = 0; depth < 50; ++depth) {
    nested = json{{"type", "Sequence"}, {"normalizers", json::array({nested})}};
  }
  json tokenizer = small_tokenizer();
  tokenizer["normalizer"] = nested;
  EXPECT_NE(error_of(tokenizer).find("nested"), std::string::npos);
}

}  // namespace
}  // namespace tidemill
