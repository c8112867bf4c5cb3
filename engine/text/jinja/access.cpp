// Iteration, length, attributes, subscripts and slices.
#include <algorithm>

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/utf8.h"

namespace lockstep::jinja {
namespace {

Value missing(Runtime& runtime, const Value& object, const std::string& name) {
  if (object.is(Kind::none))
    return runtime.undefined(fmt::format("'None' has no attribute '{}'", name));
  return runtime.undefined(
      fmt::format("'{} object' has no attribute '{}'", type_name(object), name));
}

Value loop_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  const Loop& loop = *object.loop;
  const auto n = static_cast<int64_t>(loop.items->items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::of(index + 1);
  if (name == "index0") return Value::of(index);
  if (name == "revindex") return Value::of(n - index);
  if (name == "revindex0") return Value::of(n - index - 1);
  if (name == "first") return Value::of(index == 0);
  if (name == "last") return Value::of(index == n - 1);
  if (name == "length") return Value::of(n);
  if (name == "depth") return Value::of(loop.depth);
  if (name == "depth0") return Value::of(loop.depth - 1);
  if (name == "previtem") {
    return index > 0 ? loop.items->items[loop.index - 1]
                     : runtime.undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < n ? loop.items->items[loop.index + 1]
                         : runtime.undefined("there is no next item");
  }
  return missing(runtime, object, name);
}

Value method_or_missing(Runtime& runtime, const Value& object, const std::string& name) {
  if (object.is(Kind::loop) && !has_method(object, name))
    return loop_attribute(runtime, object, name);
  if (!has_method(object, name)) {
    if (name.starts_with("__"))
      return runtime.undefined(fmt::format("access to the attribute '{}' is not allowed", name));
    return missing(runtime, object, name);
  }
  Callable* method = runtime.arena.new_callable();
  runtime.charge_memory(sizeof(Callable));
  method->type = Callable::Type::method;
  method->name = *runtime.arena.add(name);
  method->self = object;
  return Value::of(method);
}

const Value* find_key(const Value& object, const std::string& name) {
  const bool has_keys = object.is(Kind::dict) || object.is(Kind::name_space);
  return has_keys ? object.dict->find(name) : nullptr;
}

Value character_at(Runtime& runtime, const std::string& text, int64_t index) {
  runtime.charge_bytes_read(text.size());
  const auto n = static_cast<int64_t>(count_code_points(text));
  if (index < 0) index += n;
  if (index < 0 || index >= n)
    return runtime.undefined(fmt::format("a string has no place {}", index));
  const size_t begin = code_point_offset(text, static_cast<size_t>(index));
  size_t end = begin;
  next_code_point(text, &end);
  return runtime.string(text.substr(begin, end - begin));
}

bool has_places(const Value& object) {
  return object.is(Kind::list) && object.list->flavour != List::Flavour::view &&
         object.list->flavour != List::Flavour::generator;
}

// The places that Python's slice(start, stop, step) selects from n.
std::vector<size_t> slice_places(int64_t n, std::optional<int64_t> start,
                                 std::optional<int64_t> stop, int64_t step) {
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? n : n - 1;
  const auto clip = [&](int64_t place) {
    if (place < 0) place = place < -n ? low : place + n;
    return std::clamp(place, low, high);
  };
  int64_t at = start ? clip(*start) : (step > 0 ? low : high);
  const int64_t end = stop ? clip(*stop) : (step > 0 ? high : low);
  std::vector<size_t> places;
  while (step > 0 ? at < end : at > end) {
    places.push_back(static_cast<size_t>(at));
    if (step > n || step < -n) break;
    at += step;
  }
  return places;
}

}  // namespace

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  switch (value.kind) {
    case Kind::undefined:
      return items;
    case Kind::list:
      runtime.charge_steps(static_cast<int64_t>(value.list->items.size() / 8));
      if (value.list->flavour == List::Flavour::generator &&
          std::exchange(value.list->consumed, true)) {
        return items;
      }
      return value.list->items;
    case Kind::dict:
      runtime.charge_steps(static_cast<int64_t>(value.dict->entries.size() / 8));
      for (const auto& entry : value.dict->entries) items.push_back(Value::of(entry.first));
      return items;
    case Kind::string: {
      const std::string& text = *value.string;
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        next_code_point(text, &at);
        items.push_back(runtime.string(text.substr(begin, at - begin)));
      }
      return items;
    }
    default:
      runtime.refuse("a '{}' cannot be iterated", type_name(value));
  }
}

int64_t length(Runtime& runtime, const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      runtime.charge_bytes_read(value.string->size());
      return static_cast<int64_t>(count_code_points(*value.string));
    case Kind::dict:
      return static_cast<int64_t>(value.dict->entries.size());
    case Kind::list:
      if (value.list->flavour == List::Flavour::generator) break;
      return static_cast<int64_t>(value.list->items.size());
    default:
      break;
  }
  runtime.refuse("a '{}' has no length", type_name(value));
}

Value get_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  require_defined(runtime, object);
  // Python's attributes come before keys: `d.items` is the method even where a key has that name.
  if (object.is(Kind::dict) && has_method(object, name))
    return method_or_missing(runtime, object, name);
  if (const Value* found = find_key(object, name)) return *found;
  return method_or_missing(runtime, object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  require_defined(runtime, object);
  if (key.is(Kind::string)) {
    if (const Value* found = find_key(object, *key.string)) return *found;
    return method_or_missing(runtime, object, *key.string);
  }
  const bool is_place = key.is(Kind::integer) || key.is(Kind::boolean);
  if (is_place && object.is(Kind::string))
    return character_at(runtime, *object.string, key.as_integer());
  if (is_place && has_places(object)) {
    const auto n = static_cast<int64_t>(object.list->items.size());
    const int64_t index = key.as_integer() < 0 ? key.as_integer() + n : key.as_integer();
    if (index >= 0 && index < n) return object.list->items[static_cast<size_t>(index)];
    return runtime.undefined(fmt::format("a list of {} has no place {}", n, key.as_integer()));
  }
  return runtime.undefined(fmt::format("a '{}' has no such element", type_name(object)));
}

Value get_slice(Runtime& runtime, const Value& object, std::optional<int64_t> start,
                std::optional<int64_t> stop, std::optional<int64_t> step) {
  require_defined(runtime, object);
  if (step == 0) runtime.refuse("a slice's step cannot be zero");
  const int64_t stride = step.value_or(1);
  if (object.is(Kind::string)) {
    runtime.charge_memory(object.string->size());
    const std::vector<uint32_t> codes = to_code_points(*object.string);
    std::string text;
    for (const size_t place :
         slice_places(static_cast<int64_t>(codes.size()), start, stop, stride)) {
      append_utf8(text, codes[place]);
    }
    return runtime.string(std::move(text));
  }
  if (!has_places(object)) {
    runtime.refuse("a '{}' has no slices", type_name(object));
  }
  const std::vector<Value>& items = object.list->items;
  List* list = runtime.arena.new_list();
  list->flavour = object.list->flavour;
  for (const size_t place : slice_places(static_cast<int64_t>(items.size()), start, stop, stride)) {
    list->items.push_back(items[place]);
  }
  return runtime.list(list);
}

}  // namespace lockstep::jinja
