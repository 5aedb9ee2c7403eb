#include "model/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "gguf_writer.h"
#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::raw;
using ::testing::StartsWith;
using testing::tiny_gguf;

std::string tiny_safetensors() {
  const std::string header = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  return raw<uint64_t>(header.size()) + header + "1234";
}

std::string message_of(const std::filesystem::path& path) {
  auto files = open_model_files(path);
  return files.ok() ? "opened" : files.error().message;
}

TEST(ModelFiles, GgufByContentWhateverItsName) {
  testing::TemporaryFolder folder;
  auto writer = tiny_gguf();
  writer.text("tokenizer.chat_template", "{{ messages }}");
  auto files = open_model_files(folder.write("model.bin", writer.bytes()));
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->weights->format(), "GGUF v3");
  EXPECT_EQ(files->chat_template, "{{ messages }}");
  EXPECT_EQ(files->name, "tiny-A");
  EXPECT_TRUE(files->config_json.empty());
  auto config = read_model_config(*files);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_layers, 2);
  // The folder that holds it, too, once the name says what it is.
  EXPECT_THAT(message_of(folder.path()), HasSubstr("holds neither"));
  folder.write("model.gguf", writer.bytes());
  EXPECT_EQ(message_of(folder.path()), "opened");
  folder.write("other.gguf", writer.bytes());
  EXPECT_THAT(message_of(folder.path()), HasSubstr("2 GGUF files"));
}

TEST(ModelFiles, VocabularyHasNoConfiguration) {
  testing::TemporaryFolder folder;
  testing::GgufWriter vocabulary;
  vocabulary.keys = tiny_gguf().keys;
  auto files = open_model_files(folder.write("vocab.gguf", vocabulary.bytes()));
  ASSERT_TRUE(files.ok()) << files.error().message;
  auto config = read_model_config(*files);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.error().message, HasSubstr("no tensors"));
}

TEST(ModelFiles, FolderWithItsTexts) {
  testing::TemporaryFolder folder;
  folder.write("model.safetensors", tiny_safetensors());
  EXPECT_THAT(message_of(folder.path()), HasSubstr("config.json: is missing"));
  folder.write("config.json", "{}");
  folder.write("generation_config.json", "{\"g\":1}");
  folder.write("tokenizer.json", "{\"t\":1}");
  folder.write("tokenizer_config.json", R"({"chat_template":"from config"})");
  for (const auto& path : {folder.path(), folder.path() / "model.safetensors"}) {
    auto files = open_model_files(path);
    ASSERT_TRUE(files.ok()) << files.error().message;
    EXPECT_EQ(files->config_json, "{}");
    EXPECT_EQ(files->generation_config_json, "{\"g\":1}");
    EXPECT_EQ(files->tokenizer_json, "{\"t\":1}");
    EXPECT_EQ(files->chat_template, "from config");
    EXPECT_FALSE(files->name.empty());
  }
  folder.write("chat_template.jinja", "from file");
  EXPECT_EQ(open_model_files(folder.path())->chat_template, "from file");
}

TEST(ModelFiles, ChatTemplateInAList) {
  testing::TemporaryFolder folder;
  folder.write("model.safetensors", tiny_safetensors());
  folder.write("config.json", "{}");
  folder.write("tokenizer_config.json",
               R"({"chat_template":[{"name":"tools","template":"T"},{"name":"default","template":"D"}]})");
  EXPECT_EQ(open_model_files(folder.path())->chat_template, "D");
  for (const char* bad : {R"({"chat_template":7})", R"({"chat_template":[{"name":"tools","template":"T"}]})",
                          R"({"chat_template":[7]})", R"({"chat_template":[{"name":"default","template":7}]})"}) {
    folder.write("tokenizer_config.json", bad);
    EXPECT_THAT(message_of(folder.path()), HasSubstr("'chat_template' in tokenizer_config.json")) << bad;
  }
  folder.write("tokenizer_config.json", "[");
  EXPECT_THAT(message_of(folder.path()), HasSubstr("tokenizer_config.json is not valid JSON"));
  folder.write("tokenizer_config.json", "{}");
  folder.write("chat_template.jinja", "\xFF");
  EXPECT_THAT(message_of(folder.path()), HasSubstr("chat_template.jinja: is not valid UTF-8"));
}

TEST(ModelFiles, WhatIsNoModelIsRefusedWithoutItsFolder) {
  testing::TemporaryFolder folder;
  const std::string name = folder.path().parent_path().string();
  for (const auto& path :
       {folder.path() / "absent.gguf", folder.write("empty.gguf", ""), folder.write("text.txt", "hello, world"),
        folder.write("short.safetensors", "1234567"), folder.write("cut.gguf", "GGUF")}) {
    const std::string message = message_of(path);
    EXPECT_THAT(message, AllOf(StartsWith(path.filename().string() + ": "), Not(HasSubstr(name))));
  }
  EXPECT_THAT(message_of(folder.path() / "cut.gguf"), HasSubstr("ends at byte 4"));
  EXPECT_THAT(message_of(folder.path() / "text.txt"), HasSubstr("neither"));
  EXPECT_THAT(message_of(folder.path() / "short.safetensors"), HasSubstr("7 bytes"));
}

TEST(ModelFiles, TinyModelsOpenAndReadAlike) {
  TM_NEEDS_DATA("tiny-models");
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("tiny-models"))) {
    if (!entry.is_directory()) continue;
    auto files = open_model_files(entry.path());
    ASSERT_TRUE(files.ok()) << files.error().message;
    EXPECT_EQ(files->name, entry.path().filename());
    EXPECT_FALSE(files->tokenizer_json.empty());
    auto config = read_model_config(*files);
    ASSERT_TRUE(config.ok()) << entry.path() << ": " << config.error().message;
  }
}

// The two models that the project serves by default, where they have been fetched.
TEST(ModelFiles, RealModels) {
  const std::filesystem::path smollm = testing::cached_model("smollm2-135m-instruct-q4_1.gguf");
  const std::filesystem::path gemma = testing::cached_model("gemma-3-270m-q4_k_m.gguf");
  TM_NEEDS_FILE(smollm);
  TM_NEEDS_FILE(gemma);
  auto small = open_model_files(smollm);
  ASSERT_TRUE(small.ok()) << small.error().message;
  auto config = read_model_config(*small);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_heads[0], 9);
  EXPECT_EQ(config->head_size_k, 64);
  EXPECT_EQ(config->rope.base, 100000);
  EXPECT_EQ(config->vocab_size, 49152);
  auto other = open_model_files(gemma);
  ASSERT_TRUE(other.ok()) << other.error().message;
  config = read_model_config(*other);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->head_size_k, 256);
  EXPECT_EQ(config->num_kv_heads[0], 1);
  EXPECT_EQ(config->sliding_window, 512);
  EXPECT_EQ(config->vocab_size, 262144);
}

}  // namespace
}  // namespace tidemill
