#include <unordered_map>

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/unicode/unicode.h"

namespace lockstep::jinja {
namespace {

using Test = bool (*)(Runtime&, const Value&);

bool has_flavour(const Value& value, List::Flavour flavour) {
  return value.is(Kind::list) && value.list->flavour == flavour;
}

// What has a length and places; an undefined value passes for one in Jinja2.
bool is_sequence(const Value& value) {
  if (value.is(Kind::list)) {
    return !has_flavour(value, List::Flavour::generator) &&
           !has_flavour(value, List::Flavour::view);
  }
  return value.is(Kind::string) || value.is(Kind::dict) || value.is(Kind::undefined);
}

bool is_even(Runtime& runtime, const Value& value) {
  return equals(runtime, binary(runtime, "%", value, Value::of(int64_t{2})), Value::of(int64_t{0}));
}

bool is_odd(Runtime& runtime, const Value& value) {
  return equals(runtime, binary(runtime, "%", value, Value::of(int64_t{2})), Value::of(int64_t{1}));
}

const std::unordered_map<std::string_view, Test>& simple_tests() {
  static const std::unordered_map<std::string_view, Test> table = {
      {"boolean", [](Runtime&, const Value& v) { return v.is(Kind::boolean); }},
      {"callable",
       [](Runtime&, const Value& v) { return v.is(Kind::callable) || v.is(Kind::undefined); }},
      {"defined", [](Runtime&, const Value& v) { return !v.is(Kind::undefined); }},
      {"even", is_even},
      {"false", [](Runtime&, const Value& v) { return v.is(Kind::boolean) && !v.boolean; }},
      {"float", [](Runtime&, const Value& v) { return v.is(Kind::real); }},
      {"integer",
       [](Runtime&, const Value& v) { return v.is(Kind::integer) || v.is(Kind::big_integer); }},
      {"iterable",
       [](Runtime&, const Value& v) {
         return is_sequence(v) || v.is(Kind::list) || v.is(Kind::loop);
       }},
      {"mapping", [](Runtime&, const Value& v) { return v.is(Kind::dict); }},
      {"none", [](Runtime&, const Value& v) { return v.is(Kind::none); }},
      {"number", [](Runtime&, const Value& v) { return v.is_number() || v.is(Kind::big_integer); }},
      {"odd", is_odd},
      {"sequence", [](Runtime&, const Value& v) { return is_sequence(v); }},
      {"string", [](Runtime&, const Value& v) { return v.is(Kind::string); }},
      {"true", [](Runtime&, const Value& v) { return v.is(Kind::boolean) && v.boolean; }},
      {"undefined", [](Runtime&, const Value& v) { return v.is(Kind::undefined); }},
  };
  return table;
}

// The comparison that a test with one argument stands for.
const std::unordered_map<std::string_view, std::string_view>& comparison_tests() {
  static const std::unordered_map<std::string_view, std::string_view> table = {
      {"==", "=="},         {"eq", "=="}, {"equalto", "=="}, {"!=", "!="},
      {"ne", "!="},         {"<", "<"},   {"lt", "<"},       {"lessthan", "<"},
      {"<=", "<="},         {"le", "<="}, {">", ">"},        {"gt", ">"},
      {"greaterthan", ">"}, {">=", ">="}, {"ge", ">="},      {"in", "in"},
  };
  return table;
}

}  // namespace

bool is_known_test(std::string_view name) {
  return name == "divisibleby" || simple_tests().contains(name) ||
         comparison_tests().contains(name);
}

bool apply_test(Runtime& runtime, std::string_view name, Value input, const Arguments& arguments) {
  ArgumentReader reader(runtime, name, arguments);
  if (const auto simple = simple_tests().find(name); simple != simple_tests().end()) {
    reader.finish();
    return simple->second(runtime, input);
  }
  const Value other = reader.required("other");
  reader.finish();
  if (name == "divisibleby") {
    return equals(runtime, binary(runtime, "%", input, other), Value::of(int64_t{0}));
  }
  return compare(runtime, comparison_tests().at(name), input, other);
}

}  // namespace lockstep::jinja
