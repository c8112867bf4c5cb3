// Python's semantics for values: truth, equality, order, arithmetic, containment, text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/runtime.h"
#include "engine/text/jinja/value.h"

namespace lockstep::jinja {

std::string_view type_name(const Value& value);
// Throws for undefined values, with their complaint.
void require_defined(const Runtime& runtime, const Value& value);

bool is_true(const Runtime& runtime, const Value& value);
bool equals(Runtime& runtime, const Value& left, const Value& right);
bool compare(Runtime& runtime, std::string_view op, const Value& left, const Value& right);
bool contains(Runtime& runtime, const Value& container, const Value& item);
Value binary(Runtime& runtime, std::string_view op, const Value& left, const Value& right);
Value negate(Runtime& runtime, const Value& value);

// The items that iteration over `value` gives. A generator is used up by it.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
// len(); throws for values without one.
int64_t length(Runtime& runtime, const Value& value);

Value get_attribute(Runtime& runtime, const Value& object, const std::string& name);
Value get_item(Runtime& runtime, const Value& object, const Value& key);
Value get_slice(Runtime& runtime, const Value& object, std::optional<int64_t> start,
                std::optional<int64_t> stop, std::optional<int64_t> step);

// str(value), as output prints it; an undefined value is empty text.
std::string to_text(Runtime& runtime, const Value& value);

struct JsonStyle {
  int64_t indent = -1;  // below 0: on one line
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
  bool sort_keys = false;
  bool ascii_only = false;
};
// json.dumps(value).
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace lockstep::jinja
