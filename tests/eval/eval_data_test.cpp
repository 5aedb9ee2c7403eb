#include "eval/eval_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;

class EvalDataTest : public ::testing::Test {
 protected:
  Result<void> read(const std::string& name, const std::string& text, int64_t max_items = 0) {
    return read_eval_file(folder_.write(name, text), TextKind::factual, max_items, data_);
  }
  testing::TemporaryFolder folder_;
  EvalData data_;
};

TEST_F(EvalDataTest, ChoicesStandBehindTheQuestion) {
  ASSERT_TRUE(read("arc.jsonl", R"({"query":"Question: why?\n","choices":["because"," so"],"gold":1})").ok());
  ASSERT_EQ(data_.tasks.size(), 1u);
  const EvalItem& item = data_.tasks[0].items[0];
  EXPECT_EQ(item.gold, 1);
  EXPECT_EQ(item.options[0].context, "Question: why?\nAnswer:");
  EXPECT_EQ(item.options[0].continuation, " because");
  EXPECT_EQ(item.options[1].continuation, " so");
  EXPECT_TRUE(data_.files[0].is_task);
  EXPECT_EQ(data_.files[0].digest.sha256.size(), 64u);
}

TEST_F(EvalDataTest, ContinuationsFollowAfterABlankOrAnEqualsSign) {
  ASSERT_TRUE(read("a.jsonl",
                   "{\"context\":\"17*94=\",\"continuation\":\"1598\"}\n"
                   "{\"context\":\"I saw\",\"continuation\":\"signs\"}\n"
                   "{\"context\":\"How many?\",\"answer\":\"7\"}\n"
                   "{\"context_options\":[\"A\",\"B\"],\"continuation\":\"c\",\"gold\":0}")
                  .ok());
  const std::vector<EvalItem>& items = data_.tasks[0].items;
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0].options[0].continuation, "1598");
  EXPECT_EQ(items[1].options[0].continuation, " signs");
  EXPECT_EQ(items[2].options[0].context, "How many?\nAnswer:");
  EXPECT_EQ(items[3].options[1].context, "B");
}

TEST_F(EvalDataTest, HellaSwagHasSixLinesATask) {
  ASSERT_TRUE(read("h.txt", "ctx one\n2\na\nb\nc\nd\nctx two\n0\ne\nf\ng\nh\n").ok());
  ASSERT_EQ(data_.tasks.size(), 1u);
  ASSERT_EQ(data_.tasks[0].items.size(), 2u);
  EXPECT_EQ(data_.tasks[0].items[0].gold, 2);
  EXPECT_EQ(data_.tasks[0].items[1].options[3].continuation, " h");
}

TEST_F(EvalDataTest, AnythingElseIsAText) {
  ASSERT_TRUE(read("war.txt", "Well, Prince, so Genoa and Lucca\nare now just family estates.\n").ok());
  EXPECT_TRUE(data_.tasks.empty());
  ASSERT_EQ(data_.texts.size(), 1u);
  EXPECT_EQ(data_.texts[0].name, "war.txt");
}

TEST_F(EvalDataTest, AFewItemsStandForAll) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"context\":\"" + std::to_string(i) + "\",\"continuation\":\"x\"}\n";
  ASSERT_TRUE(read("many.jsonl", lines, 4).ok());
  ASSERT_EQ(data_.tasks[0].items.size(), 4u);
  EXPECT_EQ(data_.tasks[0].items[3].options[0].context, "75");
  EXPECT_EQ(data_.tasks[0].num_items_in_file, 100);
}

TEST_F(EvalDataTest, FaultsNameFileAndLine) {
  for (const char* line : {"{\"context\":\"a\"}", "[1]", "{\"query\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":2}",
                           "{\"query\":\"q\",\"choices\":[\"a\"],\"gold\":0}", "not json"}) {
    const Result<void> done = read("bad.jsonl", std::string("{\"context\":\"a\",\"continuation\":\"b\"}\n") + line);
    ASSERT_FALSE(done.ok()) << line;
    EXPECT_THAT(done.error().message, HasSubstr("bad.jsonl line 2"));
  }
  EXPECT_FALSE(read("empty.txt", "").ok());
  EXPECT_FALSE(read_eval_file(folder_.path() / "absent", TextKind::factual, 0, data_).ok());
}

}  // namespace
}  // namespace tidemill
