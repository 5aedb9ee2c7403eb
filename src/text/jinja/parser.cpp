#include "text/jinja/parser.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/unicode.h"

namespace tidemill::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, Template& target) : ExpressionParser(std::move(tokens), target) {}

  void run() {
    template_.body = parse_body({});
    if (!unknown_names_.empty()) throw Fault{unknown_names_.front()};
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Statements up to one of the tags in `ends`, whose name becomes the current token; to the end of the source if
  // empty.
  Body parse_body(Names ends);
  // As parse_body, and consumes the closing tag as well.
  Body parse_block(std::string_view end);
  bool at_any(Names names) const;
  void finish_tag() { expect_kind(Token::Kind::tag_end, "'%}'"); }

  void parse_output(Body& body);
  Statement parse_tag();
  Statement parse_if(int line);
  Statement parse_for(int line);
  Statement parse_set(int line);
  Statement parse_macro(int line);
  Statement parse_call_block(int line);
  Statement parse_filter_block(int line);
  Statement parse_with(int line);
  Statement parse_loop_control(const std::string& tag, int line);
  Target parse_target(bool with_namespace, std::string_view end_name);
  Target parse_one_target(bool with_namespace);
  void parse_parameters(MacroDefinition& macro);
  void parse_macro_body(MacroDefinition& macro, std::string_view end);

  int num_open_loops_ = 0;
};

bool Parser::at_any(Names names) const {
  return std::any_of(names.begin(), names.end(), [this](std::string_view name) { return at_name(name); });
}

Body Parser::parse_body(Names ends) {
  const Nesting nesting(*this);
  Body body;
  while (true) {
    const Token& token = current();
    switch (token.kind) {
      case Token::Kind::end:
        if (ends.size() != 0) fail_here(fmt::format("expected the tag '{}'", *(ends.end() - 1)));
        return body;
      case Token::Kind::data:
        body.push_back({RawText{Text(token.text, true)}, token.line});
        next();
        break;
      case Token::Kind::output_begin:
        parse_output(body);
        break;
      case Token::Kind::tag_begin:
        next();
        if (at_any(ends)) return body;
        body.push_back(parse_tag());
        break;
      default:
        fail_here("expected text or a tag");
    }
  }
}

Body Parser::parse_block(std::string_view end) {
  finish_tag();
  Body body = parse_body({end});
  next();
  finish_tag();
  return body;
}

void Parser::parse_output(Body& body) {
  const int line = next().line;
  ExpressionPtr value = parse_tuple();
  expect_kind(Token::Kind::output_end, "'}}'");
  body.push_back({Output{std::move(value)}, line});
}

Statement Parser::parse_tag() {
  const int line = current().line;
  if (current().kind != Token::Kind::name) fail_here("expected the name of a tag");
  const std::string tag = current().text;
  static constexpr std::array<std::string_view, 6> refused = {"include", "import", "from",
                                                              "extends", "block",  "autoescape"};
  if (std::find(refused.begin(), refused.end(), tag) != refused.end()) {
    fail("line {} of the chat template: the tag '{}' is not supported", line, tag);
  }
  if (tag != "if" && tag != "for" && tag != "set" && tag != "macro" && tag != "call" && tag != "filter" &&
      tag != "with" && tag != "generation" && tag != "break" && tag != "continue") {
    fail_here("expected a known tag");
  }
  next();
  if (tag == "if") return parse_if(line);
  if (tag == "for") return parse_for(line);
  if (tag == "set") return parse_set(line);
  if (tag == "macro") return parse_macro(line);
  if (tag == "call") return parse_call_block(line);
  if (tag == "filter") return parse_filter_block(line);
  if (tag == "with") return parse_with(line);
  if (tag == "generation") return {Generation{parse_block("endgeneration")}, line};
  return parse_loop_control(tag, line);
}

Statement Parser::parse_if(int line) {
  If statement;
  ++num_open_branches_;
  while (true) {
    ExpressionPtr condition = parse_tuple(false);
    finish_tag();
    statement.branches.emplace_back(std::move(condition), parse_body({"elif", "else", "endif"}));
    if (!skip_name("elif")) break;
  }
  if (skip_name("else")) {
    finish_tag();
    statement.otherwise = parse_body({"endif"});
  }
  --num_open_branches_;
  expect_name("endif");
  finish_tag();
  return {std::move(statement), line};
}

Statement Parser::parse_for(int line) {
  For statement;
  statement.target = parse_target(false, "in");
  expect_name("in");
  statement.iterable = parse_tuple(false, "recursive");
  if (skip_name("if")) statement.condition = parse_expression();
  statement.recursive = skip_name("recursive");
  finish_tag();
  ++num_open_loops_;
  statement.body = parse_body({"else", "endfor"});
  --num_open_loops_;
  if (skip_name("else")) {
    finish_tag();
    statement.otherwise = parse_body({"endfor"});
  }
  expect_name("endfor");
  finish_tag();
  return {std::move(statement), line};
}

