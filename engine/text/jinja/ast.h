// The parsed template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::jinja {

enum class ExpressionKind : uint8_t {
  none,
  boolean,      // integer
  integer,      // integer
  real,         // real
  string,       // text
  name,         // text
  list,         // children
  tuple,        // children
  dict,         // children: key, value, key, value ...
  attribute,    // children[0] . text
  subscript,    // children[0] [ children[1] ]
  slice,        // children[0] [ children[1] : children[2] : children[3] ]; absent parts are null
  call,         // children[0] ( children[1..], named )
  filter,       // children[0] | text ( children[1..], named )
  test,         // children[0] is text ( children[1..] )
  negate,       // - children[0]
  plus,         // + children[0]
  logical_not,  // children[0]
  logical_and,  // children[0], children[1]
  logical_or,   // children[0], children[1]
  binary,       // children[0] text children[1]
  concat,       // children joined by ~
  compare,      // children[0] operators[0] children[1] operators[1] children[2] ...
  conditional,  // children[0] if children[1] else children[2] (which may be null)
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  ExpressionKind kind = ExpressionKind::none;
  int line = 0;
  int depth = 1;  // of the tree below
  std::string text;
  int64_t integer = 0;
  double real = 0.0;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

enum class StatementKind : uint8_t {
  text,          // text
  output,        // expression
  if_else,       // branches
  for_loop,      // names in expression [if condition]: body, else_body
  set,           // names (or text . attribute) = expression
  set_block,     // names[0] = body [through the filters of expression]
  filter_block,  // body through the filters of expression
  macro,         // text, names with defaults: body
  break_loop,
  continue_loop,
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Branch {
  ExpressionPtr condition;  // null for else
  Block body;
};

// The input of the filters of set_block and filter_block is a name that no template can write.
inline constexpr const char* kBlockText = "block text";

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 0;
  std::string text;
  std::string attribute;
  std::vector<std::string> names;
  ExpressionPtr expression;
  ExpressionPtr condition;
  std::vector<ExpressionPtr> defaults;  // of the last parameters of a macro
  std::vector<Branch> branches;
  Block body;
  Block else_body;
};

}  // namespace lockstep::jinja
