#include "engine/text/jinja/context.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::jinja {
namespace {

constexpr size_t kMaxNesting = 150;

// Builds values directly: a DOM would lose the digits of large integers.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  ValueBuilder(Runtime& runtime, std::string_view what) : runtime_(runtime), what_(what) {}

  bool null() override { return put(Value::none()); }
  bool boolean(bool value) override { return put(Value::of(value)); }
  bool number_integer(int64_t value) override { return put(Value::of(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value <= static_cast<uint64_t>(INT64_MAX))
      return put(Value::of(static_cast<int64_t>(value)));
    return put_digits(fmt::format("{}", value));
  }
  bool number_float(double value, const std::string& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return put_digits(text);
    return put(Value::of(value));
  }
  bool string(std::string& value) override { return put(runtime_.string(value)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }

  bool start_object(size_t) override { return open(Value::of(runtime_.arena.new_dict())); }
  bool start_array(size_t) override { return open(Value::of(runtime_.arena.new_list())); }
  bool key(std::string& name) override {
    runtime_.charge_memory(name.size() + 4 * sizeof(Value));
    open_.back().key = runtime_.arena.add(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail("{}: not valid JSON at byte {}", what_, position);
  }

  const Value& root() const { return root_; }

 private:
  struct Open {
    Value container;
    const std::string* key = nullptr;
  };

  bool put(Value value) {
    runtime_.charge_memory(sizeof(Value));
    if (open_.empty()) {
      root_ = value;
    } else if (open_.back().container.is(Kind::dict)) {
      open_.back().container.dict->set(open_.back().key, value);
    } else {
      open_.back().container.list->items.push_back(value);
    }
    return true;
  }

  bool put_digits(std::string digits) {
    return put(Value::of(runtime_.arena.add(std::move(digits)), Kind::big_integer));
  }

  bool open(Value container) {
    if (open_.size() >= kMaxNesting) fail("{}: nested deeper than {} levels", what_, kMaxNesting);
    put(container);
    open_.push_back({container});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Runtime& runtime_;
  std::string_view what_;
  Value root_;
  std::vector<Open> open_;
};

}  // namespace

Value value_of_json(Runtime& runtime, std::string_view json, std::string_view what) {
  ValueBuilder builder(runtime, what);
  nlohmann::json::sax_parse(json, &builder);
  return builder.root();
}

void add_json_variables(Runtime& runtime, std::string_view json, Scope* scope) {
  const Value root = value_of_json(runtime, json, "the template's variables");
  if (!root.is(Kind::dict)) fail("the template's variables: not a JSON object");
  for (const auto& [key, value] : root.dict->entries) scope->set(*key, value);
}

}  // namespace lockstep::jinja