Statement Parser::parse_loop_control(const std::string& tag, int line) {
  if (num_open_loops_ == 0) fail("line {} of the chat template: '{}' outside of a loop", line, tag);
  finish_tag();
  if (tag == "break") return {Break{}, line};
  return {Continue{}, line};
}

Target Parser::parse_one_target(bool with_namespace) {
  const Nesting nesting(*this);
  Target target;
  if (skip("(")) {
    target = parse_target(with_namespace, {});
    expect(")");
    return target;
  }
  const std::string name = take_name();
  static constexpr std::array<std::string_view, 6> constants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(constants.begin(), constants.end(), name) != constants.end()) {
    fail("line {} of the chat template: cannot assign to '{}'", current().line, name);
  }
  target.symbol = reference(name);
  if (with_namespace && skip(".")) target.namespace_attribute = take_name();
  return target;
}

Target Parser::parse_target(bool with_namespace, std::string_view end_name) {
  Target first = parse_one_target(with_namespace);
  if (!at(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.elements.push_back(std::move(first));
  while (skip(",") && !at("=") && !at(")") && !(!end_name.empty() && at_name(end_name))) {
    tuple.elements.push_back(parse_one_target(with_namespace));
  }
  return tuple;
}

Statement Parser::parse_set(int line) {
  Target target = parse_target(true, {});
  if (skip("=")) {
    ExpressionPtr value = parse_tuple();
    finish_tag();
    return {Set{std::move(target), std::move(value)}, line};
  }
  ExpressionPtr filter;
  while (skip("|")) filter = parse_filter(std::move(filter));
  return {SetBlock{std::move(target), std::move(filter), parse_block("endset")}, line};
}

void Parser::parse_parameters(MacroDefinition& macro) {
  expect("(");
  while (!at(")")) {
    if (!macro.parameters.empty()) expect(",");
    if (at(")")) break;
    Parameter parameter;
    parameter.name = take_name();
    parameter.symbol = template_.intern(parameter.name);
    if (skip("=")) {
      parameter.fallback = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
      fail_here("expected a default, as the argument before has one");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect(")");
}

void Parser::parse_macro_body(MacroDefinition& macro, std::string_view end) {
  open_macros_.push_back(&macro);
  const int num_open_loops = std::exchange(num_open_loops_, 0);
  macro.body = parse_block(end);
  num_open_loops_ = num_open_loops;
  open_macros_.pop_back();
}

Statement Parser::parse_macro(int line) {
  Macro statement;
  statement.definition = std::make_unique<MacroDefinition>();
  statement.definition->name = take_name();
  statement.symbol = template_.intern(statement.definition->name);
  parse_parameters(*statement.definition);
  parse_macro_body(*statement.definition, "endmacro");
  return {std::move(statement), line};
}

Statement Parser::parse_call_block(int line) {
  CallBlock statement;
  statement.caller = std::make_unique<MacroDefinition>();
  statement.caller->name = "caller";
  if (at("(")) parse_parameters(*statement.caller);
  statement.call = parse_expression();
  if (!std::holds_alternative<Call>(statement.call->node)) fail_here("expected a call of a macro before");
  parse_macro_body(*statement.caller, "endcall");
  return {std::move(statement), line};
}

Statement Parser::parse_filter_block(int line) {
  FilterBlock statement;
  do statement.filter = parse_filter(std::move(statement.filter));
  while (skip("|"));
  statement.body = parse_block("endfilter");
  return {std::move(statement), line};
}

Statement Parser::parse_with(int line) {
  With statement;
  while (current().kind != Token::Kind::tag_end) {
    if (!statement.bindings.empty()) expect(",");
    Target target = parse_one_target(false);
    expect("=");
    statement.bindings.emplace_back(std::move(target), parse_expression());
  }
  statement.body = parse_block("endwith");
  return {std::move(statement), line};
}

}  // namespace

std::shared_ptr<const Template> parse_template(std::string_view source) {
  if (source.size() > max_source_bytes) {
    fail("the chat template has {} bytes, the limit is {}", source.size(), max_source_bytes);
  }
  if (!is_valid_utf8(source)) fail("the chat template is not valid UTF-8");
  auto made = std::make_shared<Template>();
  made->well_known = {made->intern("loop"), made->intern("caller"), made->intern("varargs"), made->intern("kwargs")};
  Parser(tokenize(source), *made).run();
  return made;
}

}  // namespace tidemill::jinja
