#include "cli/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "model/model_files.h"
#include "test_data.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tidemill {
namespace {

using ::testing::ElementsAre;

Result<GenerationDefaults> defaults_from(const std::string& json) {
  ModelFiles files;
  files.generation_config_json = json;
  return generation_defaults_of(files);
}

TEST(GenerationDefaults, TakesWhatIsThere) {
  const GenerationDefaults defaults =
      *defaults_from(R"({"temperature": 0.7, "top_k": 20, "top_p": 0.8, "do_sample": true, "eos_token_id": [7, 9]})");
  EXPECT_EQ(defaults.temperature, 0.7);
  EXPECT_EQ(defaults.top_k, 20);
  EXPECT_EQ(defaults.top_p, 0.8);
  EXPECT_FALSE(defaults.min_p.has_value());
  EXPECT_THAT(defaults.end_token_ids, ElementsAre(7, 9));
}

TEST(GenerationDefaults, WithoutSamplingTheBestTokenIsTaken) {
  EXPECT_EQ(defaults_from(R"({"temperature": 0.7, "do_sample": false})")->temperature, 0.0);
}

TEST(GenerationDefaults, ImpossibleIdsAreLeftOutAndBrokenTextIsRefused) {
  EXPECT_THAT(defaults_from(R"({"eos_token_id": [-1, 99999999999, "x", 3]})")->end_token_ids, ElementsAre(3));
  EXPECT_FALSE(defaults_from("[1]").ok());
  EXPECT_FALSE(defaults_from("{").ok());
}

TEST(ModelText, AVocabularyIsEnoughForATokenizer) {
  TM_NEEDS_DATA("ggml-vocab/ggml-vocab-phi-3.gguf");
  const Result<ModelFiles> files = open_model_files(testing::data_path("ggml-vocab/ggml-vocab-phi-3.gguf"));
  ASSERT_TRUE(files.ok());
  EXPECT_EQ((*tokenizer_of(*files))->vocab_size(), 32064u);
}

TEST(ModelText, AGivenTemplateTakesThePlaceOfTheModelsOwn) {
  ModelFiles files;
  files.chat_template = "own";
  EXPECT_EQ(*chat_template_source_of(files, ""), "own");
  const std::string path = ::testing::TempDir() + "given.jinja";
  std::ofstream(path) << "{% if x %}";
  EXPECT_EQ(*chat_template_source_of(files, path), "{% if x %}");
  EXPECT_FALSE(chat_template_source_of(files, "/nowhere/x.jinja").ok());
  EXPECT_EQ(chat_template_of("{% if x %}", path).error().message.find("chat template " + path + ": line 1"), 0u);
  EXPECT_EQ(*chat_template_of("", ""), nullptr);
}

TEST(ModelText, TextFilesHaveALimit) {
  EXPECT_FALSE(read_text_file("/nowhere", 10).ok());
  EXPECT_FALSE(read_text_file("/proc", 10).ok());
}

}  // namespace
}  // namespace tidemill
