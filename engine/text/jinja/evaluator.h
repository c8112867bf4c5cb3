// Runs a parsed template.
#pragma once

#include <optional>
#include <string>

#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/runtime.h"
#include "engine/text/jinja/value.h"

namespace lockstep::jinja {

class Evaluator {
 public:
  // `variables` holds what the request brings; the template's own variables go on top of it.
  Evaluator(Runtime* runtime, Scope* variables) : runtime_(*runtime), variables_(variables) {}

  std::string render(const Block& block);

 private:
  // Levels of the tree and of macro calls together; a level takes a few hundred bytes of stack.
  static constexpr int kMaxDepth = 1000;

  enum class Flow { normal, leave_loop, next_item };

  // Statements (statements.cpp).
  Flow run_block(const Block& block, Scope* scope);
  Flow run(const Statement& statement, Scope* scope);
  Flow run_if(const Statement& statement, Scope* scope);
  Flow run_for(const Statement& statement, Scope* scope);
  void run_set(const Statement& statement, Scope* scope);
  void run_block_filters(const Statement& statement, Scope* scope);
  void define_macro(const Statement& statement, Scope* scope);
  void bind_targets(const Statement& statement, const Value& value, Scope* scope);
  std::string capture(const Block& block, Scope* scope);
  void write(std::string_view text);

  // Expressions (expressions.cpp).
  Value evaluate(const Expression& expression, Scope* scope);
  Value look_up(const std::string& name, Scope* scope);
  Value evaluate_list(const Expression& expression, Scope* scope);
  Value evaluate_dict(const Expression& expression, Scope* scope);
  Value evaluate_slice(const Expression& expression, Scope* scope);
  Value evaluate_compare(const Expression& expression, Scope* scope);
  Value evaluate_concat(const Expression& expression, Scope* scope);
  Value evaluate_conditional(const Expression& expression, Scope* scope);
  Value evaluate_call(const Expression& expression, Scope* scope);
  Value evaluate_filter(const Expression& expression, Scope* scope);
  Value evaluate_test(const Expression& expression, Scope* scope);
  bool holds(const Expression& expression, Scope* scope);
  std::optional<int64_t> slice_part(const Expression* expression, Scope* scope);
  Arguments evaluate_arguments(const Expression& expression, Scope* scope);
  Value call_macro(const Callable& macro, const Arguments& arguments);

  Runtime& runtime_;
  Scope* variables_;
  std::string* out_ = nullptr;
  int depth_ = 0;
};

}  // namespace lockstep::jinja
