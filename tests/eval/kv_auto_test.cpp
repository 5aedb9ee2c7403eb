#include "eval/kv_auto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/loader.h"
#include "model/model_files.h"
#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;

KvAutoTable made_table() {
  KvAutoTable table;
  table.num_tokens = 100;
  table.context_tokens = 64;
  table.seconds = 1.5;
  table.formats = {{"fp16", 1000, {0.001, 0.01, 20}, KvFidelity::exact},
                   {"int8", 520, {0.0012, 0.011, 20.01}, KvFidelity::high},
                   {"int8/int4", 400, {0.006, 0.03, 20.2}, KvFidelity::balanced},
                   {"int4", 300, {0.5, 0.3, 40}, std::nullopt}};
  return table;
}

TEST(KvAutoTest, TheSmallestThatIsTrueEnoughIsChosen) {
  const KvAutoTable table = made_table();
  EXPECT_EQ(table.choose(KvFidelity::exact).name, "fp16");
  EXPECT_EQ(table.choose(KvFidelity::high).name, "int8");
  EXPECT_EQ(table.choose(KvFidelity::balanced).name, "int8/int4");
  EXPECT_EQ(table.choose(KvFidelity::compact).name, "int8/int4");
  const std::string why = explain_choice(table, KvFidelity::balanced);
  EXPECT_THAT(why, HasSubstr("the KV cache is int8/int4"));
  EXPECT_THAT(why, HasSubstr("int4: 30 % of fp16's size"));
  EXPECT_THAT(why, HasSubstr("below all levels"));
}

TEST(KvAutoTest, AKeptTableIsReadForItsKeyOnly) {
  testing::TemporaryFolder folder;
  const auto file = folder.path() / "sub" / "table.json";
  const auto absent = read_kv_table(file, "key");
  ASSERT_TRUE(absent.ok());
  EXPECT_FALSE(*absent);
  ASSERT_TRUE(write_kv_table(file, "key", made_table()).ok());
  const auto kept = read_kv_table(file, "key");
  ASSERT_TRUE(kept.ok() && *kept);
  EXPECT_EQ((*kept)->choose(KvFidelity::high).name, "int8");
  EXPECT_EQ((*kept)->formats.size(), 4u);
  EXPECT_EQ((*kept)->formats[3].level, std::nullopt);
  EXPECT_EQ((*kept)->num_tokens, 100);
  const auto other = read_kv_table(file, "another key");
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(*other);
  for (const char* text : {"", "[]", "{\"key\":\"key\",\"formats\":[]}", "{\"key\":\"key\",\"formats\":[{}]}"}) {
    folder.write("broken.json", text);
    EXPECT_FALSE(read_kv_table(folder.path() / "broken.json", "key").ok()) << text;
  }
}

TEST(KvAutoTest, NamesAreReadInParts) {
  const auto named = kv_formats_named("int8/int4+rotation+ends", 6);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->formats.sealed.keys.format, KvFormat::int8);
  EXPECT_EQ(named->formats.sealed.values.format, KvFormat::int4);
  EXPECT_TRUE(named->formats.rotate);
  EXPECT_EQ(named->formats.skipped_layers, (std::vector<int32_t>{0, 1, 4, 5}));
  EXPECT_FALSE(named->exact);
  EXPECT_TRUE(kv_formats_named("fp32/fp16", 1)->exact);
  EXPECT_FALSE(kv_formats_named("bf16", 1)->exact);
  EXPECT_EQ(kv_format_list("fp16,int8:channel", 1)->size(), 2u);
  for (const char* name : {"", "int7", "int8/", "int8/int8/int8", "int8+sideways", "int8:both"})
    EXPECT_FALSE(kv_formats_named(name, 1).ok()) << name;
}

TEST(KvAutoTest, AModelMeasuresItself) {
  auto backend = make_cpu_backend({.num_threads = 2});
  ASSERT_TRUE(backend.ok());
  auto files = open_model_files(testing::golden_path("tiny-models/llama"));
  ASSERT_TRUE(files.ok());
  auto config = read_model_config(*files);
  ASSERT_TRUE(config.ok());
  auto model = load_model(*files->weights, *config, **backend, {});
  ASSERT_TRUE(model.ok());
  auto tokenizer = make_tokenizer(files->tokenizer_json, files->tokenizer_config_json);
  ASSERT_TRUE(tokenizer.ok());
  KvAutoOptions options;
  options.block_size_tokens = 16;
  options.num_texts = 2;
  options.text_tokens = 96;
  const EvalModel parts{model->get(), backend->get(), tokenizer->get()};
  const auto table = measure_kv_formats(parts, options);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_GT(table->num_tokens, 60);
  ASSERT_NE(table->find("fp16"), nullptr);
  ASSERT_NE(table->find("int8"), nullptr);
  EXPECT_EQ(table->find("fp16")->level, KvFidelity::exact);
  EXPECT_LT(table->find("int8")->sequence_bytes, table->find("fp16")->sequence_bytes);
  EXPECT_EQ(table->choose(KvFidelity::exact).name, "fp16");
  const auto again = measure_kv_formats(parts, options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->find("int8")->figures.mean_kl, table->find("int8")->figures.mean_kl);
}

}  // namespace
}  // namespace tidemill
