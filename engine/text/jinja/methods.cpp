// Methods of strings, dictionaries, lists and loops.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/utf8.h"

namespace lockstep::jinja {
namespace {

using Method = Value (*)(Runtime&, const Value& self, ArgumentReader&);

Value list_of_texts(Runtime& runtime, const std::vector<std::string_view>& parts) {
  List* list = runtime.arena.new_list();
  for (const std::string_view part : parts) list->items.push_back(runtime.string(part));
  return runtime.list(list);
}

// The bytes that a search may have to compare.
void charge_search(Runtime& runtime, const std::string& text, const std::string& needle) {
  runtime.charge_bytes_read(text.size());
  runtime.charge_bytes_read(text.size() * needle.size() / 16);
}

Value split(Runtime& runtime, const Value& self, ArgumentReader& arguments, bool from_right) {
  const std::string* separator = arguments.optional_string("sep");
  const int64_t max_splits = arguments.optional_integer("maxsplit", -1);
  arguments.finish();
  if (separator != nullptr && separator->empty()) runtime.refuse("split at an empty separator");
  charge_search(runtime, *self.string, separator == nullptr ? " " : *separator);
  return list_of_texts(runtime, split_text(*self.string, separator, max_splits, from_right));
}

template <bool kLeft, bool kRight>
Value strip(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const std::string* chars = arguments.optional_string("chars");
  arguments.finish();
  return runtime.string(strip_text(*self.string, chars, kLeft, kRight));
}

template <bool kAtStart>
Value starts_or_ends(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const Value wanted = arguments.required("affix");
  arguments.finish();
  const auto matches = [&](const Value& affix) {
    require_defined(runtime, affix);
    if (!affix.is(Kind::string))
      runtime.refuse("an affix is a '{}', not a string", type_name(affix));
    return kAtStart ? self.string->starts_with(*affix.string)
                    : self.string->ends_with(*affix.string);
  };
  if (wanted.is(Kind::list) && wanted.list->flavour == List::Flavour::tuple) {
    const std::vector<Value>& affixes = wanted.list->items;
    return Value::of(std::any_of(affixes.begin(), affixes.end(), matches));
  }
  return Value::of(matches(wanted));
}

template <bool kAtStart>
Value remove_affix(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const std::string& affix = arguments.required_string("affix");
  arguments.finish();
  std::string_view text = *self.string;
  if (kAtStart && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kAtStart && text.ends_with(affix)) text.remove_suffix(affix.size());
  return runtime.string(text);
}

int64_t count_text(const std::string& text, const std::string& needle) {
  if (needle.empty()) return static_cast<int64_t>(count_code_points(text)) + 1;
  int64_t n = 0;
  for (size_t at = find_text(text, needle); at != std::string_view::npos;
       at = find_text(text, needle, at + needle.size())) {
    ++n;
  }
  return n;
}

Value string_replace(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const std::string& from = arguments.required_string("old");
  const std::string& to = arguments.required_string("new");
  const int64_t count = arguments.optional_integer("count", -1);
  arguments.finish();
  runtime.charge_bytes_read(self.string->size());
  const int64_t n_found = count_text(*self.string, from);
  const auto n = static_cast<size_t>(count < 0 ? n_found : std::min(count, n_found));
  // Before the copy exists; the sizes' product cannot overflow: both are bounded by the memory
  // limit.
  runtime.charge_memory(n * to.size());
  return runtime.string(replace_text(*self.string, from, to, count));
}

template <bool kFirst>
Value string_find(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const std::string& needle = arguments.required_string("sub");
  arguments.finish();
  charge_search(runtime, *self.string, needle);
  const size_t found = kFirst ? find_text(*self.string, needle) : self.string->rfind(needle);
  if (found == std::string::npos) return Value::of(int64_t{-1});
  return Value::of(
      static_cast<int64_t>(count_code_points(std::string_view(*self.string).substr(0, found))));
}

Value string_count(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const std::string& needle = arguments.required_string("sub");
  arguments.finish();
  runtime.charge_bytes_read(self.string->size());
  return Value::of(count_text(*self.string, needle));
}

Value string_join(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const Value parts = arguments.required("iterable");
  arguments.finish();
  std::string out;
  bool is_first = true;
  for (const Value& part : iterate(runtime, parts)) {
    if (!part.is(Kind::string)) runtime.refuse("'join' needs strings, found '{}'", type_name(part));
    runtime.charge_memory(self.string->size() + part.string->size());
    if (!is_first) out += *self.string;
    is_first = false;
    out += *part.string;
  }
  return runtime.string(std::move(out));
}

Value string_isdigit(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  arguments.finish();
  const std::string& text = *self.string;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80)
      runtime.refuse("'isdigit' of text beyond ASCII is not supported");
  }
  return Value::of(!text.empty() && std::all_of(text.begin(), text.end(),
                                                [](char c) { return c >= '0' && c <= '9'; }));
}

Value dict_items(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  arguments.finish();
  List* list = runtime.arena.new_list();
  list->flavour = List::Flavour::view;
  for (const auto& [key, value] : self.dict->entries) {
    List* pair = runtime.arena.new_list();
    pair->flavour = List::Flavour::tuple;
    pair->items = {Value::of(key), value};
    list->items.push_back(runtime.list(pair));
  }
  return runtime.list(list);
}

template <bool kKeys>
Value dict_parts(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  arguments.finish();
  List* list = runtime.arena.new_list();
  list->flavour = List::Flavour::view;
  for (const auto& [key, value] : self.dict->entries)
    list->items.push_back(kKeys ? Value::of(key) : value);
  return runtime.list(list);
}

