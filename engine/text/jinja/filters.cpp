#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/utf8.h"

namespace lockstep::jinja {
namespace {

using Filter = Value (*)(Runtime&, Value, ArgumentReader&);

// Text of the input; a string that went through `safe` stays marked.
Value soft_text(Runtime& runtime, const Value& input) {
  return input.is(Kind::string) ? input : runtime.string(to_text(runtime, input));
}

Value with_markup_of(const Value& source, Value text) {
  text.is_markup = source.is_markup;
  return text;
}

Value filter_abs(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  require_defined(runtime, input);
  if (input.is(Kind::real)) return Value::of(std::fabs(input.real));
  if (!input.is_number()) runtime.refuse("'abs' needs a number, not '{}'", type_name(input));
  return input.as_integer() < 0 ? negate(runtime, input) : Value::of(input.as_integer());
}

Value filter_default(Runtime& runtime, Value input, ArgumentReader& arguments) {
  const Value* fallback = arguments.optional("default_value");
  const bool also_false = arguments.optional_boolean("boolean", false);
  arguments.finish();
  if (!input.is(Kind::undefined) && !(also_false && !is_true(runtime, input))) return input;
  return fallback == nullptr ? runtime.string(std::string()) : *fallback;
}

Value pair_of(Runtime& runtime, const std::string* key, const Value& value) {
  List* pair = runtime.arena.new_list();
  pair->flavour = List::Flavour::tuple;
  pair->items = {Value::of(key), value};
  return runtime.list(pair);
}

Value filter_items(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  List* list = runtime.arena.new_list();
  list->flavour = List::Flavour::generator;
  if (input.is(Kind::dict)) {
    for (const auto& [key, value] : input.dict->entries)
      list->items.push_back(pair_of(runtime, key, value));
  } else if (!input.is(Kind::undefined)) {
    runtime.refuse("'items' needs a mapping, not '{}'", type_name(input));
  }
  return runtime.list(list);
}

// By key without regard to case, as Jinja2 does by default.
Value filter_dictsort(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  require_defined(runtime, input);
  if (!input.is(Kind::dict))
    runtime.refuse("'dictsort' needs a mapping, not '{}'", type_name(input));
  std::vector<std::pair<std::string, Value>> pairs;
  for (const auto& [key, value] : input.dict->entries) {
    pairs.emplace_back(to_lower(*key), pair_of(runtime, key, value));
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  List* list = runtime.arena.new_list();
  for (const auto& pair : pairs) list->items.push_back(pair.second);
  return runtime.list(list);
}

Value filter_first(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  const std::vector<Value> items = iterate(runtime, input);
  return items.empty() ? runtime.undefined("the sequence has no first item") : items.front();
}

Value filter_last(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  if (input.is(Kind::list) && input.list->flavour == List::Flavour::generator) {
    runtime.refuse("'last' cannot be applied to a generator; use the filter list first");
  }
  const std::vector<Value> items = iterate(runtime, input);
  return items.empty() ? runtime.undefined("the sequence has no last item") : items.back();
}

std::string without_underscores(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_digit = [&](size_t k) {
      return k < text.size() && text[k] >= '0' && text[k] <= '9';
    };
    if (text[i] != '_' || i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) digits += text[i];
  }
  return digits;
}

// float(text); false when Python would raise.
bool parse_real(std::string_view text, double* value) {
  const std::string digits = without_underscores(strip_text(text, nullptr, true, true));
  std::string_view rest = digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest.starts_with('+')) return false;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), *value);
  if (result.ec == std::errc::result_out_of_range) {
    *value =
        rest.find("e-") != std::string_view::npos ? 0.0 : std::numeric_limits<double>::infinity();
    return result.ptr == rest.data() + rest.size();
  }
  return result.ec == std::errc() && result.ptr == rest.data() + rest.size();
}

bool real_to_integer(double value, int64_t* integer) {
  if (!(value > -9.2e18 && value < 9.2e18)) return false;
  *integer = static_cast<int64_t>(value);
  return true;
}

