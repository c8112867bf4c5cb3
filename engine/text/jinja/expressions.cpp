#include "engine/text/jinja/evaluator.h"
#include "engine/text/jinja/operators.h"

namespace lockstep::jinja {
Value Evaluator::evaluate(const Expression& expression, Scope* scope) {
  runtime_.line = expression.line;
  runtime_.charge_steps(1);
  const DepthGuard guard(runtime_, &depth_, kMaxDepth);
  const auto child = [&](size_t i) { return evaluate(*expression.children[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::none:
      return Value::none();
    case ExpressionKind::boolean:
      return Value::of(expression.integer != 0);
    case ExpressionKind::integer:
      return Value::of(expression.integer);
    case ExpressionKind::real:
      return Value::of(expression.real);
    case ExpressionKind::string:
      return Value::of(&expression.text);
    case ExpressionKind::name:
      return look_up(expression.text, scope);
    case ExpressionKind::list:
    case ExpressionKind::tuple:
      return evaluate_list(expression, scope);
    case ExpressionKind::dict:
      return evaluate_dict(expression, scope);
    case ExpressionKind::attribute:
      return get_attribute(runtime_, child(0), expression.text);
    case ExpressionKind::subscript: {
      const Value object = child(0);
      return get_item(runtime_, object, child(1));
    }
    case ExpressionKind::slice:
      return evaluate_slice(expression, scope);
    case ExpressionKind::call:
      return evaluate_call(expression, scope);
    case ExpressionKind::filter:
      return evaluate_filter(expression, scope);
    case ExpressionKind::test:
      return evaluate_test(expression, scope);
    case ExpressionKind::negate:
      return negate(runtime_, child(0));
    case ExpressionKind::plus: {
      const Value value = child(0);
      require_defined(runtime_, value);
      if (!value.is_number()) runtime_.refuse("'+' cannot be applied to '{}'", type_name(value));
      return value.is(Kind::real) ? value : Value::of(value.as_integer());
    }
    case ExpressionKind::logical_not:
      return Value::of(!holds(*expression.children[0], scope));
    case ExpressionKind::logical_and: {
      const Value left = child(0);
      return is_true(runtime_, left) ? child(1) : left;
    }
    case ExpressionKind::logical_or: {
      const Value left = child(0);
      return is_true(runtime_, left) ? left : child(1);
    }
    case ExpressionKind::binary: {
      const Value left = child(0);
      const Value right = child(1);
      runtime_.line = expression.line;
      return binary(runtime_, expression.text, left, right);
    }
    case ExpressionKind::concat:
      return evaluate_concat(expression, scope);
    case ExpressionKind::compare:
      return evaluate_compare(expression, scope);
    case ExpressionKind::conditional:
      return evaluate_conditional(expression, scope);
  }
  return Value();
}

bool Evaluator::holds(const Expression& expression, Scope* scope) {
  return is_true(runtime_, evaluate(expression, scope));
}

Value Evaluator::look_up(const std::string& name, Scope* scope) {
  if (const Value* found = scope->find(name)) return *found;
  if (!is_known_global(name)) return runtime_.undefined(fmt::format("'{}' is undefined", name));
  Callable* global = runtime_.arena.new_callable();
  runtime_.charge_memory(sizeof(Callable));
  global->name = name;
  return Value::of(global);
}

Value Evaluator::evaluate_list(const Expression& expression, Scope* scope) {
  List* list = runtime_.arena.new_list();
  if (expression.kind == ExpressionKind::tuple) list->flavour = List::Flavour::tuple;
  for (const ExpressionPtr& item : expression.children)
    list->items.push_back(evaluate(*item, scope));
  return runtime_.list(list);
}

Value Evaluator::evaluate_dict(const Expression& expression, Scope* scope) {
  Dict* dict = runtime_.arena.new_dict();
  for (size_t i = 0; i + 1 < expression.children.size(); i += 2) {
    const Value key = evaluate(*expression.children[i], scope);
    if (!key.is(Kind::string)) {
      runtime_.refuse("a key of the type '{}' is not supported; keys are strings", type_name(key));
    }
    dict->set(key.string, evaluate(*expression.children[i + 1], scope));
  }
  runtime_.charge_memory(sizeof(Dict) + dict->entries.size() * 2 * sizeof(Value));
  return Value::of(dict);
}

std::optional<int64_t> Evaluator::slice_part(const Expression* expression, Scope* scope) {
  if (expression == nullptr) return std::nullopt;
  const Value value = evaluate(*expression, scope);
  if (value.is(Kind::none)) return std::nullopt;
  require_defined(runtime_, value);
  if (!value.is(Kind::integer) && !value.is(Kind::boolean)) {
    runtime_.refuse("a slice's bound is a '{}', not an integer", type_name(value));
  }
  return value.as_integer();
}

Value Evaluator::evaluate_slice(const Expression& expression, Scope* scope) {
  const Value object = evaluate(*expression.children[0], scope);
  const std::optional<int64_t> start = slice_part(expression.children[1].get(), scope);
  const std::optional<int64_t> stop = slice_part(expression.children[2].get(), scope);
  const std::optional<int64_t> step = slice_part(expression.children[3].get(), scope);
  runtime_.line = expression.line;
  return get_slice(runtime_, object, start, stop, step);
}

Value Evaluator::evaluate_compare(const Expression& expression, Scope* scope) {
  Value left = evaluate(*expression.children[0], scope);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    const Value right = evaluate(*expression.children[i + 1], scope);
    runtime_.line = expression.line;
    if (!compare(runtime_, expression.operators[i], left, right)) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

Value Evaluator::evaluate_concat(const Expression& expression, Scope* scope) {
  std::string text;
  for (const ExpressionPtr& part : expression.children)
    text += to_text(runtime_, evaluate(*part, scope));
  return runtime_.string(std::move(text));
}

Value Evaluator::evaluate_conditional(const Expression& expression, Scope* scope) {
  if (holds(*expression.children[1], scope)) return evaluate(*expression.children[0], scope);
  if (expression.children[2] != nullptr) return evaluate(*expression.children[2], scope);
  return runtime_.undefined("the inline if has no else and its condition is false");
}

Arguments Evaluator::evaluate_arguments(const Expression& expression, Scope* scope) {
  Arguments arguments;
  for (size_t i = 1; i < expression.children.size(); ++i) {
    arguments.positional.push_back(evaluate(*expression.children[i], scope));
  }
  for (const auto& [name, value] : expression.named) {
    arguments.named.emplace_back(name, evaluate(*value, scope));
  }
  runtime_.line = expression.line;
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& expression, Scope* scope) {
  const Value callee = evaluate(*expression.children[0], scope);
  runtime_.line = expression.line;
  require_defined(runtime_, callee);
  if (!callee.is(Kind::callable)) runtime_.refuse("a '{}' cannot be called", type_name(callee));
  const Arguments arguments = evaluate_arguments(expression, scope);
  switch (callee.callable->type) {
    case Callable::Type::global:
      return call_global(runtime_, callee.callable->name, arguments);
    case Callable::Type::method:
      return call_method(runtime_, callee.callable->name, callee.callable->self, arguments);
    case Callable::Type::macro:
      return call_macro(*callee.callable, arguments);
  }
  return Value();
}

Value Evaluator::evaluate_filter(const Expression& expression, Scope* scope) {
  const Value input = evaluate(*expression.children[0], scope);
  const Arguments arguments = evaluate_arguments(expression, scope);
  return apply_filter(runtime_, expression.text, input, arguments);
}

Value Evaluator::evaluate_test(const Expression& expression, Scope* scope) {
  const Value input = evaluate(*expression.children[0], scope);
  const Arguments arguments = evaluate_arguments(expression, scope);
  return Value::of(apply_test(runtime_, expression.text, input, arguments));
}

}  // namespace lockstep::jinja
