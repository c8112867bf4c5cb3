// Parses expressions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/lexer.h"

namespace lockstep::jinja {

// Tokens with a place in them; shared by the parsers of statements and expressions.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  // The line of the token taken last.
  int previous_line() const { return at_ > 0 ? tokens_[at_ - 1].line : 1; }
  Token take();
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_op(std::string_view op) const { return is(TokenKind::op) && current().text == op; }
  bool is_name(std::string_view name) const {
    return is(TokenKind::name) && current().text == name;
  }
  // Takes the token when it is this one.
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_any_name(std::string_view role);

  // Throws Error "line N: ..." for the current token.
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_current() const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// Counts nesting, so that a template cannot exhaust the stack.
class NestingGuard {
 public:
  NestingGuard(int* depth, const TokenStream& tokens);
  ~NestingGuard() { --*depth_; }
  NestingGuard(const NestingGuard&) = delete;
  NestingGuard& operator=(const NestingGuard&) = delete;

 private:
  int* depth_;
};

class ExpressionParser {
 public:
  ExpressionParser(TokenStream* tokens, int* depth) : tokens_(*tokens), depth_(depth) {}

  // One expression; without `with_conditional`, an inline if is left alone (as in `for x in y if
  // z`).
  ExpressionPtr parse(bool with_conditional = true);
  // One expression, or a tuple of several with commas between them.
  ExpressionPtr parse_tuple();
  // A chain `filter1 | filter2 ...` applied to `input`; the first filter's name is the current
  // token.
  ExpressionPtr parse_filter_chain(ExpressionPtr input);

 private:
  ExpressionPtr make(ExpressionKind kind, std::string text = "") const;
  void add_child(Expression& parent, ExpressionPtr child) const;
  void note_depth(Expression& parent, const Expression& child) const;
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_strings();
  ExpressionPtr parse_group();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr value);
  ExpressionPtr parse_attribute(ExpressionPtr value);
  ExpressionPtr parse_subscript(ExpressionPtr value);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  void parse_arguments(Expression& call);
  bool ends_expression_list() const;

  TokenStream& tokens_;
  int* depth_;
};

}  // namespace lockstep::jinja
