#include "bench/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_data.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr const char* azure_head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

TEST(AzureTrace, GivesTimesFromTheFirstRow) {
  const TemporaryFolder folder;
  const auto rows = read_trace(folder.write("a.csv", std::string(azure_head) + "2023-12-31 23:59:59.5000000,374,44\r\n"
                                                                               "2024-01-01 00:00:01.7500000,396,0\r\n"),
                               10);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].arrival_s, 0);
  EXPECT_NEAR((*rows)[1].arrival_s, 2.25, 1e-6);
  EXPECT_EQ((*rows)[0].prompt_tokens, 374);
  EXPECT_EQ((*rows)[1].new_tokens, 1);  // nobody asks for nothing
}

TEST(MooncakeTrace, GivesTimesLengthsAndPrefixes) {
  const TemporaryFolder folder;
  const auto rows = read_trace(
      folder.write("m.jsonl",
                   "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 7]}\n"
                   "{\"timestamp\": 1000, \"input_length\": 700, \"output_length\": 6, \"hash_ids\": [0, 8]}\n"),
      10);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ((*rows)[0].prompt_tokens, 700);  // in the order of time
  EXPECT_EQ((*rows)[1].arrival_s, 2);
  EXPECT_EQ((*rows)[1].prefix_ids, (std::vector<int64_t>{0, 7}));

  const PromptText text = PromptText::invented(1);
  const auto requests = trace_requests(*rows, {}, 1, text);
  ASSERT_TRUE(requests.ok());
  const std::string &first = (*requests)[0].prompt, &second = (*requests)[1].prompt;
  EXPECT_EQ(first.substr(0, 2048), second.substr(0, 2048));  // 512 tokens
  EXPECT_NE(first, second);
  EXPECT_NEAR(static_cast<double>(first.size()), 2800, 8);
}

TEST(TraceRequests, ScaleTimesAndLengths) {
  const std::vector<TraceRow> rows = {{0, 100, 10, {}}, {4, 1000, 1, {}}};
  const auto requests = trace_requests(rows, {.rate = 2, .length = 0.5}, 1, PromptText::invented(1));
  ASSERT_TRUE(requests.ok());
  EXPECT_EQ((*requests)[1].arrival_s, 2);
  EXPECT_EQ((*requests)[0].max_tokens, 5);
  EXPECT_EQ((*requests)[1].max_tokens, 1);
  EXPECT_NEAR(static_cast<double>((*requests)[1].prompt.size()), 2000, 4);
  const std::vector<TraceRow> huge(100, {0, 1 << 24, 1, {}});
  EXPECT_THAT(trace_requests(huge, {}, 1, PromptText::invented(1)).error().message, HasSubstr("GB of text"));
}

TEST(Traces, NameTheLineAtFault) {
  const TemporaryFolder folder;
  const auto problem = [&](const std::string& text) {
    const auto rows = read_trace(folder.write("t", text), 10);
    return rows.ok() ? "" : rows.error().message;
  };
  for (const char* row :
       {"x", "2023-11-16 18:15:46.68,1", "2023-11-16 18:15:46.68,1,2,3", "2023-13-16 18:15:46,1,1",
        "2023-02-30 18:15:46,1,1", "2023-11-16 25:15:46,1,1", "2023-11-16 18:15:46.,1,1", "2023-11-16 18:15:46.-1,1,1",
        "2023-11-16T18:15:46,1,1", "2023-11-16 18:15:46,-1,1", "2023-11-16 18:15:46,1,", "2023-11-16 18:15:46,1e3,1",
        "2023-11-16 18:15:46,99999999999,1", "\xff\xfe,1,1"}) {
    EXPECT_THAT(problem(std::string(azure_head) + row), ::testing::StartsWith("t line 2: ")) << row;
  }
  const std::string good = "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}\n";
  for (const char* row : {"{", "{}", "{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1}",
                          "{\"timestamp\": 0, \"input_length\": -1, \"output_length\": 1}",
                          "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1e30}",
                          "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 3}",
                          "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [\"a\"]}"}) {
    EXPECT_THAT(problem(good + row), ::testing::StartsWith("t line 2: ")) << row;
  }
  EXPECT_THAT(problem("some,other,table\n1,2,3\n"), HasSubstr("is neither"));
  EXPECT_THAT(problem(azure_head), HasSubstr("no rows"));
}

TEST(Traces, ReadThePublishedOnes) {
  TM_NEEDS_DATA("traces-azure-llm-2023/AzureLLMInferenceTrace_conv.csv");
  TM_NEEDS_DATA("traces-mooncake-conversation/conversation_trace.jsonl");
  const auto azure = read_trace(testing::data_path("traces-azure-llm-2023/AzureLLMInferenceTrace_conv.csv"), 1'000'000);
  ASSERT_TRUE(azure.ok()) << azure.error().message;
  EXPECT_EQ(azure->size(), 19366u);
  EXPECT_NEAR(azure->back().arrival_s, 3500, 100);
  const auto mooncake = read_trace(testing::data_path("traces-mooncake-conversation/conversation_trace.jsonl"), 100);
  ASSERT_TRUE(mooncake.ok()) << mooncake.error().message;
  EXPECT_EQ(mooncake->size(), 100u);
  EXPECT_EQ(mooncake->front().prompt_tokens, 6758);
}

}  // namespace
}  // namespace tidemill