Value filter_int(Runtime& runtime, Value input, ArgumentReader& arguments) {
  const int64_t fallback = arguments.optional_integer("default", 0);
  if (arguments.optional("base") != nullptr)
    runtime.refuse("the argument 'base' of 'int' is not supported");
  arguments.finish();
  require_defined(runtime, input);
  if (input.is(Kind::integer) || input.is(Kind::boolean)) return Value::of(input.as_integer());
  if (input.is(Kind::big_integer)) return input;
  int64_t integer = 0;
  if (input.is(Kind::real))
    return Value::of(real_to_integer(input.real, &integer) ? integer : fallback);
  if (!input.is(Kind::string)) return Value::of(fallback);
  const std::string digits = without_underscores(strip_text(*input.string, nullptr, true, true));
  std::string_view rest = digits;
  if (rest.starts_with('+') && !rest.starts_with("+-")) rest.remove_prefix(1);
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), integer);
  if (result.ptr == rest.data() + rest.size() && !rest.empty()) {
    if (result.ec == std::errc()) return Value::of(integer);
    runtime.refuse("an integer beyond 64 bits is not supported");
  }
  double real = 0.0;
  return Value::of(parse_real(*input.string, &real) && real_to_integer(real, &integer) ? integer
                                                                                       : fallback);
}

Value filter_float(Runtime& runtime, Value input, ArgumentReader& arguments) {
  const Value* given = arguments.optional("default");
  arguments.finish();
  require_defined(runtime, input);
  if (input.is_number()) return Value::of(input.as_real());
  double real = 0.0;
  if ((input.is(Kind::string) || input.is(Kind::big_integer)) && parse_real(*input.string, &real)) {
    return Value::of(real);
  }
  return given == nullptr ? Value::of(0.0) : *given;
}

Value filter_indent(Runtime& runtime, Value input, ArgumentReader& arguments) {
  constexpr int64_t kMaxWidth = 1000;
  const Value* width = arguments.optional("width");
  const bool first = arguments.optional_boolean("first", false);
  const bool blank = arguments.optional_boolean("blank", false);
  arguments.finish();
  std::string margin(4, ' ');
  if (width != nullptr && width->is(Kind::string)) {
    margin = *width->string;
  } else if (width != nullptr) {
    if (!width->is(Kind::integer) || width->integer > kMaxWidth) {
      runtime.refuse("the argument 'width' of 'indent' is neither text nor an integer up to {}",
                     kMaxWidth);
    }
    margin.assign(static_cast<size_t>(std::max<int64_t>(width->integer, 0)), ' ');
  }
  require_defined(runtime, input);
  if (!input.is(Kind::string)) runtime.refuse("'indent' needs text, not '{}'", type_name(input));
  const std::string text = *input.string + '\n';
  const std::vector<std::string_view> lines = split_lines(text);
  runtime.charge_memory(lines.size() * (margin.size() + 1));
  std::string out;
  if (first) out = margin;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += margin;
    out += lines[i];
  }
  return runtime.string(std::move(out));
}

// What `attribute="a.b.0"` names in an item.
Value attribute_path(Runtime& runtime, Value item, const Value& path) {
  if (path.is(Kind::integer)) return get_item(runtime, item, path);
  if (!path.is(Kind::string))
    runtime.refuse("an attribute's name is a '{}', not a string", type_name(path));
  const std::string dot = ".";
  for (const std::string_view part : split_text(*path.string, &dot, -1, false)) {
    int64_t place = 0;
    const auto result = std::from_chars(part.data(), part.data() + part.size(), place);
    const bool is_place = !part.empty() && result.ec == std::errc() &&
                          result.ptr == part.data() + part.size() && part[0] != '-';
    item = get_item(runtime, item, is_place ? Value::of(place) : runtime.string(part));
  }
  return item;
}

