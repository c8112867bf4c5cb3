#include "engine/text/jinja/evaluator.h"
#include "engine/text/jinja/operators.h"

namespace lockstep::jinja {
std::string Evaluator::render(const Block& block) {
  return capture(block, runtime_.arena.new_scope(variables_));
}

std::string Evaluator::capture(const Block& block, Scope* scope) {
  std::string text;
  std::string* const outer = out_;
  out_ = &text;
  run_block(block, scope);
  out_ = outer;
  return text;
}

void Evaluator::write(std::string_view text) {
  runtime_.charge_bytes_read(text.size());
  if (text.size() > runtime_.limits().max_output_bytes - out_->size()) {
    runtime_.refuse("the template's text is longer than {} bytes",
                    runtime_.limits().max_output_bytes);
  }
  *out_ += text;
}

Evaluator::Flow Evaluator::run_block(const Block& block, Scope* scope) {
  for (const auto& statement : block) {
    const Flow flow = run(*statement, scope);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run(const Statement& statement, Scope* scope) {
  runtime_.line = statement.line;
  runtime_.charge_steps(1);
  const DepthGuard guard(runtime_, &depth_, kMaxDepth);
  switch (statement.kind) {
    case StatementKind::text:
      write(statement.text);
      break;
    case StatementKind::output: {
      const Value value = evaluate(*statement.expression, scope);
      runtime_.line = statement.line;
      if (value.is(Kind::string)) {
        write(*value.string);
      } else {
        write(to_text(runtime_, value));
      }
      break;
    }
    case StatementKind::if_else:
      return run_if(statement, scope);
    case StatementKind::for_loop:
      return run_for(statement, scope);
    case StatementKind::set:
      run_set(statement, scope);
      break;
    case StatementKind::set_block:
    case StatementKind::filter_block:
      run_block_filters(statement, scope);
      break;
    case StatementKind::macro:
      define_macro(statement, scope);
      break;
    case StatementKind::break_loop:
      return Flow::leave_loop;
    case StatementKind::continue_loop:
      return Flow::next_item;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_if(const Statement& statement, Scope* scope) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition == nullptr || holds(*branch.condition, scope)) {
      return run_block(branch.body, scope);
    }
  }
  return Flow::normal;
}

void Evaluator::bind_targets(const Statement& statement, const Value& value, Scope* scope) {
  if (statement.names.size() == 1) {
    scope->set(statement.names[0], value);
    return;
  }
  const std::vector<Value> parts = iterate(runtime_, value);
  if (parts.size() != statement.names.size()) {
    runtime_.refuse("{} values for {} variables", parts.size(), statement.names.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) scope->set(statement.names[i], parts[i]);
}

Evaluator::Flow Evaluator::run_for(const Statement& statement, Scope* scope) {
  const Value sequence = evaluate(*statement.expression, scope);
  List* items = runtime_.arena.new_list();
  items->items = iterate(runtime_, sequence);
  runtime_.list(items);
  if (statement.condition != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items->items) {
      Scope* inner = runtime_.arena.new_scope(scope);
      runtime_.charge_memory(sizeof(Scope));
      bind_targets(statement, item, inner);
      if (holds(*statement.condition, inner)) kept.push_back(item);
    }
    items->items = std::move(kept);
  }
  if (items->items.empty()) return run_block(statement.else_body, scope);
  Loop* loop = runtime_.arena.new_loop();
  loop->items = items;
  for (; loop->index < items->items.size(); ++loop->index) {
    // A scope for every round: what a round sets is gone in the next one.
    Scope* inner = runtime_.arena.new_scope(scope);
    runtime_.charge_memory(sizeof(Scope));
    runtime_.line = statement.line;
    inner->set("loop", Value::of(loop));
    bind_targets(statement, items->items[loop->index], inner);
    if (run_block(statement.body, inner) == Flow::leave_loop) break;
  }
  return Flow::normal;
}

void Evaluator::run_set(const Statement& statement, Scope* scope) {
  const Value value = evaluate(*statement.expression, scope);
  if (statement.attribute.empty()) {
    bind_targets(statement, value, scope);
    return;
  }
  const Value target = look_up(statement.text, scope);
  if (!target.is(Kind::name_space)) {
    runtime_.refuse("cannot set an attribute of '{}', which is not a namespace", statement.text);
  }
  runtime_.charge_memory(sizeof(Value));
  target.dict->set(&statement.attribute, value);
}

void Evaluator::run_block_filters(const Statement& statement, Scope* scope) {
  // The block's own variables stay inside it.
  Scope* inner = runtime_.arena.new_scope(scope);
  runtime_.charge_memory(sizeof(Scope));
  Value text = runtime_.string(capture(statement.body, inner));
  if (statement.expression != nullptr) {
    inner->set(kBlockText, text);
    text = evaluate(*statement.expression, inner);
  }
  if (statement.kind == StatementKind::filter_block) {
    write(to_text(runtime_, text));
  } else {
    scope->set(statement.names[0], text);
  }
}

void Evaluator::define_macro(const Statement& statement, Scope* scope) {
  Callable* macro = runtime_.arena.new_callable();
  runtime_.charge_memory(sizeof(Callable));
  macro->type = Callable::Type::macro;
  macro->name = statement.text;
  macro->macro = &statement;
  macro->scope = scope;
  scope->set(statement.text, Value::of(macro));
}

Value Evaluator::call_macro(const Callable& callable, const Arguments& arguments) {
  const Statement& macro = *callable.macro;
  const size_t n = macro.names.size();
  if (arguments.positional.size() > n) {
    runtime_.refuse("the macro '{}' takes at most {} arguments", macro.text, n);
  }
  const int line = runtime_.line;
  Scope* scope = runtime_.arena.new_scope(callable.scope);
  runtime_.charge_memory(sizeof(Scope));
  size_t n_named = 0;
  for (size_t i = 0; i < n; ++i) {
    const std::string& name = macro.names[i];
    const Value* by_name = nullptr;
    for (const auto& [key, value] : arguments.named) {
      if (key == name) by_name = &value;
    }
    const size_t first_default = n - macro.defaults.size();
    if (i < arguments.positional.size()) {
      scope->set(name, arguments.positional[i]);
    } else if (by_name != nullptr) {
      ++n_named;
      scope->set(name, *by_name);
    } else if (i >= first_default) {
      scope->set(name, evaluate(*macro.defaults[i - first_default], scope));
    } else {
      scope->set(name, runtime_.undefined(fmt::format("the parameter '{}' was not given", name)));
    }
  }
  if (n_named != arguments.named.size()) {
    runtime_.refuse("the macro '{}' is given an argument twice, or one that it does not have",
                    macro.text);
  }
  const Value text = runtime_.string(capture(macro.body, scope));
  runtime_.line = line;
  return text;
}

}  // namespace lockstep::jinja
