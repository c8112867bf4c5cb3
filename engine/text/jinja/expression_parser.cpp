#include "engine/text/jinja/expression_parser.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "engine/text/jinja/builtins.h"

namespace lockstep::jinja {
namespace {

// Published templates stay below 20.
constexpr int kMaxNesting = 100;
// Chains such as a + b + c nest in the tree without nesting in the text.
constexpr int kMaxTreeDepth = 300;

std::string describe(const Token& token) {
  if (token.kind == TokenKind::end) return "the end of the template";
  if (token.kind == TokenKind::string) return "a string";
  return "'" + token.text + "'";
}

template <size_t N>
bool is_any_op(const TokenStream& tokens, const std::array<std::string_view, N>& ops) {
  return std::any_of(ops.begin(), ops.end(), [&](std::string_view op) { return tokens.is_op(op); });
}

}  // namespace

Token TokenStream::take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void TokenStream::expect_op(std::string_view op) {
  if (!skip_op(op)) refuse(fmt::format("expected '{}', found {}", op, describe(current())));
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) refuse(fmt::format("expected '{}', found {}", name, describe(current())));
}

void TokenStream::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) refuse(fmt::format("expected {}, found {}", what, describe(current())));
  take();
}

std::string TokenStream::expect_any_name(std::string_view role) {
  if (!is(TokenKind::name)) refuse(fmt::format("expected {}, found {}", role, describe(current())));
  return take().text;
}

void TokenStream::refuse(const std::string& what) const {
  fail("line {}: {}", current().line, what);
}

void TokenStream::refuse_current() const {
  refuse("unexpected " + describe(current()));
}

NestingGuard::NestingGuard(int* depth, const TokenStream& tokens) : depth_(depth) {
  if (*depth_ >= kMaxNesting)
    tokens.refuse(fmt::format("nested deeper than {} levels", kMaxNesting));
  ++*depth_;
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, std::string text) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = tokens_.current().line;
  expression->text = std::move(text);
  return expression;
}

void ExpressionParser::note_depth(Expression& parent, const Expression& child) const {
  parent.depth = std::max(parent.depth, child.depth + 1);
  if (parent.depth > kMaxTreeDepth) tokens_.refuse("an expression of too many parts");
}

void ExpressionParser::add_child(Expression& parent, ExpressionPtr child) const {
  if (child != nullptr) note_depth(parent, *child);
  parent.children.push_back(std::move(child));
}

ExpressionPtr ExpressionParser::parse(bool with_conditional) {
  const NestingGuard guard(depth_, tokens_);
  return with_conditional ? parse_conditional() : parse_or();
}

bool ExpressionParser::ends_expression_list() const {
  return tokens_.is(TokenKind::variable_end) || tokens_.is(TokenKind::block_end) ||
         tokens_.is_op(")");
}

ExpressionPtr ExpressionParser::parse_tuple() {
  ExpressionPtr first = parse();
  if (!tokens_.is_op(",")) return first;
  ExpressionPtr tuple = make(ExpressionKind::tuple);
  add_child(*tuple, std::move(first));
  while (tokens_.skip_op(",") && !ends_expression_list()) add_child(*tuple, parse());
  return tuple;
}

