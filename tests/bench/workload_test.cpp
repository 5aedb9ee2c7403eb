#include "bench/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/utf8.h"
#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr WorkloadKind all_kinds[] = {WorkloadKind::mixed, WorkloadKind::chat, WorkloadKind::longdoc,
                                      WorkloadKind::shared};

TEST(MadeWorkloads, FollowTheSeed) {
  const PromptText text = PromptText::invented(1);
  for (const WorkloadKind kind : all_kinds) {
    const auto prompts = [&](uint64_t seed) {
      std::vector<std::string> all;
      for (const BenchRequest& request : make_workload(kind, 16, seed, text)) all.push_back(request.prompt);
      return all;
    };
    EXPECT_EQ(prompts(1), prompts(1));
    EXPECT_NE(prompts(1), prompts(2));
  }
}

TEST(MadeWorkloads, AreValidTextWithinTheirLengths) {
  const PromptText text = PromptText::invented(1);
  for (const WorkloadKind kind : all_kinds) {
    for (const BenchRequest& request : make_workload(kind, 200, 3, text)) {
      EXPECT_TRUE(is_valid_utf8(request.prompt));
      EXPECT_GE(request.max_tokens, 8);
      EXPECT_LE(request.max_tokens, 256);
      EXPECT_FALSE(request.prompt.empty());
    }
  }
}

TEST(MadeWorkloads, ResembleTheirNames) {
  const PromptText text = PromptText::invented(1);
  const std::vector<BenchRequest> shared = make_workload(WorkloadKind::shared, 8, 1, text);
  EXPECT_EQ(shared[0].prompt.substr(0, 4000), shared[7].prompt.substr(0, 4000));
  EXPECT_NE(shared[0].prompt, shared[7].prompt);
  const std::vector<BenchRequest> longdoc = make_workload(WorkloadKind::longdoc, 64, 1, text);
  EXPECT_EQ(std::ranges::count(longdoc, "long", &BenchRequest::class_name), 8);
  EXPECT_EQ(longdoc[7].prompt.size(), 24000u);
  const std::vector<BenchRequest> mixed = make_workload(WorkloadKind::mixed, 1000, 1, text);
  const auto [shortest, longest] =
      std::ranges::minmax(mixed, {}, [](const BenchRequest& request) { return request.prompt.size(); });
  EXPECT_GT(longest.prompt.size(), 20 * shortest.prompt.size());
}

TEST(PromptText, CutsBetweenCharacters) {
  const TemporaryFolder folder;
  std::string book;
  while (book.size() < 3000) book += "wörter über Öl – und “mehr” davon ";
  const auto text = PromptText::from_file(folder.write("book.txt", book));
  ASSERT_TRUE(text.ok());
  RandomSource random(1);
  for (int64_t length = 1; length < 200; ++length) {
    const std::string piece = text->cut(random, length);
    EXPECT_TRUE(is_valid_utf8(piece)) << piece;
    EXPECT_FALSE(piece.empty());
    EXPECT_LE(piece.size(), static_cast<size_t>(length));
  }
  EXPECT_GE(text->cut(random, 10000).size(), 9997u);
}

TEST(PromptText, RefusesFilesThatAreNoText) {
  const TemporaryFolder folder;
  EXPECT_FALSE(PromptText::from_file(folder.path() / "absent.txt").ok());
  EXPECT_THAT(PromptText::from_file(folder.write("short", "abc")).error().message, HasSubstr("3 bytes"));
  EXPECT_THAT(PromptText::from_file(folder.write("bytes", std::string(2000, '\xff'))).error().message,
              HasSubstr("not UTF-8"));
}

TEST(WorkloadFile, IsReadUpToTheLimit) {
  const TemporaryFolder folder;
  const auto path = folder.write("w.jsonl",
                                 "\xEF\xBB\xBF{\"prompt\": \"a\", \"max_tokens\": 3, \"class\": \"x\"}\r\n\n"
                                 "{\"prompt\": \"b\\u00e9\", \"max_tokens\": 4}\n"
                                 "{\"prompt\": \"c\", \"max_tokens\": 5}");
  const auto two = read_workload(path, 2);
  ASSERT_TRUE(two.ok()) << two.error().message;
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ((*two)[0].class_name, "x");
  EXPECT_EQ((*two)[1].prompt, "b\xC3\xA9");
  EXPECT_EQ((*two)[1].class_name, "all");
  EXPECT_EQ(read_workload(path, 100)->size(), 3u);
}

TEST(WorkloadFile, NamesTheLineAtFault) {
  const TemporaryFolder folder;
  const auto problem = [&](const std::string& line) {
    const auto read = read_workload(folder.write("w.jsonl", "{\"prompt\": \"a\", \"max_tokens\": 1}\n" + line), 10);
    return read.ok() ? "" : read.error().message;
  };
  const std::string where = "w.jsonl line 2: ";
  for (const char* line :
       {"nonsense", "[]", "{}", "{\"prompt\": 1, \"max_tokens\": 1}", "{\"prompt\": \"a\"}",
        "{\"prompt\": \"\", \"max_tokens\": 1}", "{\"prompt\": \"a\", \"max_tokens\": 0}",
        "{\"prompt\": \"a\", \"max_tokens\": -1}", "{\"prompt\": \"a\", \"max_tokens\": 1e9}",
        "{\"prompt\": \"a\", \"max_tokens\": 99999999999999999999}", "{\"prompt\": \"a\", \"max_tokens\": \"1\"}",
        "{\"prompt\": \"a\", \"max_tokens\": 1, \"class\": {}}", "{\"prompt\": \"\xff\", \"max_tokens\": 1}",
        "[[[[[[[[[[[[[[[[", "{\"prompt\": \"a\", \"max_tokens\": 1} trailing"}) {
    EXPECT_THAT(problem(line), ::testing::StartsWith(where)) << line;
  }
  EXPECT_THAT(read_workload(folder.write("empty", "\n \n"), 10).error().message, HasSubstr("no lines"));
  EXPECT_FALSE(read_workload(folder.path() / "absent", 10).ok());
}

TEST(WorkloadFile, ReadsThePublishedOnes) {
  for (const char* name : {"mixed", "longdoc", "shared"}) {
    TM_NEEDS_DATA(std::string("workloads/") + name + ".jsonl");
    const auto read = read_workload(testing::data_path(std::string("workloads/") + name + ".jsonl"), 1000);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->size(), 64u);
  }
}

TEST(PromptFile, HasAPromptALine) {
  const TemporaryFolder folder;
  const auto read = read_prompts(folder.write("p.txt", "one\r\n\ntwo \xC3\xA9\n"), 10, 17);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].prompt, "one");
  EXPECT_EQ((*read)[1].max_tokens, 17);
  EXPECT_THAT(read_prompts(folder.write("q.txt", "fine\nbro\xffken\n"), 10, 1).error().message,
              HasSubstr("q.txt line 2: is not UTF-8"));
}

}  // namespace
}  // namespace tidemill
