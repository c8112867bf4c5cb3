#include "engine/text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "engine/text/jinja/python_text.h"

namespace lockstep::jinja {
namespace {

constexpr int kMaxValueDepth = 200;

[[noreturn]] void refuse_operands(const Runtime& runtime, std::string_view op, const Value& left,
                                  const Value& right) {
  runtime.refuse("'{}' cannot be applied to '{}' and '{}'", op, type_name(left), type_name(right));
}

[[noreturn]] void refuse_large(const Runtime& runtime) {
  runtime.refuse("an integer beyond 64 bits is not supported");
}

Value checked_integer(const Runtime& runtime, std::string_view op, int64_t left, int64_t right) {
  int64_t result = 0;
  const bool overflow = op == "+"   ? __builtin_add_overflow(left, right, &result)
                        : op == "-" ? __builtin_sub_overflow(left, right, &result)
                                    : __builtin_mul_overflow(left, right, &result);
  if (overflow) refuse_large(runtime);
  return Value::of(result);
}

// Python rounds the quotient down and gives the remainder the divisor's sign.
Value integer_division(const Runtime& runtime, std::string_view op, int64_t left, int64_t right) {
  if (right == 0) runtime.refuse("division by zero");
  if (right == -1)
    return op == "%" ? Value::of(int64_t{0}) : checked_integer(runtime, "-", 0, left);
  const bool adjusts = left % right != 0 && ((left < 0) != (right < 0));
  if (op == "%") return Value::of(left % right + (adjusts ? right : 0));
  return Value::of(left / right - (adjusts ? 1 : 0));
}

Value real_division(std::string_view op, double left, double right) {
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0.0 && ((right < 0.0) != (remainder < 0.0))) {
    remainder += right;
    quotient -= 1.0;
  }
  if (op == "%") return Value::of(remainder == 0.0 ? std::copysign(0.0, right) : remainder);
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1.0;
  return Value::of(quotient == 0.0 ? std::copysign(0.0, left / right) : whole);
}

Value power(const Runtime& runtime, const Value& left, const Value& right) {
  if (left.is(Kind::real) || right.is(Kind::real) || right.as_integer() < 0) {
    if (left.as_real() == 0.0 && right.as_real() < 0.0) runtime.refuse("division by zero");
    if (left.as_real() < 0.0 && std::floor(right.as_real()) != right.as_real()) {
      runtime.refuse("a complex result is not supported");
    }
    return Value::of(std::pow(left.as_real(), right.as_real()));
  }
  const int64_t base = left.as_integer();
  const int64_t exponent = right.as_integer();
  if (base == 0 || base == 1) return Value::of(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value::of(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  Value result = Value::of(int64_t{1});
  // Any other base leaves 64 bits within 63 steps.
  for (int64_t i = 0; i < exponent; ++i)
    result = checked_integer(runtime, "*", result.integer, base);
  return result;
}

Value number_binary(const Runtime& runtime, std::string_view op, const Value& left,
                    const Value& right) {
  if (op == "**") return power(runtime, left, right);
  const bool is_real = left.is(Kind::real) || right.is(Kind::real);
  if (op == "/") {
    if (right.as_real() == 0.0) runtime.refuse("division by zero");
    return Value::of(left.as_real() / right.as_real());
  }
  if (op == "//" || op == "%") {
    if (!is_real) return integer_division(runtime, op, left.as_integer(), right.as_integer());
    if (right.as_real() == 0.0) runtime.refuse("division by zero");
    return real_division(op, left.as_real(), right.as_real());
  }
  if (!is_real) return checked_integer(runtime, op, left.as_integer(), right.as_integer());
  if (op == "+") return Value::of(left.as_real() + right.as_real());
  if (op == "-") return Value::of(left.as_real() - right.as_real());
  return Value::of(left.as_real() * right.as_real());
}

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value join_strings(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_markup == right.is_markup) {
    runtime.charge_steps(1);
    Value joined = runtime.string(*left.string + *right.string);
    joined.is_markup = left.is_markup;
    return joined;
  }
  const std::string first = left.is_markup ? *left.string : escape_markup(*left.string);
  const std::string second = right.is_markup ? *right.string : escape_markup(*right.string);
  Value joined = runtime.string(first + second);
  joined.is_markup = true;
  return joined;
}

Value repeat(Runtime& runtime, const Value& value, int64_t count) {
  const size_t n = count < 0 ? 0 : static_cast<size_t>(count);
  const bool is_string = value.is(Kind::string);
  const size_t unit = is_string ? value.string->size() : value.list->items.size() * sizeof(Value);
  if (unit != 0 && n > runtime.limits().max_memory_bytes / unit) {
    runtime.refuse("the template makes more than {} bytes of values",
                   runtime.limits().max_memory_bytes);
  }
  // Before the copy exists, so that a limit bounds memory and not only its accounting.
  runtime.charge_memory(unit * n);
  if (is_string) {
    std::string text;
    text.reserve(unit * n);
    for (size_t i = 0; i < n && unit != 0; ++i) text += *value.string;
    return runtime.string(std::move(text));
  }
  List* list = runtime.arena.new_list();
  list->flavour = value.list->flavour;
  for (size_t i = 0; i < n && unit != 0; ++i) {
    list->items.insert(list->items.end(), value.list->items.begin(), value.list->items.end());
  }
  return runtime.list(list);
}

bool is_plain_list(const Value& value) {
  return value.is(Kind::list) && (value.list->flavour == List::Flavour::list ||
                                  value.list->flavour == List::Flavour::tuple);
}

Value join_lists(Runtime& runtime, const Value& left, const Value& right) {
  List* list = runtime.arena.new_list();
  list->flavour = left.list->flavour;
  list->items.reserve(left.list->items.size() + right.list->items.size());
  list->items = left.list->items;
  list->items.insert(list->items.end(), right.list->items.begin(), right.list->items.end());
  return runtime.list(list);
}

template <typename T>
bool ordered(std::string_view op, const T& left, const T& right) {
  if (op == "<") return left < right;
  if (op == "<=") return left <= right;
  if (op == ">") return left > right;
  return left >= right;
}

bool lists_equal(Runtime& runtime, const List& left, const List& right) {
  if (&left == &right) return true;
  if (left.flavour != right.flavour || left.flavour == List::Flavour::generator ||
      left.items.size() != right.items.size()) {
    return false;
  }
  for (size_t i = 0; i < left.items.size(); ++i) {
    if (!equals(runtime, left.items[i], right.items[i])) return false;
  }
  return true;
}

bool dicts_equal(Runtime& runtime, const Dict& left, const Dict& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = right.find(*key);
    if (other == nullptr || !equals(runtime, value, *other)) return false;
  }
  return true;
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big_integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      switch (value.list->flavour) {
        case List::Flavour::list:
          return "list";
        case List::Flavour::tuple:
          return "tuple";
        case List::Flavour::range:
          return "range";
        case List::Flavour::view:
          return "dict view";
        case List::Flavour::generator:
          return "generator";
      }
      return "list";
    case Kind::dict:
      return "dict";
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::callable:
      return "function";
  }
  return "value";
}

