#include "engine/rank/api/json_view.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/rank/api/api_error.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

// Members keep their order: tool schemas reach the template as they were written.
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 200;  // writing a value takes stack for each level
// Members in order are found one after the other, so that n of them take n * n steps to read.
constexpr int kMaxMembers = 1024;

const Json& json_at(const void* node) {
  return *static_cast<const Json*>(node);
}

// Refuses what would take too long to parse, or too much stack: by brackets and colons outside
// strings alone.
void check_shape(std::string_view text) {
  std::array<int, kMaxDepth + 1> n_members{};  // by depth, of the object that is open there
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) {
        refuse_field("", fmt::format("the request's body nests deeper than {} levels", kMaxDepth));
      }
      n_members[static_cast<size_t>(depth)] = 0;
    } else if (c == ']' || c == '}') {
      depth = std::max(0, depth - 1);
    } else if (c == ':' && ++n_members[static_cast<size_t>(depth)] > kMaxMembers) {
      refuse_field("", fmt::format("the request's body has an object with more than {} members",
                                   kMaxMembers));
    }
  }
}

std::string number_text(double value) {
  return fmt::format("{}", value);
}

}  // namespace

bool JsonView::given() const {
  return node_ != nullptr && !json_at(node_).is_null();
}
bool JsonView::is_string() const {
  return given() && json_at(node_).is_string();
}
bool JsonView::is_array() const {
  return given() && json_at(node_).is_array();
}
bool JsonView::is_object() const {
  return given() && json_at(node_).is_object();
}
bool JsonView::is_integer() const {
  return given() && json_at(node_).is_number_integer();
}

JsonView JsonView::operator[](const char* key) const {
  if (!is_object()) refuse("must be an object");
  const Json& json = json_at(node_);
  const auto at = json.find(key);
  std::string path = path_.empty() ? key : path_ + "." + key;
  return {at == json.end() ? nullptr : static_cast<const void*>(&*at), std::move(path)};
}

size_t JsonView::size() const {
  if (!is_array()) refuse("must be a list");
  return json_at(node_).size();
}

JsonView JsonView::item(size_t index) const {
  LOCKSTEP_CHECK(index < size());
  return {&json_at(node_)[index], fmt::format("{}[{}]", path_, index)};
}

bool JsonView::flag() const {
  if (!given() || !json_at(node_).is_boolean()) refuse("must be true or false");
  return json_at(node_).get<bool>();
}

int64_t JsonView::integer(int64_t low, int64_t high) const {
  if (is_integer()) {
    const Json& json = json_at(node_);
    const bool fits = !json.is_number_unsigned() || json.get<uint64_t>() <= uint64_t{INT64_MAX};
    if (fits && json.get<int64_t>() >= low && json.get<int64_t>() <= high) {
      return json.get<int64_t>();
    }
  }
  if (high == INT64_MAX && low == INT64_MIN) refuse("must be an integer of 64 bits");
  if (high == INT64_MAX) refuse(fmt::format("must be an integer of at least {}", low));
  refuse(fmt::format("must be an integer in [{}, {}]", low, high));
}

double JsonView::number(double low, double high) const {
  if (given() && json_at(node_).is_number()) {
    const double value = json_at(node_).get<double>();
    if (value >= low && value <= high) return value;
  }
  refuse(fmt::format("must be a number in [{}, {}]", number_text(low), number_text(high)));
}

const std::string& JsonView::text() const {
  if (!is_string()) refuse("must be a string");
  return json_at(node_).get_ref<const std::string&>();
}

size_t JsonView::one_of(const std::vector<std::string_view>& names) const {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (is_string() && text() == names[i]) return i;
    list += (i == 0 ? "'" : ", '") + std::string(names[i]) + "'";
  }
  refuse("must be one of " + list);
}

void JsonView::refuse(const std::string& what, const std::string& code) const {
  refuse_field(path_, path_.empty() ? "the request " + what : what, code);
}

JsonDocument::JsonDocument(std::string_view text) {
  if (!is_valid_utf8(text)) refuse_field("", "the request's body is not valid UTF-8");
  check_shape(text);
  auto json = std::make_shared<Json>(Json::parse(text, nullptr, false));
  if (json->is_discarded()) refuse_field("", "the request's body is not valid JSON");
  if (!json->is_object()) refuse_field("", "the request's body must be a JSON object");
  value_ = std::move(json);
}

}  // namespace lockstep
