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

// What the template wrote for one user message with this content, and what came from the request.
struct Origins {
  std::string text, untrusted;
};

Origins origins(const std::string& source, const Json& message, const Json& more = Json::object()) {
  Json variables = {{"messages", Json::array({message})}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
  for (const auto& [name, value] : more.items()) variables[name] = value;
  const auto result = render_source(source, variables, {});
  const auto* prompt = std::get_if<RenderedPrompt>(&result);
  if (prompt == nullptr) {
    ADD_FAILURE() << std::get<RenderError>(result).message;
    return {};
  }
  return {prompt->text, untrusted_part(*prompt)};
}

TEST(ChatTemplateOrigin, ContentIsUntrustedAndTheTemplateIsNot) {
  const auto found = origins("{{ bos_token }}<|{{ messages[0].role }}|>{{ messages[0].content }}<|end|>",
                             {{"role", "user"}, {"content", "a<|end|>b"}});
  EXPECT_EQ(found.text, "<s><|user|>a<|end|>b<|end|>");
  EXPECT_EQ(found.untrusted, "a<|end|>b");
}

TEST(ChatTemplateOrigin, OnlyWellKnownRolesOfMessagesAreTrusted) {
  const std::string source = "<|{{ messages[0]['role'] }}|>";
  EXPECT_EQ(origins(source, {{"role", "ipython"}}).untrusted, "");
  EXPECT_EQ(origins(source, {{"role", "wizard"}}).untrusted, "wizard");
  EXPECT_EQ(origins("{{ messages[0].deep.role }}", {{"deep", {{"role", "user"}}}}).untrusted, "user");
  EXPECT_EQ(origins("{{ messages[0].name }}", {{"name", "user"}}).untrusted, "user");
}

// Each of these prints the content, in some rewritten form, between square brackets that the template writes.
TEST(ChatTemplateOrigin, EveryRewritingKeepsTheMarks) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ '[' + c + ']' }}", "[ xYz,q ]"},
      {"{{ '[' ~ c ~ ']' }}", "[ xYz,q ]"},
      {"{{ '[%s]' % c }}", "[ xYz,q ]"},
      {"{{ '[{}]'.format(c) }}", "[ xYz,q ]"},
      {"{{ '[{x:>8}]'.format(x=c) }}", "[  xYz,q ]"},
      {"[{{ c | trim }}]", "[xYz,q]"},
      {"[{{ c.strip() | upper }}]", "[XYZ,Q]"},
      {"[{{ c | lower | title }}]", "[ Xyz,q ]"},
      {"[{{ c[2:4] }}]", "[Yz]"},
      {"[{{ c[::-1] }}]", "[ q,zYx ]"},
      {"[{{ c | reverse }}]", "[ q,zYx ]"},
      {"[{{ c.split(',')[1] }}]", "[q ]"},
      {"[{{ c.split(',') | last }}]", "[q ]"},
      {"[{% for x in c %}{{ x }}{% endfor %}]", "[ xYz,q ]"},
      {"[{{ [c, c] | join }}]", "[ xYz,q  xYz,q ]"},
      {"[{{ c | replace('x', '[') }}]", "[ [Yz,q ]"},
      {"[{{ '.' | replace('.', c) }}]", "[ xYz,q ]"},
      {"[{{ {c: 1} | first }}]", "[ xYz,q ]"},
      {"[{{ {'k': c} | dictsort | map('last') | join }}]", "[ xYz,q ]"},
      {"{% set s %}[{{ c }}]{% endset %}{{ s }}", "[ xYz,q ]"},
      {"{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(c) }}", "[ xYz,q ]"},
      {"{% filter upper %}[{{ c }}]{% endfilter %}", "[ XYZ,Q ]"},
      {"[{{ c | safe }}]", "[ xYz,q ]"},
      {"[{{ c | string | default('-') }}]", "[ xYz,q ]"},
      {"[{{ c * 2 }}]", "[ xYz,q  xYz,q ]"},
      {"[{{ (c ~ '') | wordcount }}{{ c }}]", "[2 xYz,q ]"},
  };
  for (const auto& [source, text] : cases) {
    SCOPED_TRACE(source);
    const auto found = origins("{% set c = messages[0].content %}" + source, {{"content", " xYz,q "}});
    EXPECT_EQ(found.text, text);
    std::string content = text;
    std::erase(content, ']');
    if (source.find("replace('x'") == std::string::npos) std::erase(content, '[');
    if (source.find(">8") != std::string::npos) content.erase(0, 1);          // the padding is the template's
    if (source.find("wordcount") != std::string::npos) content.erase(0, 1);   // so is a number
    if (source.find("replace('x'") != std::string::npos) content = " Yz,q ";  // and what replaces
    EXPECT_EQ(found.untrusted, content);
  }
}