void require_defined(const Runtime& runtime, const Value& value) {
  if (!value.is(Kind::undefined)) return;
  runtime.refuse("{}", value.string == nullptr ? "an undefined value is used" : *value.string);
}

bool is_true(const Runtime&, const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean;
    case Kind::integer:
      return value.integer != 0;
    case Kind::real:
      return value.real != 0.0;
    case Kind::string:
      return !value.string->empty();
    case Kind::list:
      return value.list->flavour == List::Flavour::generator || !value.list->items.empty();
    case Kind::dict:
      return !value.dict->entries.empty();
    default:
      return true;
  }
}

bool equals(Runtime& runtime, const Value& left, const Value& right) {
  runtime.charge_steps(1);
  const DepthGuard guard(runtime, &runtime.value_depth, kMaxValueDepth);
  if (left.is_number() && right.is_number()) {
    // 64 bits of mantissa hold every integer exactly.
    const auto exact = [](const Value& v) {
      return v.is(Kind::real) ? static_cast<long double>(v.real)
                              : static_cast<long double>(v.as_integer());
    };
    return exact(left) == exact(right);
  }
  if (left.kind != right.kind) return false;
  switch (left.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
    case Kind::big_integer:
      if (left.string->size() == right.string->size())
        runtime.charge_bytes_read(left.string->size());
      return *left.string == *right.string;
    case Kind::list:
      return lists_equal(runtime, *left.list, *right.list);
    case Kind::dict:
      return left.dict == right.dict || dicts_equal(runtime, *left.dict, *right.dict);
    case Kind::name_space:
      return left.dict == right.dict;
    case Kind::loop:
      return left.loop == right.loop;
    default:
      return left.callable == right.callable;
  }
}

