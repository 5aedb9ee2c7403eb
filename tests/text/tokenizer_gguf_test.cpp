#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "gguf_metadata.h"
#include "test_data.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

using nlohmann::json;
using testing::data_path;
using testing::read_file;
using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> load(const std::filesystem::path& path) {
  auto tokenizer = make_tokenizer(testing::GgufMetadata::read(path));
  if (!tokenizer.ok()) ADD_FAILURE() << path << ": " << tokenizer.error().message;
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t done = 0;
  for (size_t at; (at = text.find(separator, done)) != std::string::npos; done = at + separator.size()) {
    parts.push_back(text.substr(done, at - done));
  }
  parts.push_back(text.substr(done));
  return parts;
}

std::string sha256_of(const Ids& ids) {
  unsigned char digest[32];
  EVP_Digest(ids.data(), ids.size() * sizeof(TokenId), digest, nullptr, EVP_sha256(), nullptr);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

// Ten vocabularies with texts and the ids of llama.cpp.
class GgmlVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(GgmlVocabulary, GivesTheReferenceIdsAndTheTextBack) {
  const std::string base = std::string("ggml-vocab/ggml-vocab-") + GetParam() + ".gguf";
  TM_NEEDS_DATA(base);
  const auto tokenizer = load(data_path(base));
  ASSERT_TRUE(tokenizer);
  auto texts = split(read_file(data_path(base + ".inp")), "\n__ggml_vocab_test__\n");
  texts.pop_back();  // a separator ends the file
  auto lines = split(read_file(data_path(base + ".out")), "\n");
  if (lines.back().empty()) lines.pop_back();
  ASSERT_GT(texts.size(), 40u);
  ASSERT_EQ(texts.size(), lines.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    Ids expected;
    std::istringstream numbers(lines[i]);
    for (TokenId id; numbers >> id;) expected.push_back(id);
    const Ids ids = tokenizer->encode(texts[i], {.add_special = false, .parse_special = false});
    EXPECT_EQ(ids, expected) << "text " << i << ": " << texts[i];
    EXPECT_EQ(tokenizer->decode(ids), texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Ten, GgmlVocabulary,
                         ::testing::Values("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2",
                                           "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Hugging Face's cases; its decoding also cleans up blanks before punctuation, which ours never does.
std::string cleaned_up(std::string text) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{" .", "."},
                                                                                 {" ?", "?"},
                                                                                 {" !", "!"},
                                                                                 {" ,", ","},
                                                                                 {" ' ", "'"},
                                                                                 {" n't", "n't"},
                                                                                 {" 'm", "'m"},
                                                                                 {" 's", "'s"},
                                                                                 {" 've", "'ve"},
                                                                                 {" 're", "'re"}}) {
    for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  }
  return text;
}

struct VectorCase {
  const char* model;
  const char* vocabulary;
  const char* passage;  // file of one long passage, may be null
  const char* passage_ids;
  bool cleans_up;
};

class TokenizerVectors : public ::testing::TestWithParam<VectorCase> {};
class TokenizerPassage : public ::testing::TestWithParam<VectorCase> {};

TEST_P(TokenizerVectors, EncodesAndDecodesTheCases) {
  TM_NEEDS_DATA("tokenizer-vectors/tokenizer_tests.json");
  const auto& [model, vocabulary, passage, passage_ids, cleans_up] = GetParam();
  const auto tokenizer = load(data_path(std::string("ggml-vocab/ggml-vocab-") + vocabulary + ".gguf"));
  ASSERT_TRUE(tokenizer);
  const json cases = json::parse(read_file(data_path("tokenizer-vectors/tokenizer_tests.json")))[model];
  ASSERT_GT(cases.size(), 10u);
  for (const json& c : cases) {
    const Ids expected = c["encoded"]["input_ids"];
    EXPECT_EQ(tokenizer->encode(c["input"].get<std::string>()), expected) << c["input"];
    const std::string with = tokenizer->decode(expected, false);
    const std::string without = tokenizer->decode(expected, true);
    EXPECT_EQ(cleans_up ? cleaned_up(with) : with, c["decoded_with_special"].get<std::string>());
    EXPECT_EQ(cleans_up ? cleaned_up(without) : without, c["decoded_without_special"].get<std::string>());
  }
}

TEST_P(TokenizerPassage, EncodesAndDecodesThePassage) {
  TM_NEEDS_DATA("tokenizer-vectors/tokenizer_tests.json");
  const auto& [model, vocabulary, passage, passage_ids, cleans_up] = GetParam();
  const auto tokenizer = load(data_path(std::string("ggml-vocab/ggml-vocab-") + vocabulary + ".gguf"));
  ASSERT_TRUE(tokenizer);
  const json file = json::parse(read_file(data_path(std::string("tokenizer-vectors/") + passage)));
  const Ids expected = file[passage_ids];
  EXPECT_EQ(tokenizer->encode(file["text"].get<std::string>()), expected);
  EXPECT_EQ(tokenizer->decode(expected, false), file["decoded_text"].get<std::string>());
}

constexpr VectorCase distil_gpt2{"distilgpt2", "gpt-2", "gpt2_encoded_tokens.json", "token_ids", true};
constexpr VectorCase llama2{"coreml-projects/Llama-2-7b-chat-coreml", "llama-spm", "llama_encoded.json", "token_ids",
                            false};
constexpr VectorCase llama32{"pcuenq/Llama-3.2-1B-Instruct-tokenizer", "llama-bpe", "llama_3.2_encoded.json",
                             "token_ids", true};
constexpr VectorCase falcon{"tiiuae/falcon-7b", "falcon", nullptr, nullptr, true};

std::string vocabulary_name(const ::testing::TestParamInfo<VectorCase>& info) {
  std::string name = info.param.vocabulary;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(FourModels, TokenizerVectors, ::testing::Values(distil_gpt2, llama2, llama32, falcon),
                         vocabulary_name);
INSTANTIATE_TEST_SUITE_P(ThreeModels, TokenizerPassage, ::testing::Values(distil_gpt2, llama2, llama32),
                         vocabulary_name);

// The two models that the project downloads.
class RealModel : public ::testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  void SetUp() override {
    path_ = testing::cached_model(GetParam().second);
    TM_NEEDS_FILE(path_);
    TM_NEEDS_DATA("reference/tokens-smollm2.jsonl");
    tokenizer_ = load(path_);
    ASSERT_TRUE(tokenizer_);
  }
  // SmolLM2's vocabulary has no token for some control characters; they are left out.
  std::string spellable(const std::string& text) const {
    std::string kept;
    std::copy_if(text.begin(), text.end(), std::back_inserter(kept), [&](char byte) {
      const auto value = static_cast<unsigned char>(byte);
      return value >= 0x20 || value == '\n' || !tokenizer_->encode(std::string(1, byte)).empty();
    });
    return kept;
  }

  std::filesystem::path path_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(RealModel, GivesTheReferenceIds) {
  const auto lines = split(read_file(data_path(std::string("reference/tokens-") + GetParam().first + ".jsonl")), "\n");
  ASSERT_GT(lines.size(), 200u);
  for (const std::string& line : lines) {
    if (line.empty()) continue;
    const json c = json::parse(line);
    const auto text = c["text"].get<std::string>();
    const Ids ids = tokenizer_->encode(text, {.add_special = false, .parse_special = true});
    EXPECT_EQ(ids, c["ids"].get<Ids>()) << c["text"];
    EXPECT_EQ(tokenizer_->decode(ids, false), GetParam().first == std::string("gemma3") ? text : spellable(text));
  }
}

TEST_P(RealModel, GivesTheReferenceIdsOfABook) {
  const json book =
      json::parse(read_file(data_path(std::string("reference/tokens-") + GetParam().first + "-book.json")));
  const std::string text = read_file(data_path(book["file"].get<std::string>()));
  const Ids ids = tokenizer_->encode(text, {.add_special = false, .parse_special = true});
  const Ids first = book["first"], last = book["last"];
  ASSERT_EQ(ids.size(), book["num_tokens"].get<size_t>());
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + 20), first);
  EXPECT_EQ(Ids(ids.end() - 20, ids.end()), last);
  EXPECT_EQ(sha256_of(ids), book["sha256_of_little_endian_u32"].get<std::string>());
  EXPECT_EQ(tokenizer_->decode(ids), text);
}

INSTANTIATE_TEST_SUITE_P(Downloaded, RealModel,
                         ::testing::Values(std::pair{"smollm2", "smollm2-135m-instruct-q4_1.gguf"},
                                           std::pair{"gemma3", "gemma-3-270m-q4_k_m.gguf"}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace tidemill