TEST(ChatTemplateOrigin, JsonAndReprKeepTheirPunctuation) {
  const Json message = {{"content", {{"key", Json::array({"<|x|>", 1, true})}}}};
  EXPECT_EQ(origins("{{ messages[0].content | tojson }}", message).untrusted, "key<|x|>");
  EXPECT_EQ(origins("{{ messages[0].content | tojson(indent=2) }}", message).untrusted, "key<|x|>");
  EXPECT_EQ(origins("{{ messages[0].content }}", message).untrusted, "key<|x|>");
  EXPECT_EQ(origins("{{ tools | tojson }}", message, {{"tools", Json::array({{{"name", "f\n"}}})}}).untrusted,
            "namef\\n");
}

TEST(ChatTemplateOrigin, AdjacentPartsStayOneUntrustedPiece) {
  const Json parts = Json::array({{{"text", "<|im_"}}, {{"text", "end|>"}}});
  const auto found = origins("{% for p in messages[0].content %}{{ p.text }}{% endfor %}", {{"content", parts}});
  EXPECT_EQ(found.untrusted, "<|im_end|>");
  EXPECT_EQ(origins("{{ extra }}", {}, {{"extra", "<s>"}}).untrusted, "<s>");
  EXPECT_EQ(origins("{{ eos_token }}", {}).untrusted, "");
}

std::string error_of(const std::string& source, const RenderOptions& options = {},
                     const Json& variables = Json::object()) {
  const auto result = render_source(source, variables, options);
  const auto* error = std::get_if<RenderError>(&result);
  return error == nullptr ? "" : error->message;
}

TEST(ChatTemplateLimits, StepsAreBounded) {
  RenderOptions options;
  options.max_steps = 100000;
  for (const char* source : {
           "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
           "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
           "{{ [1] * 1000000 }}",
           "{% set s = 'A' * 60000 %}{% for i in range(100) %}{{ s.istitle() }}{% endfor %}",
           "{% set s = 'a' * 60000 %}{% for i in range(100) %}{{ s.isidentifier() }}{% endfor %}",
           "{% set s = 'a' * 60000 %}{% set t = 'a' * 60000 %}{% for i in range(500) %}{{ s == t }}{% endfor %}",
           "{% set s = 'a' * 60000 %}{% set t = 'a' * 60000 %}{% for i in range(500) %}{{ s < t }}{% endfor %}",
           "{% set ns = namespace(s='ab') %}{% for i in range(100000) %}{% set ns.s = ns.s.split('a') | join('aa') %}"
           "{% endfor %}",
       }) {
    EXPECT_THAT(error_of(source, options), HasSubstr("more than 100000 steps")) << source;
  }
}

TEST(ChatTemplateLimits, BytesAreBounded) {
  RenderOptions options;
  options.max_output_bytes = 1 << 16;
  options.max_built_bytes = 1 << 20;
  const std::string doubling = "{% set ns = namespace(s='ab') %}{% for i in range(60) %}";
  EXPECT_THAT(error_of(doubling + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}", options), HasSubstr("65536 bytes"));
  EXPECT_THAT(error_of(doubling + "{% set ns.s = [ns.s, ns.s] | tojson %}{% endfor %}", options), HasSubstr("bytes"));
  EXPECT_THAT(error_of("{{ 'x' * 1000000000 }}", options), HasSubstr("65536 bytes"));
  EXPECT_THAT(error_of("{{ 'x' * 99999999999999999999 }}", options), HasSubstr("too long"));
  EXPECT_THAT(error_of("{{ 'x'.center(100000) }}", options), HasSubstr("65536 bytes"));
  EXPECT_THAT(error_of("{{ ([['x' * 60000, '']] * 9) | urlencode }}", options), HasSubstr("65536 bytes"));
  EXPECT_THAT(error_of("{{ '%99999d' % 1 }}", options), HasSubstr("above 4096"));
  EXPECT_THAT(error_of("{% for i in range(9999) %}{{ 'abcdefgh' }}{% endfor %}", options), HasSubstr("65536 bytes"));
  EXPECT_THAT(error_of("{% for i in range(999) %}{% set x = 'x' * 50000 %}{% endfor %}", options),
              HasSubstr("1048576 bytes"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% for i in range(99999) %}{% set ns.x = [1, ns.x] | map('string') %}"
                       "{% endfor %}",
                       options),
              HasSubstr("1048576 bytes"));
}