bool compare(Runtime& runtime, std::string_view op, const Value& left, const Value& right) {
  if (op == "==") return equals(runtime, left, right);
  if (op == "!=") return !equals(runtime, left, right);
  if (op == "in") return contains(runtime, right, left);
  if (op == "not in") return !contains(runtime, right, left);
  require_defined(runtime, left);
  require_defined(runtime, right);
  if (left.is_number() && right.is_number()) {
    if (left.is(Kind::real) || right.is(Kind::real)) {
      return ordered(op,
                     static_cast<long double>(left.is(Kind::real) ? left.real : 0.0) +
                         static_cast<long double>(left.is(Kind::real) ? 0 : left.as_integer()),
                     static_cast<long double>(right.is(Kind::real) ? right.real : 0.0) +
                         static_cast<long double>(right.is(Kind::real) ? 0 : right.as_integer()));
    }
    return ordered(op, left.as_integer(), right.as_integer());
  }
  if (left.is(Kind::string) && right.is(Kind::string)) {
    runtime.charge_bytes_read(std::min(left.string->size(), right.string->size()));
    return ordered(op, *left.string, *right.string);
  }
  refuse_operands(runtime, op, left, right);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::string:
      if (!item.is(Kind::string)) {
        require_defined(runtime, item);
        runtime.refuse("'in' on a string needs a string, not '{}'", type_name(item));
      }
      runtime.charge_bytes_read(container.string->size());
      return find_text(*container.string, *item.string) != std::string_view::npos;
    case Kind::dict:
      if (item.is(Kind::list) && item.list->flavour != List::Flavour::tuple) {
        runtime.refuse("a '{}' cannot be a key", type_name(item));
      }
      if (item.is(Kind::dict)) runtime.refuse("a 'dict' cannot be a key");
      return item.is(Kind::string) && container.dict->find(*item.string) != nullptr;
    case Kind::undefined:
      return false;
    case Kind::list: {
      const std::vector<Value> items = iterate(runtime, container);
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& v) { return equals(runtime, v, item); });
    }
    default:
      runtime.refuse("a '{}' cannot be searched with 'in'", type_name(container));
  }
}

Value binary(Runtime& runtime, std::string_view op, const Value& left, const Value& right) {
  require_defined(runtime, left);
  require_defined(runtime, right);
  if (left.is_number() && right.is_number()) return number_binary(runtime, op, left, right);
  if (left.is(Kind::big_integer) || right.is(Kind::big_integer)) refuse_large(runtime);
  if (op == "+") {
    if (left.is(Kind::string) && right.is(Kind::string)) return join_strings(runtime, left, right);
    if (is_plain_list(left) && is_plain_list(right) && left.list->flavour == right.list->flavour) {
      return join_lists(runtime, left, right);
    }
  }
  if (op == "*") {
    const auto repeats = [](const Value& v) { return v.is(Kind::string) || is_plain_list(v); };
    const auto counts = [](const Value& v) { return v.is(Kind::integer) || v.is(Kind::boolean); };
    if (repeats(left) && counts(right)) return repeat(runtime, left, right.as_integer());
    if (counts(left) && repeats(right)) return repeat(runtime, right, left.as_integer());
  }
  if (op == "%" && left.is(Kind::string))
    runtime.refuse("formatting a string with '%' is not supported");
  refuse_operands(runtime, op, left, right);
}

Value negate(Runtime& runtime, const Value& value) {
  require_defined(runtime, value);
  if (value.is(Kind::real)) return Value::of(-value.real);
  if (!value.is_number()) runtime.refuse("'-' cannot be applied to '{}'", type_name(value));
  return checked_integer(runtime, "-", 0, value.as_integer());
}

}  // namespace lockstep::jinja
