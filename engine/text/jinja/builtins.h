// Filters, tests, global functions and methods, by name.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja/runtime.h"
#include "engine/text/jinja/value.h"

namespace lockstep::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// Takes arguments by place or by name and complains about those that are left over.
class ArgumentReader {
 public:
  ArgumentReader(Runtime& runtime, std::string_view callee, const Arguments& arguments)
      : runtime_(runtime), callee_(callee), arguments_(arguments) {}

  // The next parameter; null when it was not given.
  const Value* optional(std::string_view name);
  Value required(std::string_view name);
  // As above, checked to be of a type.
  const std::string& required_string(std::string_view name);
  const std::string* optional_string(std::string_view name);  // none counts as not given
  int64_t optional_integer(std::string_view name, int64_t fallback);
  bool optional_boolean(std::string_view name, bool fallback);
  void finish() const;

 private:
  const std::string* as_string(std::string_view name, const Value& value) const;

  Runtime& runtime_;
  std::string_view callee_;
  const Arguments& arguments_;
  size_t n_positional_ = 0;
  size_t n_named_ = 0;
};

bool is_known_filter(std::string_view name);
Value apply_filter(Runtime& runtime, std::string_view name, Value input,
                   const Arguments& arguments);

bool is_known_test(std::string_view name);
bool apply_test(Runtime& runtime, std::string_view name, Value input, const Arguments& arguments);

bool is_known_global(std::string_view name);
Value call_global(Runtime& runtime, std::string_view name, const Arguments& arguments);

// Whether values of this kind have the method; calling one that Python has and this engine has not
// is an error that names it.
bool has_method(const Value& self, std::string_view name);
Value call_method(Runtime& runtime, std::string_view name, Value self, const Arguments& arguments);

}  // namespace lockstep::jinja