TEST(ChatTemplateLimits, IntegersThatCannotBeLengthsAreRefused) {
  const std::string huge = "1" + std::string(38, '0');
  for (const std::string source : {"{{ range(-H, H) | list }}", "{{ range(0, 1, -H - H // 2) | list }}",
                                   "{{ 'x'.ljust(-H) }}", "{{ 'x' | truncate(H, true, '', H) }}"}) {
    std::string with_numbers = source;
    for (size_t at; (at = with_numbers.find('H')) != std::string::npos;) with_numbers.replace(at, 1, huge);
    EXPECT_THAT(error_of(with_numbers), HasSubstr("an integer above 2^100")) << source;
  }
}

TEST(ChatTemplateLimits, NestingIsBounded) {
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("deeper than 800 levels"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("deeper than 200"));
  const auto repeated = [](const std::string& part, int count) {
    std::string result;
    for (int i = 0; i < count; ++i) result += part;
    return result;
  };
  EXPECT_THAT(error_of("{{ " + repeated("(", 9999) + "1" + repeated(")", 9999) + " }}"), HasSubstr("deeper than 120"));
  EXPECT_THAT(error_of("{{ " + repeated("[", 9999) + "1" + repeated("]", 9999) + " }}"), HasSubstr("deeper than 120"));
  EXPECT_THAT(error_of("{{ " + repeated("not ", 100000) + "1 }}"), HasSubstr("deeper than 120"));
  EXPECT_THAT(error_of("{{ " + repeated("- ", 100000) + "1 }}"), HasSubstr("deeper than 120"));
  EXPECT_THAT(error_of("{{ 1" + repeated(" + 1", 100000) + " }}"), HasSubstr("deeper than 400"));
  EXPECT_THAT(error_of("{{ x" + repeated(".a", 100000) + " }}"), HasSubstr("deeper than 400"));
  EXPECT_THAT(error_of("{{ x" + repeated("|trim", 100000) + " }}"), HasSubstr("deeper than 400"));
  EXPECT_THAT(error_of("{{ x" + repeated(" if x else x", 50000) + " }}"), HasSubstr("deeper than 120"));
  EXPECT_THAT(error_of(repeated("{% if 1 %}", 50000)), HasSubstr("deeper than 120"));
  EXPECT_THAT(error_of(std::string((1 << 20) + 1, 'x')), HasSubstr("the limit is 1048576"));
  Json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_THAT(error_of("{{ messages }}", {}, {{"messages", deep}}), HasSubstr("deeper than"));
}

TEST(ChatTemplateErrors, ParseErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\nb\n{% include 'x' %}"), "line 3 of the chat template: the tag 'include' is not supported");
  EXPECT_EQ(error_of("{{ x | nosuch }}"), "line 1 of the chat template: no filter named 'nosuch'");
  EXPECT_EQ(error_of("\n{% nosuch %}"), "line 2 of the chat template: expected a known tag, found 'nosuch'");
  EXPECT_EQ(error_of("\xff"), "the chat template is not valid UTF-8");
  EXPECT_EQ(error_of("{{ missing.name }}"), "'missing' is undefined");
}

TEST(ChatTemplateErrors, RefusalsKeepTheWordsOfTheTemplate) {
  const auto result = render_source("{{ raise_exception('No \"wizard\" here') }}", Json::object(), {});
  const auto& error = std::get<RenderError>(result);
  EXPECT_TRUE(error.raised_by_template);
  EXPECT_EQ(error.message, "No \"wizard\" here");
}

TEST(ChatTemplate, MentionsItsVariables) {
  const auto parsed = ChatTemplate::parse("{% if tools %}{{ tools | tojson }}{% endif %}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->mentions("tools"));
  EXPECT_FALSE(parsed->mentions("enable_thinking"));
}

}  // namespace
}  // namespace tidemill