ExpressionPtr ExpressionParser::parse_conditional() {
  ExpressionPtr value = parse_or();
  while (tokens_.skip_name("if")) {
    ExpressionPtr conditional = make(ExpressionKind::conditional);
    add_child(*conditional, std::move(value));
    add_child(*conditional, parse_or());
    add_child(*conditional, tokens_.skip_name("else") ? parse() : nullptr);
    value = std::move(conditional);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (tokens_.is_name("or")) {
    ExpressionPtr both = make(ExpressionKind::logical_or);
    tokens_.take();
    add_child(*both, std::move(left));
    add_child(*both, parse_and());
    left = std::move(both);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (tokens_.is_name("and")) {
    ExpressionPtr both = make(ExpressionKind::logical_and);
    tokens_.take();
    add_child(*both, std::move(left));
    add_child(*both, parse_not());
    left = std::move(both);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!tokens_.is_name("not")) return parse_compare();
  const NestingGuard guard(depth_, tokens_);
  ExpressionPtr negation = make(ExpressionKind::logical_not);
  tokens_.take();
  add_child(*negation, parse_not());
  return negation;
}

ExpressionPtr ExpressionParser::parse_compare() {
  static constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<",
                                                                   ">",  "<=", ">="};
  ExpressionPtr first = parse_sum();
  ExpressionPtr compare = make(ExpressionKind::compare);
  for (;;) {
    std::string op;
    if (is_any_op(tokens_, kComparisons)) {
      op = tokens_.take().text;
    } else if (tokens_.skip_name("in")) {
      op = "in";
    } else if (tokens_.is_name("not") && tokens_.peek().kind == TokenKind::name &&
               tokens_.peek().text == "in") {
      tokens_.take();
      tokens_.take();
      op = "not in";
    } else {
      break;
    }
    if (compare->children.empty()) add_child(*compare, std::move(first));
    compare->operators.push_back(op);
    add_child(*compare, parse_sum());
  }
  return compare->children.empty() ? std::move(first) : std::move(compare);
}

ExpressionPtr ExpressionParser::parse_sum() {
  static constexpr std::array<std::string_view, 2> kSums = {"+", "-"};
  ExpressionPtr left = parse_concat();
  while (is_any_op(tokens_, kSums)) {
    ExpressionPtr sum = make(ExpressionKind::binary, tokens_.current().text);
    tokens_.take();
    add_child(*sum, std::move(left));
    add_child(*sum, parse_concat());
    left = std::move(sum);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  ExpressionPtr first = parse_product();
  if (!tokens_.is_op("~")) return first;
  ExpressionPtr concat = make(ExpressionKind::concat);
  add_child(*concat, std::move(first));
  while (tokens_.skip_op("~")) add_child(*concat, parse_product());
  return concat;
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr std::array<std::string_view, 4> kProducts = {"*", "/", "//", "%"};
  ExpressionPtr left = parse_power();
  while (is_any_op(tokens_, kProducts)) {
    ExpressionPtr product = make(ExpressionKind::binary, tokens_.current().text);
    tokens_.take();
    add_child(*product, std::move(left));
    add_child(*product, parse_power());
    left = std::move(product);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (tokens_.is_op("**")) {
    ExpressionPtr power = make(ExpressionKind::binary, "**");
    tokens_.take();
    add_child(*power, std::move(left));
    add_child(*power, parse_unary(true));
    left = std::move(power);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const NestingGuard guard(depth_, tokens_);
  ExpressionPtr value;
  if (tokens_.is_op("-") || tokens_.is_op("+")) {
    value = make(tokens_.is_op("-") ? ExpressionKind::negate : ExpressionKind::plus);
    tokens_.take();
    add_child(*value, parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = tokens_.current();
  ExpressionPtr value;
  switch (token.kind) {
    case TokenKind::name:
      if (token.text == "true" || token.text == "True" || token.text == "false" ||
          token.text == "False") {
        value = make(ExpressionKind::boolean);
        value->integer = token.text == "true" || token.text == "True" ? 1 : 0;
      } else if (token.text == "none" || token.text == "None") {
        value = make(ExpressionKind::none);
      } else {
        value = make(ExpressionKind::name, token.text);
      }
      tokens_.take();
      return value;
    case TokenKind::integer:
      value = make(ExpressionKind::integer);
      value->integer = tokens_.take().integer;
      return value;
    case TokenKind::real:
      value = make(ExpressionKind::real);
      value->real = tokens_.take().real;
      return value;
    case TokenKind::string:
      return parse_strings();
    case TokenKind::op:
      if (tokens_.is_op("(")) return parse_group();
      if (tokens_.is_op("[")) return parse_list();
      if (tokens_.is_op("{")) return parse_dict();
      tokens_.refuse_current();
    default:
      tokens_.refuse_current();
  }
}

// Strings side by side are one.
ExpressionPtr ExpressionParser::parse_strings() {
  ExpressionPtr value = make(ExpressionKind::string);
  while (tokens_.is(TokenKind::string)) value->text += tokens_.take().text;
  return value;
}

ExpressionPtr ExpressionParser::parse_group() {
  tokens_.expect_op("(");
  if (tokens_.skip_op(")")) return make(ExpressionKind::tuple);
  ExpressionPtr value = parse_tuple();
  tokens_.expect_op(")");
  return value;
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr list = make(ExpressionKind::list);
  tokens_.expect_op("[");
  while (!tokens_.skip_op("]")) {
    if (!list->children.empty()) {
      tokens_.expect_op(",");
      if (tokens_.skip_op("]")) break;
    }
    add_child(*list, parse());
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  ExpressionPtr dict = make(ExpressionKind::dict);
  tokens_.expect_op("{");
  while (!tokens_.skip_op("}")) {
    if (!dict->children.empty()) {
      tokens_.expect_op(",");
      if (tokens_.skip_op("}")) break;
    }
    add_child(*dict, parse());
    tokens_.expect_op(":");
    add_child(*dict, parse());
  }
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  for (;;) {
    if (tokens_.is_op(".")) {
      value = parse_attribute(std::move(value));
    } else if (tokens_.is_op("[")) {
      value = parse_subscript(std::move(value));
    } else if (tokens_.is_op("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr value) {
  for (;;) {
    if (tokens_.skip_op("|")) {
      value = parse_filter(std::move(value));
    } else if (tokens_.skip_name("is")) {
      value = parse_test(std::move(value));
    } else if (tokens_.is_op("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr value) {
  tokens_.expect_op(".");
  ExpressionPtr access;
  if (tokens_.is(TokenKind::integer)) {
    access = make(ExpressionKind::subscript);
    add_child(*access, std::move(value));
    add_child(*access, parse_primary());
    return access;
  }
  access = make(ExpressionKind::attribute);
  access->text = tokens_.expect_any_name("an attribute's name");
  add_child(*access, std::move(value));
  return access;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr value) {
  ExpressionPtr access = make(ExpressionKind::subscript);
  tokens_.expect_op("[");
  add_child(*access, std::move(value));
  ExpressionPtr first = tokens_.is_op(":") ? nullptr : parse();
  if (!tokens_.is_op(":")) {
    if (tokens_.is_op(",")) tokens_.refuse("a subscript with several parts is not supported");
    add_child(*access, std::move(first));
    tokens_.expect_op("]");
    return access;
  }
  access->kind = ExpressionKind::slice;
  add_child(*access, std::move(first));
  for (int part = 0; part < 2; ++part) {
    const bool has_colon = tokens_.skip_op(":");
    const bool has_value = has_colon && !tokens_.is_op(":") && !tokens_.is_op("]");
    add_child(*access, has_value ? parse() : nullptr);
  }
  tokens_.expect_op("]");
  return access;
}

void ExpressionParser::parse_arguments(Expression& call) {
  tokens_.expect_op("(");
  bool is_first = true;
  while (!tokens_.skip_op(")")) {
    if (!is_first) {
      tokens_.expect_op(",");
      if (tokens_.skip_op(")")) return;
    }
    is_first = false;
    if (tokens_.is_op("*") || tokens_.is_op("**")) {
      tokens_.refuse("arguments unpacked with * or ** are not supported");
    }
    const bool is_named = tokens_.is(TokenKind::name) && tokens_.peek().kind == TokenKind::op &&
                          tokens_.peek().text == "=";
    if (is_named) {
      std::string name = tokens_.take().text;
      tokens_.take();
      ExpressionPtr value = parse();
      note_depth(call, *value);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty()) tokens_.refuse("a positional argument behind a named one");
      add_child(call, parse());
    }
  }
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  ExpressionPtr call = make(ExpressionKind::call);
  add_child(*call, std::move(callee));
  parse_arguments(*call);
  return call;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  ExpressionPtr filter = make(ExpressionKind::filter);
  filter->text = tokens_.expect_any_name("a filter's name");
  if (!is_known_filter(filter->text)) {
    fail("line {}: the filter '{}' is not supported", filter->line, filter->text);
  }
  add_child(*filter, std::move(input));
  if (tokens_.is_op("(")) parse_arguments(*filter);
  return filter;
}

ExpressionPtr ExpressionParser::parse_filter_chain(ExpressionPtr input) {
  do {
    input = parse_filter(std::move(input));
  } while (tokens_.skip_op("|"));
  return input;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const bool negated = tokens_.skip_name("not");
  ExpressionPtr test = make(ExpressionKind::test);
  test->text = tokens_.expect_any_name("a test's name");
  if (!is_known_test(test->text)) {
    fail("line {}: the test '{}' is not supported", test->line, test->text);
  }
  add_child(*test, std::move(input));
  if (tokens_.is_op("(")) {
    parse_arguments(*test);
  } else if (tokens_.is_name("is")) {
    tokens_.refuse("tests cannot be chained with is");
  } else {
    // `is divisibleby 3`: one argument without parentheses.
    const bool is_word = tokens_.is_name("else") || tokens_.is_name("or") || tokens_.is_name("and");
    const bool is_value = tokens_.is(TokenKind::name) || tokens_.is(TokenKind::string) ||
                          tokens_.is(TokenKind::integer) || tokens_.is(TokenKind::real) ||
                          tokens_.is_op("[") || tokens_.is_op("{");
    if (is_value && !is_word) add_child(*test, parse_postfix(parse_primary()));
  }
  if (!negated) return test;
  ExpressionPtr negation = make(ExpressionKind::logical_not);
  add_child(*negation, std::move(test));
  return negation;
}

}  // namespace lockstep::jinja