Value filter_join(Runtime& runtime, Value input, ArgumentReader& arguments) {
  const Value* given = arguments.optional("d");
  const Value* attribute = arguments.optional("attribute");
  arguments.finish();
  std::string separator;
  if (given != nullptr) separator = to_text(runtime, *given);
  std::string out;
  bool is_first = true;
  for (Value item : iterate(runtime, input)) {
    if (attribute != nullptr) item = attribute_path(runtime, item, *attribute);
    if (!is_first) {
      runtime.charge_memory(separator.size());
      out += separator;
    }
    is_first = false;
    out += to_text(runtime, item);
  }
  return runtime.string(std::move(out));
}

Value filter_length(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  return Value::of(length(runtime, input));
}

Value filter_list(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  List* list = runtime.arena.new_list();
  list->items = iterate(runtime, input);
  return runtime.list(list);
}

Value filter_case(Runtime& runtime, const Value& input, ArgumentReader& arguments,
                  std::string (*change)(std::string_view)) {
  arguments.finish();
  const Value text = soft_text(runtime, input);
  return with_markup_of(text, runtime.string(change(*text.string)));
}

Value filter_lower(Runtime& runtime, Value input, ArgumentReader& arguments) {
  return filter_case(runtime, input, arguments, to_lower);
}

Value filter_upper(Runtime& runtime, Value input, ArgumentReader& arguments) {
  return filter_case(runtime, input, arguments, to_upper);
}

Value filter_replace(Runtime& runtime, Value input, ArgumentReader& arguments) {
  const std::string from = to_text(runtime, arguments.required("old"));
  const std::string to = to_text(runtime, arguments.required("new"));
  const Value* count = arguments.optional("count");
  arguments.finish();
  if (count != nullptr && !count->is(Kind::none) && !count->is(Kind::integer)) {
    runtime.refuse("the argument 'count' of 'replace' is not an integer");
  }
  Arguments positional;
  positional.positional = {runtime.string(from), runtime.string(to)};
  if (count != nullptr && count->is(Kind::integer)) positional.positional.push_back(*count);
  return call_method(runtime, "replace", runtime.string(to_text(runtime, input)), positional);
}

Value filter_reverse(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  if (input.is(Kind::string)) return get_slice(runtime, input, std::nullopt, std::nullopt, -1);
  List* list = runtime.arena.new_list();
  list->items = iterate(runtime, input);
  std::reverse(list->items.begin(), list->items.end());
  list->flavour = List::Flavour::generator;
  return runtime.list(list);
}

Value filter_safe(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  Value text = soft_text(runtime, input);
  text.is_markup = true;
  return text;
}

Value filter_string(Runtime& runtime, Value input, ArgumentReader& arguments) {
  arguments.finish();
  return soft_text(runtime, input);
}

// What Hugging Face puts in the place of Jinja2's own filter: json.dumps.
Value filter_tojson(Runtime& runtime, Value input, ArgumentReader& arguments) {
  constexpr int64_t kMaxIndent = 1000;
  JsonStyle style;
  style.ascii_only = arguments.optional_boolean("ensure_ascii", false);
  const Value* indent = arguments.optional("indent");
  const Value* separators = arguments.optional("separators");
  style.sort_keys = arguments.optional_boolean("sort_keys", false);
  arguments.finish();
  if (indent != nullptr && !indent->is(Kind::none)) {
    if (!indent->is(Kind::integer) || indent->integer < 0 || indent->integer > kMaxIndent) {
      runtime.refuse("the argument 'indent' of 'tojson' is not an integer from 0 to {}",
                     kMaxIndent);
    }
    style.indent = indent->integer;
    style.item_separator = ",";
  }
  if (separators != nullptr && !separators->is(Kind::none)) {
    const std::vector<Value> parts = iterate(runtime, *separators);
    if (parts.size() != 2 || !parts[0].is(Kind::string) || !parts[1].is(Kind::string)) {
      runtime.refuse("the argument 'separators' of 'tojson' is not a pair of strings");
    }
    style.item_separator = *parts[0].string;
    style.key_separator = *parts[1].string;
  }
  return runtime.string(to_json(runtime, input, style));
}