Value dict_get(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const Value key = arguments.required("key");
  const Value* fallback = arguments.optional("default");
  arguments.finish();
  require_defined(runtime, key);
  const Value* found = key.is(Kind::string) ? self.dict->find(*key.string) : nullptr;
  if (found != nullptr) return *found;
  return fallback == nullptr ? Value::none() : *fallback;
}

template <bool kIndex>
Value list_search(Runtime& runtime, const Value& self, ArgumentReader& arguments) {
  const Value wanted = arguments.required("value");
  arguments.finish();
  int64_t n = 0;
  for (size_t i = 0; i < self.list->items.size(); ++i) {
    if (!equals(runtime, self.list->items[i], wanted)) continue;
    if (kIndex) return Value::of(static_cast<int64_t>(i));
    ++n;
  }
  if (kIndex) runtime.refuse("'index' does not find the value in the list");
  return Value::of(n);
}

Value loop_cycle(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) runtime.refuse("'loop.cycle' needs values");
  return arguments.positional[self.loop->index % arguments.positional.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Loop& loop = *self.loop;
  bool same = loop.has_changed_value && loop.changed_value.size() == arguments.positional.size();
  for (size_t i = 0; same && i < loop.changed_value.size(); ++i) {
    same = equals(runtime, loop.changed_value[i], arguments.positional[i]);
  }
  loop.has_changed_value = true;
  loop.changed_value = arguments.positional;
  return Value::of(!same);
}

using MethodTable = std::unordered_map<std::string_view, Method>;

const MethodTable& string_methods() {
  static const MethodTable table = {
      {"count", string_count},
      {"endswith", starts_or_ends<false>},
      {"find", string_find<true>},
      {"isdigit", string_isdigit},
      {"join", string_join},
      {"lower",
       [](Runtime& runtime, const Value& self, ArgumentReader& arguments) {
         arguments.finish();
         return runtime.string(to_lower(*self.string));
       }},
      {"lstrip", strip<true, false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"replace", string_replace},
      {"rfind", string_find<false>},
      {"rsplit",
       [](Runtime& r, const Value& self, ArgumentReader& a) { return split(r, self, a, true); }},
      {"rstrip", strip<false, true>},
      {"split",
       [](Runtime& r, const Value& self, ArgumentReader& a) { return split(r, self, a, false); }},
      {"splitlines",
       [](Runtime& runtime, const Value& self, ArgumentReader& arguments) {
         arguments.finish();
         return list_of_texts(runtime, split_lines(*self.string));
       }},
      {"startswith", starts_or_ends<true>},
      {"strip", strip<true, true>},
      {"upper",
       [](Runtime& runtime, const Value& self, ArgumentReader& arguments) {
         arguments.finish();
         return runtime.string(to_upper(*self.string));
       }},
  };
  return table;
}

const MethodTable& dict_methods() {
  static const MethodTable table = {{"get", dict_get},
                                    {"items", dict_items},
                                    {"keys", dict_parts<true>},
                                    {"values", dict_parts<false>}};
  return table;
}

const MethodTable& list_methods() {
  static const MethodTable table = {{"count", list_search<false>}, {"index", list_search<true>}};
  return table;
}

// Methods that Python has and this engine has not: naming one is an error rather than undefined.
constexpr std::array<std::string_view, 29> kOtherStringMethods = {
    "capitalize", "casefold",  "center",       "encode",      "expandtabs", "format",
    "format_map", "index",     "isalnum",      "isalpha",     "isascii",    "isdecimal",
    "islower",    "isnumeric", "isidentifier", "isprintable", "isspace",    "istitle",
    "isupper",    "ljust",     "maketrans",    "partition",   "rindex",     "rjust",
    "rpartition", "swapcase",  "title",        "translate",   "zfill"};
constexpr std::array<std::string_view, 7> kOtherDictMethods = {
    "clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 9> kOtherListMethods = {
    "append", "clear", "copy", "extend", "insert", "pop", "remove", "reverse", "sort"};

template <size_t N>
bool listed(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_method_list(const Value& self) {
  return self.is(Kind::list) && self.list->flavour != List::Flavour::view &&
         self.list->flavour != List::Flavour::generator;
}

const MethodTable* methods_of(const Value& self) {
  if (self.is(Kind::string)) return &string_methods();
  if (self.is(Kind::dict)) return &dict_methods();
  return is_method_list(self) ? &list_methods() : nullptr;
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  if (self.is(Kind::loop)) return name == "cycle" || name == "changed";
  const MethodTable* table = methods_of(self);
  if (table == nullptr) return false;
  if (table->contains(name)) return true;
  if (self.is(Kind::string)) return listed(kOtherStringMethods, name);
  if (self.is(Kind::dict)) return listed(kOtherDictMethods, name);
  return self.list->flavour == List::Flavour::list && listed(kOtherListMethods, name);
}

Value call_method(Runtime& runtime, std::string_view name, Value self, const Arguments& arguments) {
  if (self.is(Kind::loop)) {
    return name == "cycle" ? loop_cycle(runtime, self, arguments)
                           : loop_changed(runtime, self, arguments);
  }
  const MethodTable* table = methods_of(self);
  LOCKSTEP_CHECK(table != nullptr);
  const auto found = table->find(name);
  if (found == table->end()) {
    runtime.refuse("the method '{}' of '{}' is not supported", name, type_name(self));
  }
  ArgumentReader reader(runtime, name, arguments);
  return found->second(runtime, self, reader);
}

}  // namespace lockstep::jinja
