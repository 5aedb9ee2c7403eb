#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <optional>

#include "text/jinja/parser.h"

namespace tidemill::jinja {
namespace {

int height_of(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->height;
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the template";
    case Token::Kind::data:
      return "text";
    case Token::Kind::number:
      return "a number";
    case Token::Kind::string:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace

void ExpressionParser::fail_here(std::string_view what) const {
  fail("line {} of the chat template: {}, found {}", current().line, what, describe(current()));
}

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (parser.depth_ >= max_parse_depth) {
    fail("line {} of the chat template: blocks and brackets nest deeper than {}", parser.current().line,
         max_parse_depth);
  }
  ++parser.depth_;
}

bool ExpressionParser::skip(std::string_view punctuation) {
  if (!at(punctuation)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

void ExpressionParser::expect(std::string_view punctuation) {
  if (!skip(punctuation)) fail_here(fmt::format("expected '{}'", punctuation));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_here(fmt::format("expected '{}'", name));
}

void ExpressionParser::expect_kind(Token::Kind kind, std::string_view description) {
  if (current().kind != kind) fail_here(fmt::format("expected {}", description));
  next();
}

std::string ExpressionParser::take_name() {
  if (current().kind != Token::Kind::name) fail_here("expected a name");
  return next().text;
}

ExpressionPtr ExpressionParser::make_high(decltype(Expression::node) node, int line, int height_of_operands) {
  if (height_of_operands >= max_expression_height) {
    fail("line {} of the chat template: an expression nests or chains deeper than {}", line, max_expression_height);
  }
  return std::make_unique<Expression>(Expression{std::move(node), line, height_of_operands + 1});
}

template <typename Node>
ExpressionPtr ExpressionParser::make(Node node, int line, std::initializer_list<const Expression*> operands) {
  int height = 0;
  for (const Expression* operand : operands) height = std::max(height, operand == nullptr ? 0 : operand->height);
  return make_high(std::move(node), line, height);
}

Symbol ExpressionParser::reference(const std::string& name) {
  for (MacroDefinition* macro : open_macros_) {
    macro->mentions_varargs |= name == "varargs";
    macro->mentions_kwargs |= name == "kwargs";
    macro->mentions_caller |= name == "caller";
  }
  return template_.intern(name);
}

ExpressionPtr ExpressionParser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  if (!with_conditional) return parse_or();
  const size_t num_unknown = unknown_names_.size();
  ExpressionPtr value = parse_or();
  while (at_name("if")) {
    const int line = next().line;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    const int height = std::max({height_of(value), height_of(condition), height_of(otherwise)});
    value = make_high(Conditional{std::move(condition), std::move(value), std::move(otherwise)}, line, height);
    unknown_names_.resize(num_unknown);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (at_name("or")) {
    const int line = next().line;
    ExpressionPtr right = parse_and();
    const int height = std::max(height_of(left), height_of(right));
    left = make_high(Logical{false, std::move(left), std::move(right)}, line, height);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (at_name("and")) {
    const int line = next().line;
    ExpressionPtr right = parse_not();
    const int height = std::max(height_of(left), height_of(right));
    left = make_high(Logical{true, std::move(left), std::move(right)}, line, height);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  const int line = next().line;
  ExpressionPtr operand = parse_not();
  const int height = height_of(operand);
  return make_high(Unary{UnaryOperator::logical_not, std::move(operand)}, line, height);
}

ExpressionPtr ExpressionParser::parse_comparison() {
  static constexpr std::pair<std::string_view, Comparison> operators[] = {
      {"==", Comparison::equal},         {"!=", Comparison::not_equal}, {"<=", Comparison::less_equal},
      {">=", Comparison::greater_equal}, {"<", Comparison::less},       {">", Comparison::greater}};
  const int line = current().line;
  ExpressionPtr first = parse_sum();
  int height = height_of(first);
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  while (true) {
    std::optional<Comparison> found;
    for (const auto& [text, comparison] : operators) {
      if (at(text)) found = comparison;
    }
    if (at_name("in")) found = Comparison::in;
    if (at_name("not") && lookahead().kind == Token::Kind::name && lookahead().text == "in") {
      found = Comparison::not_in;
      next();
    }
    if (!found) break;
    next();
    rest.emplace_back(*found, parse_sum());
    height = std::max(height, height_of(rest.back().second));
  }
  if (rest.empty()) return first;
  return make_high(ComparisonChain{std::move(first), std::move(rest)}, line, height);
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  while (at("+") || at("-")) {
    const BinaryOperator op = at("+") ? BinaryOperator::add : BinaryOperator::subtract;
    const int line = next().line;
    ExpressionPtr right = parse_concatenation();
    const int height = std::max(height_of(left), height_of(right));
    left = make_high(Binary{op, std::move(left), std::move(right)}, line, height);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const int line = current().line;
  std::vector<ExpressionPtr> parts;
  parts.push_back(parse_product());
  int height = height_of(parts.back());
  while (skip("~")) {
    parts.push_back(parse_product());
    height = std::max(height, height_of(parts.back()));
  }
  if (parts.size() == 1) return std::move(parts.front());
  return make_high(Concatenation{std::move(parts)}, line, height);
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr left = parse_power();
  while (at("*") || at("/") || at("//") || at("%")) {
    const BinaryOperator op = at("*")    ? BinaryOperator::multiply
                              : at("/")  ? BinaryOperator::divide
                              : at("//") ? BinaryOperator::floor_divide
                                         : BinaryOperator::modulo;
    const int line = next().line;
    ExpressionPtr right = parse_power();
    const int height = std::max(height_of(left), height_of(right));
    left = make_high(Binary{op, std::move(left), std::move(right)}, line, height);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (at("**")) {
    const int line = next().line;
    ExpressionPtr right = parse_unary(true);
    const int height = std::max(height_of(left), height_of(right));
    left = make_high(Binary{BinaryOperator::power, std::move(left), std::move(right)}, line, height);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr value;
  if (at("-") || at("+")) {
    const Nesting nesting(*this);
    const UnaryOperator op = at("-") ? UnaryOperator::negate : UnaryOperator::plus;
    const int line = next().line;
    ExpressionPtr operand = parse_unary(false);
    const int height = height_of(operand);
    value = make_high(Unary{op, std::move(operand)}, line, height);
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case Token::Kind::name:
      return parse_name();
    case Token::Kind::string:
      return parse_string();
    case Token::Kind::number:
      next();
      return make(Literal{token.number}, token.line, {});
    default:
      break;
  }
  if (at("(")) return parse_parentheses();
  if (at("[")) return parse_list();
  if (at("{")) return parse_dict();
  fail_here("expected an expression");
}

ExpressionPtr ExpressionParser::parse_name() {
  const int line = current().line;
  const std::string name = take_name();
  if (name == "true" || name == "True") return make(Literal{Value::boolean(true)}, line, {});
  if (name == "false" || name == "False") return make(Literal{Value::boolean(false)}, line, {});
  if (name == "none" || name == "None") return make(Literal{Value()}, line, {});
  return make(NameReference{reference(name)}, line, {});
}

ExpressionPtr ExpressionParser::parse_string() {
  const int line = current().line;
  std::string joined;
  while (current().kind == Token::Kind::string) joined += next().text;
  return make(Literal{Value::string(Text(std::move(joined), true))}, line, {});
}

ExpressionPtr ExpressionParser::parse_parentheses() {
  const int line = current().line;
  expect("(");
  if (skip(")")) return make(ListLiteral{Sequence::Flavor::tuple, {}}, line, {});
  ExpressionPtr value = parse_tuple();
  expect(")");
  return value;
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return current().kind == Token::Kind::output_end || current().kind == Token::Kind::tag_end || at(")") ||
         (!end_name.empty() && at_name(end_name));
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end_name) {
  const int line = current().line;
  ExpressionPtr first = parse_expression(with_conditional);
  if (!at(",")) return first;
  int height = height_of(first);
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(first));
  while (skip(",") && !at_tuple_end(end_name)) {
    items.push_back(parse_expression(with_conditional));
    height = std::max(height, height_of(items.back()));
  }
  return make_high(ListLiteral{Sequence::Flavor::tuple, std::move(items)}, line, height);
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = current().line;
  expect("[");
  std::vector<ExpressionPtr> items;
  int height = 0;
  while (!at("]")) {
    if (!items.empty()) expect(",");
    if (at("]")) break;
    items.push_back(parse_expression());
    height = std::max(height, height_of(items.back()));
  }
  expect("]");
  return make_high(ListLiteral{Sequence::Flavor::list, std::move(items)}, line, height);
}

ExpressionPtr ExpressionParser::parse_dict() {
  const int line = current().line;
  expect("{");
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  int height = 0;
  while (!at("}")) {
    if (!entries.empty()) expect(",");
    if (at("}")) break;
    ExpressionPtr key = parse_expression();
    expect(":");
    ExpressionPtr value = parse_expression();
    height = std::max({height, height_of(key), height_of(value)});
    entries.emplace_back(std::move(key), std::move(value));
  }
  expect("}");
  return make_high(DictLiteral{std::move(entries)}, line, height);
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr operand) {
  while (true) {
    if (at(".")) {
      operand = parse_attribute(std::move(operand));
    } else if (at("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (at("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr operand) {
  while (true) {
    if (at("|")) {
      next();
      operand = parse_filter(std::move(operand));
    } else if (at_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (at("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr operand) {
  const int line = current().line;
  expect(".");
  const int height = height_of(operand);
  if (current().kind == Token::Kind::number && current().number.is_integral()) {
    ExpressionPtr index = make(Literal{next().number}, line, {});
    return make_high(Subscript{std::move(operand), std::move(index)}, line, height);
  }
  return make_high(Attribute{std::move(operand), take_name()}, line, height);
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr operand) {
  const int line = current().line;
  expect("[");
  int height = height_of(operand);
  Slice slice;
  ExpressionPtr* const bounds[] = {&slice.start, &slice.stop, &slice.step};
  size_t bound = 0;
  bool is_slice = false;
  while (!at("]")) {
    if (at(":")) {
      if (++bound > 2) fail_here("expected ']'");
      is_slice = true;
      next();
      continue;
    }
    if (*bounds[bound] != nullptr) fail_here("expected ']'");
    *bounds[bound] = is_slice ? parse_expression() : parse_tuple(true, {});
    height = std::max(height, height_of(*bounds[bound]));
  }
  expect("]");
  if (is_slice) {
    slice.object = std::move(operand);
    return make_high(std::move(slice), line, height);
  }
  if (slice.start == nullptr) fail_here("expected an index before");
  return make_high(Subscript{std::move(operand), std::move(slice.start)}, line, height);
}

CallArguments ExpressionParser::parse_arguments(int& height) {
  CallArguments arguments;
  expect("(");
  bool first = true;
  const auto keep = [&height](ExpressionPtr value) {
    height = std::max(height, height_of(value));
    return value;
  };
  while (!at(")")) {
    if (!first) expect(",");
    if (at(")")) break;
    first = false;
    const bool named =
        current().kind == Token::Kind::name && lookahead().kind == Token::Kind::punctuation && lookahead().text == "=";
    if (arguments.all_named != nullptr) fail_here("expected ')' after **");
    if (skip("*")) {
      if (arguments.all_positional != nullptr) fail_here("a call has two * arguments");
      arguments.all_positional = keep(parse_expression());
    } else if (skip("**")) {
      arguments.all_named = keep(parse_expression());
    } else if (named) {
      std::string name = take_name();
      next();
      arguments.named.emplace_back(std::move(name), keep(parse_expression()));
    } else {
      if (!arguments.named.empty() || arguments.all_positional != nullptr) fail_here("expected a named argument");
      arguments.positional.push_back(keep(parse_expression()));
    }
  }
  expect(")");
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  const int line = current().line;
  int height = height_of(callee);
  CallArguments arguments = parse_arguments(height);
  return make_high(Call{std::move(callee), std::move(arguments)}, line, height);
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = take_name();
  while (skip(".")) name += "." + take_name();
  return name;
}

void ExpressionParser::note_unknown(const char* what, const std::string& name) {
  if (num_open_branches_ > 0) return;
  unknown_names_.push_back(fmt::format("line {} of the chat template: no {} named '{}'", current().line, what, name));
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr operand) {
  const int line = current().line;
  std::string name = parse_dotted_name();
  const Filter filter = find_filter(name);
  if (filter == nullptr) note_unknown("filter", name);
  int height = height_of(operand);
  CallArguments arguments = at("(") ? parse_arguments(height) : CallArguments{};
  return make_high(FilterCall{std::move(operand), std::move(name), filter, std::move(arguments)}, line, height);
}

// A test takes one argument without parentheses: "x is divisibleby 3".
bool ExpressionParser::at_test_operand() const {
  switch (current().kind) {
    case Token::Kind::name:
      return !at_name("else") && !at_name("or") && !at_name("and");
    case Token::Kind::string:
    case Token::Kind::number:
      return true;
    default:
      return at("[") || at("{");
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr operand) {
  const int line = current().line;
  expect_name("is");
  const bool negated = skip_name("not");
  std::string name = parse_dotted_name();
  const Test test = find_test(name);
  if (test == nullptr) note_unknown("test", name);
  int height = height_of(operand);
  CallArguments arguments;
  if (at("(")) {
    arguments = parse_arguments(height);
  } else if (at_test_operand()) {
    if (at_name("is")) fail_here("tests cannot be chained with 'is'");
    const Nesting nesting(*this);
    arguments.positional.push_back(parse_postfix(parse_primary()));
    height = std::max(height, height_of(arguments.positional.back()));
  }
  ExpressionPtr result =
      make_high(TestCall{std::move(operand), std::move(name), test, std::move(arguments)}, line, height);
  if (!negated) return result;
  return make_high(Unary{UnaryOperator::logical_not, std::move(result)}, line, height + 1);
}

}  // namespace tidemill::jinja
