// Functions that every template sees.
#include <algorithm>
#include <array>
#include <ctime>

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"

namespace lockstep::jinja {
namespace {

Value make_range(Runtime& runtime, const Arguments& arguments) {
  ArgumentReader reader(runtime, "range", arguments);
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  if (arguments.positional.size() < 2) {
    if (arguments.positional.empty()) runtime.refuse("'range' lacks its argument");
    stop = reader.optional_integer("stop", 0);
  } else {
    start = reader.optional_integer("start", 0);
    stop = reader.optional_integer("stop", 0);
    step = reader.optional_integer("step", 1);
  }
  reader.finish();
  if (step == 0) runtime.refuse("the step of 'range' is zero");
  const auto limit = static_cast<int64_t>(runtime.limits().max_range);
  List* list = runtime.arena.new_list();
  list->flavour = List::Flavour::range;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(list->items.size()) == limit)
      runtime.refuse("a range of more than {} numbers", limit);
    list->items.push_back(Value::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return runtime.list(list);
}

// dict(k=v, ...), namespace(k=v, ...), both also with a mapping to start from.
Value make_dict(Runtime& runtime, std::string_view name, const Arguments& arguments) {
  Dict* dict = runtime.arena.new_dict();
  if (arguments.positional.size() > 1) runtime.refuse("'{}' takes at most one mapping", name);
  for (const Value& source : arguments.positional) {
    if (!source.is(Kind::dict))
      runtime.refuse("'{}' of a '{}' is not supported", name, type_name(source));
    for (const auto& [key, value] : source.dict->entries) dict->set(key, value);
  }
  for (const auto& [key, value] : arguments.named) {
    dict->set(runtime.arena.add(std::string(key)), value);
  }
  runtime.charge_memory(sizeof(Dict) + dict->entries.size() * 2 * sizeof(Value));
  return Value::of(dict, name == "dict" ? Kind::dict : Kind::name_space);
}

Value format_time(Runtime& runtime, const Arguments& arguments) {
  ArgumentReader reader(runtime, "strftime_now", arguments);
  const std::string format = reader.required_string("format");
  reader.finish();
  if (!runtime.has_now)
    runtime.refuse("the template asks for the date, and the request brings none");
  const std::time_t seconds = runtime.now_unix_s;
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) runtime.refuse("the request's date is out of range");
  std::array<char, 4096> buffer;
  if (format.empty()) return runtime.string(std::string());
  const size_t n = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
  if (n == 0) runtime.refuse("'strftime_now' makes no text, or too much, of its format");
  return runtime.string(std::string(buffer.data(), n));
}

constexpr std::array<std::string_view, 5> kGlobals = {"range", "namespace", "dict",
                                                      "raise_exception", "strftime_now"};
constexpr std::array<std::string_view, 3> kOtherGlobals = {"cycler", "joiner", "lipsum"};

}  // namespace

bool is_known_global(std::string_view name) {
  return std::find(kGlobals.begin(), kGlobals.end(), name) != kGlobals.end() ||
         std::find(kOtherGlobals.begin(), kOtherGlobals.end(), name) != kOtherGlobals.end();
}

Value call_global(Runtime& runtime, std::string_view name, const Arguments& arguments) {
  if (name == "range") return make_range(runtime, arguments);
  if (name == "namespace" || name == "dict") return make_dict(runtime, name, arguments);
  if (name == "strftime_now") return format_time(runtime, arguments);
  if (name == "raise_exception") {
    ArgumentReader reader(runtime, name, arguments);
    const std::string message = to_text(runtime, reader.required("message"));
    runtime.refuse("the template refuses the request: {}", message);
  }
  runtime.refuse("the function '{}' is not supported", name);
}

}  // namespace lockstep::jinja