Value filter_trim(Runtime& runtime, Value input, ArgumentReader& arguments) {
  const std::string* chars = arguments.optional_string("chars");
  arguments.finish();
  const Value text = soft_text(runtime, input);
  return with_markup_of(text, runtime.string(strip_text(*text.string, chars, true, true)));
}

const std::unordered_map<std::string_view, Filter>& filters() {
  static const std::unordered_map<std::string_view, Filter> table = {
      {"abs", filter_abs},         {"count", filter_length},      {"d", filter_default},
      {"default", filter_default}, {"dictsort", filter_dictsort}, {"first", filter_first},
      {"float", filter_float},     {"indent", filter_indent},     {"int", filter_int},
      {"items", filter_items},     {"join", filter_join},         {"last", filter_last},
      {"length", filter_length},   {"list", filter_list},         {"lower", filter_lower},
      {"replace", filter_replace}, {"reverse", filter_reverse},   {"safe", filter_safe},
      {"string", filter_string},   {"tojson", filter_tojson},     {"trim", filter_trim},
      {"upper", filter_upper},
  };
  return table;
}

// Filters that take the name of another filter or test with its arguments.
bool is_higher_filter(std::string_view name) {
  return name == "map" || name == "select" || name == "reject" || name == "selectattr" ||
         name == "rejectattr";
}

Value map_item(Runtime& runtime, const Value& item, const Arguments& arguments) {
  if (!arguments.positional.empty()) {
    const Value& name = arguments.positional[0];
    if (!name.is(Kind::string))
      runtime.refuse("the first argument of 'map' is not a filter's name");
    if (!is_known_filter(*name.string))
      runtime.refuse("the filter '{}' is not supported", *name.string);
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    return apply_filter(runtime, *name.string, item, rest);
  }
  ArgumentReader reader(runtime, "map", arguments);
  const Value path = reader.required("attribute");
  const Value* fallback = reader.optional("default");
  reader.finish();
  const Value found = attribute_path(runtime, item, path);
  return found.is(Kind::undefined) && fallback != nullptr ? *fallback : found;
}

// Whether select and its kin keep an item, before the reversal of the reject forms.
bool selects(Runtime& runtime, std::string_view filter, Value item, const Arguments& arguments) {
  Arguments rest = arguments;
  if (filter.ends_with("attr")) {
    if (rest.positional.empty()) runtime.refuse("'{}' lacks the attribute's name", filter);
    item = attribute_path(runtime, item, rest.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  if (rest.positional.empty()) return is_true(runtime, item);
  const Value name = rest.positional[0];
  if (!name.is(Kind::string)) runtime.refuse("the argument of '{}' is not a test's name", filter);
  if (!is_known_test(*name.string)) runtime.refuse("the test '{}' is not supported", *name.string);
  rest.positional.erase(rest.positional.begin());
  return apply_test(runtime, *name.string, item, rest);
}

Value apply_higher_filter(Runtime& runtime, std::string_view name, const Value& input,
                          const Arguments& arguments) {
  List* list = runtime.arena.new_list();
  list->flavour = List::Flavour::generator;
  // Jinja2 looks at the truth of its input first: none and 0 give nothing rather than an error.
  if (!is_true(runtime, input)) return runtime.list(list);
  for (const Value& item : iterate(runtime, input)) {
    runtime.charge_steps(1);
    if (name == "map") {
      list->items.push_back(map_item(runtime, item, arguments));
    } else if (selects(runtime, name, item, arguments) != name.starts_with("reject")) {
      list->items.push_back(item);
    }
  }
  return runtime.list(list);
}

}  // namespace

bool is_known_filter(std::string_view name) {
  return is_higher_filter(name) || filters().contains(name);
}

Value apply_filter(Runtime& runtime, std::string_view name, Value input,
                   const Arguments& arguments) {
  if (is_higher_filter(name)) return apply_higher_filter(runtime, name, input, arguments);
  ArgumentReader reader(runtime, name, arguments);
  return filters().at(name)(runtime, input, reader);
}

}  // namespace lockstep::jinja
