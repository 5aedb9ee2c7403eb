#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "test_data.h"

namespace tidemill {
namespace {

using Json = nlohmann::ordered_json;
using testing::data_path;
using testing::golden_path;
using ::testing::HasSubstr;
using testing::read_file;

// The vectors were rendered with the clock stopped at 2026-07-04 12:00:00.
RenderOptions options_of_vectors() {
  RenderOptions options;
  options.now = [] {
    std::tm time{};
    time.tm_year = 126;
    time.tm_mon = 6;
    time.tm_mday = 4;
    time.tm_hour = 12;
    time.tm_wday = 6;
    time.tm_yday = 184;
    time.tm_isdst = -1;
    return time;
  };
  return options;
}

std::vector<Json> read_json_lines(const std::filesystem::path& path) {
  std::istringstream in(read_file(path));
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) rows.push_back(Json::parse(line));
  }
  return rows;
}

RenderResult render_source(const std::string& source, const Json& variables, const RenderOptions& options) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed) return RenderError{parsed.error().message, false};
  return parsed->render(variables, options);
}

// The pieces must partition the text; the untrusted ones joined are returned.
std::string untrusted_part(const RenderedPrompt& prompt) {
  std::string result;
  size_t end = 0;
  for (size_t i = 0; i < prompt.pieces.size(); ++i) {
    const PromptPiece& piece = prompt.pieces[i];
    EXPECT_EQ(piece.begin, end);
    EXPECT_LT(piece.begin, piece.end);
    EXPECT_TRUE(i == 0 || piece.trusted != prompt.pieces[i - 1].trusted);
    if (!piece.trusted) result += prompt.text.substr(piece.begin, piece.end - piece.begin);
    end = piece.end;
  }
  EXPECT_EQ(end, prompt.text.size());
  return result;
}

// `expected` null means that an error is expected; `refusal` is then what the template itself said, if it did.
void expect_rendering(const RenderResult& result, const Json& row, const std::string& label) {
  SCOPED_TRACE(label);
  const auto* prompt = std::get_if<RenderedPrompt>(&result);
  const auto* refusal = std::get_if<RenderError>(&result);
  if (row.contains("expected")) {
    ASSERT_NE(prompt, nullptr) << refusal->message;
    EXPECT_EQ(prompt->text, row["expected"].get<std::string>());
    untrusted_part(*prompt);
    return;
  }
  ASSERT_NE(refusal, nullptr) << prompt->text;
  const std::string expected = row["error"].get<std::string>();
  const std::string template_error = "TemplateError: ";
  if (expected.starts_with(template_error)) {
    EXPECT_TRUE(refusal->raised_by_template);
    EXPECT_EQ(refusal->message, expected.substr(template_error.size()));
  } else {
    EXPECT_FALSE(refusal->raised_by_template) << refusal->message;
  }
}

TEST(ChatTemplate, RendersOwnVectorsAsJinja2Does) {
  const auto rows = read_json_lines(golden_path("chat-templates/vectors.jsonl"));
  ASSERT_GT(rows.size(), 100u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto result = render_source(rows[i]["template"], rows[i]["input"], options_of_vectors());
    expect_rendering(result, rows[i], rows[i]["name"]);
  }
}

TEST(ChatTemplate, RendersPublishedTemplatesAsJinja2Does) {
  TM_NEEDS_DATA("chat-templates-llama-cpp/vectors.jsonl");
  const auto rows = read_json_lines(data_path("chat-templates-llama-cpp/vectors.jsonl"));
  ASSERT_EQ(rows.size(), 470u);
  for (const Json& row : rows) {
    const std::string name = row["template"];
    const std::string source = read_file(data_path("chat-templates-llama-cpp/" + name));
    expect_rendering(render_source(source, row["input"], options_of_vectors()), row,
                     name + " " + row["conversation"].get<std::string>());
  }
}

TEST(ChatTemplate, RendersMoreTemplatesAsJinja2Does) {
  TM_NEEDS_DATA("chat-templates-ollama/jinja_render_vectors.jsonl");
  const auto rows = read_json_lines(data_path("chat-templates-ollama/jinja_render_vectors.jsonl"));
  ASSERT_EQ(rows.size(), 144u);
  for (Json row : rows) {
    Json variables = Json::object();
    for (const char* name : {"messages", "bos_token", "eos_token", "add_generation_prompt"}) {
      variables[name] = row[name];
    }
    // Every error of this file was raised by its template.
    if (row.contains("error")) row["error"] = "TemplateError: " + row["error"].get<std::string>();
    expect_rendering(render_source(row["template"], variables, options_of_vectors()), row,
                     row["family"].get<std::string>() + " " + row["conversation"].get<std::string>());
  }
}

}  // namespace
}  // namespace tidemill
