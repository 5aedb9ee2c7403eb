// The expression half of the parser; parser.cpp adds statements on top.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace tidemill::jinja {

// Walks a list of tokens once, from front to back. Every parse_* function consumes what it returns a tree for and
// throws Fault where the grammar does not match.
class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, Template& target) : template_(target), tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& lookahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[position_ + 1 < tokens_.size() ? position_++ : position_]; }
  bool at(std::string_view punctuation) const {
    return current().kind == Token::Kind::punctuation && current().text == punctuation;
  }
  bool at_name(std::string_view name) const { return current().kind == Token::Kind::name && current().text == name; }
  bool skip(std::string_view punctuation);
  bool skip_name(std::string_view name);
  void expect(std::string_view punctuation);
  void expect_name(std::string_view name);
  void expect_kind(Token::Kind kind, std::string_view description);
  std::string take_name();
  [[noreturn]] void fail_here(std::string_view what) const;

  // Counts one more open block or bracket while it lives.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  ExpressionPtr parse_expression(bool with_conditional = true);
  // One expression, or a tuple without brackets. `end_name` also ends it ("in", "recursive").
  ExpressionPtr parse_tuple(bool with_conditional = true, std::string_view end_name = {});
  ExpressionPtr parse_primary();
  ExpressionPtr parse_filters(ExpressionPtr operand);
  ExpressionPtr parse_filter(ExpressionPtr operand);
  Symbol reference(const std::string& name);

  // Unknown filters and tests are an error of the template only where they must run: not inside a branch.
  int num_open_branches_ = 0;
  std::vector<std::string> unknown_names_;
  std::vector<MacroDefinition*> open_macros_;
  Template& template_;

 private:
  template <typename Node>
  ExpressionPtr make(Node node, int line, std::initializer_list<const Expression*> operands);
  ExpressionPtr make_high(decltype(Expression::node) node, int line, int height_of_operands);

  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_name();
  ExpressionPtr parse_string();
  ExpressionPtr parse_parentheses();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_attribute(ExpressionPtr operand);
  ExpressionPtr parse_subscript(ExpressionPtr operand);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_test(ExpressionPtr operand);
  bool at_test_operand() const;
  CallArguments parse_arguments(int& height);
  bool at_tuple_end(std::string_view end_name) const;
  std::string parse_dotted_name();
  void note_unknown(const char* what, const std::string& name);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace tidemill::jinja
