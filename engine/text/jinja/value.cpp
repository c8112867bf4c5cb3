#include "engine/text/jinja/value.h"

namespace lockstep::jinja {
namespace {

constexpr size_t kLinearSearchMax = 12;

}  // namespace

Value Value::tagged(Kind kind) {
  Value value;
  value.kind = kind;
  return value;
}

Value Value::of(bool value) {
  Value result = tagged(Kind::boolean);
  result.boolean = value;
  return result;
}

Value Value::of(int64_t value) {
  Value result = tagged(Kind::integer);
  result.integer = value;
  return result;
}

Value Value::of(double value) {
  Value result = tagged(Kind::real);
  result.real = value;
  return result;
}

Value Value::of(List* value) {
  Value result = tagged(Kind::list);
  result.list = value;
  return result;
}

Value Value::of(Dict* value, Kind kind) {
  Value result = tagged(kind);
  result.dict = value;
  return result;
}

Value Value::of(Loop* value) {
  Value result = tagged(Kind::loop);
  result.loop = value;
  return result;
}

Value Value::of(const Callable* value) {
  Value result = tagged(Kind::callable);
  result.callable = value;
  return result;
}

Value Value::of(const std::string* value, Kind kind) {
  Value result = tagged(kind);
  result.string = value;
  return result;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (*name == key) return &value;
  }
  return nullptr;
}

void Dict::set(const std::string* key, Value value) {
  if (const Value* found = find(*key)) {
    *const_cast<Value*>(found) = value;
    return;
  }
  entries.emplace_back(key, value);
  if (entries.size() <= kLinearSearchMax) return;
  if (index_.empty()) {
    for (size_t i = 0; i + 1 < entries.size(); ++i) index_[*entries[i].first] = i;
  }
  index_[*key] = entries.size() - 1;
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = value;
      return;
    }
  }
  variables.emplace_back(name, value);
}

Scope* Arena::new_scope(Scope* parent) {
  Scope& scope = scopes_.emplace_back();
  scope.parent = parent;
  return &scope;
}

}  // namespace lockstep::jinja
