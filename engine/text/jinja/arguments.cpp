#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"

namespace lockstep::jinja {

const Value* ArgumentReader::optional(std::string_view name) {
  const Value* by_name = nullptr;
  for (const auto& [key, value] : arguments_.named) {
    if (key == name) by_name = &value;
  }
  if (n_positional_ < arguments_.positional.size()) {
    if (by_name != nullptr) runtime_.refuse("'{}' gets its argument '{}' twice", callee_, name);
    return &arguments_.positional[n_positional_++];
  }
  if (by_name != nullptr) ++n_named_;
  return by_name;
}

Value ArgumentReader::required(std::string_view name) {
  const Value* value = optional(name);
  if (value == nullptr) runtime_.refuse("'{}' lacks its argument '{}'", callee_, name);
  return *value;
}

const std::string* ArgumentReader::as_string(std::string_view name, const Value& value) const {
  require_defined(runtime_, value);
  if (!value.is(Kind::string)) {
    runtime_.refuse("the argument '{}' of '{}' is a '{}', not a string", name, callee_,
                    type_name(value));
  }
  return value.string;
}

const std::string& ArgumentReader::required_string(std::string_view name) {
  return *as_string(name, required(name));
}

const std::string* ArgumentReader::optional_string(std::string_view name) {
  const Value* value = optional(name);
  return value == nullptr || value->is(Kind::none) ? nullptr : as_string(name, *value);
}

int64_t ArgumentReader::optional_integer(std::string_view name, int64_t fallback) {
  const Value* value = optional(name);
  if (value == nullptr) return fallback;
  require_defined(runtime_, *value);
  if (!value->is(Kind::integer) && !value->is(Kind::boolean)) {
    runtime_.refuse("the argument '{}' of '{}' is a '{}', not an integer", name, callee_,
                    type_name(*value));
  }
  return value->as_integer();
}

bool ArgumentReader::optional_boolean(std::string_view name, bool fallback) {
  const Value* value = optional(name);
  return value == nullptr ? fallback : is_true(runtime_, *value);
}

void ArgumentReader::finish() const {
  if (n_positional_ < arguments_.positional.size()) {
    runtime_.refuse("'{}' takes at most {} arguments", callee_, n_positional_);
  }
  if (n_named_ == arguments_.named.size()) return;
  runtime_.refuse("'{}' is given an argument that it does not have (one of '{}' ...)", callee_,
                  arguments_.named.front().first);
}

}  // namespace lockstep::jinja
