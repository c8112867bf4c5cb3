// Values of the template language and the memory that holds them during one rendering.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::jinja {

struct List;
struct Dict;
struct Loop;
struct Callable;

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  big_integer,  // an integer of the request beyond 64 bits: its digits, which only pass through
  real,
  string,
  list,
  dict,
  name_space,
  loop,
  callable,
};

// A small handle; what it points to belongs to the Arena (or, for string literals, to the template)
// and outlives the rendering. Strings are valid UTF-8 and count in code points.
struct Value {
  Kind kind = Kind::undefined;
  bool is_markup = false;  // of a string that went through `safe`: `+` escapes what it joins
  union {
    bool boolean;
    int64_t integer;
    double real;
    const std::string*
        string;  // also the digits of a big integer and an undefined value's complaint
    List* list;
    Dict* dict;  // also a namespace's attributes
    Loop* loop;
    const Callable* callable;
  };

  Value() : string(nullptr) {}
  static Value none() { return tagged(Kind::none); }
  static Value of(bool value);
  static Value of(int64_t value);
  static Value of(double value);
  static Value of(List* value);
  static Value of(Dict* value, Kind kind = Kind::dict);
  static Value of(Loop* value);
  static Value of(const Callable* value);
  static Value of(const std::string* value, Kind kind = Kind::string);

  bool is(Kind other) const { return kind == other; }
  bool is_number() const {
    return kind == Kind::boolean || kind == Kind::integer || kind == Kind::real;
  }
  // The value of an integer or boolean.
  int64_t as_integer() const { return kind == Kind::boolean ? (boolean ? 1 : 0) : integer; }
  // The value of an integer, boolean or real.
  double as_real() const { return kind == Kind::real ? real : static_cast<double>(as_integer()); }

 private:
  static Value tagged(Kind kind);
};

struct List {
  enum class Flavour : uint8_t {
    list,
    tuple,
    range,      // of range(): a sequence that is not printed here
    view,       // of dict.keys(), values() and items(): has a length, but no places
    generator,  // what map, select and their kin return: always true, iterated once, no length
  };
  std::vector<Value> items;
  Flavour flavour = Flavour::list;
  bool consumed = false;
};

// Keys are strings, in the order of insertion.
struct Dict {
  std::vector<std::pair<const std::string*, Value>> entries;

  const Value* find(std::string_view key) const;
  void set(const std::string* key, Value value);

 private:
  // Built when the dictionary outgrows a linear search.
  std::unordered_map<std::string_view, size_t> index_;
};

struct Loop {
  const List* items = nullptr;
  size_t index = 0;
  int64_t depth = 1;
  bool has_changed_value = false;
  std::vector<Value> changed_value;
};

struct Scope;
struct Statement;

struct Callable {
  enum class Type : uint8_t { global, method, macro };
  Type type = Type::global;
  std::string_view name;             // of the function or method
  Value self;                        // of a method
  const Statement* macro = nullptr;  // and the scope in which it was defined
  Scope* scope = nullptr;
};

// Variables of one block. Names are views into the template or the request.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// Owns everything that one rendering makes and frees it together, so that neither cycles nor deep
// nesting matter when values die.
class Arena {
 public:
  const std::string* add(std::string text) { return &strings_.emplace_back(std::move(text)); }
  List* new_list() { return &lists_.emplace_back(); }
  Dict* new_dict() { return &dicts_.emplace_back(); }
  Loop* new_loop() { return &loops_.emplace_back(); }
  Callable* new_callable() { return &callables_.emplace_back(); }
  Scope* new_scope(Scope* parent);

 private:
  std::deque<std::string> strings_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Loop> loops_;
  std::deque<Callable> callables_;
  std::deque<Scope> scopes_;
};

}  // namespace lockstep::jinja
