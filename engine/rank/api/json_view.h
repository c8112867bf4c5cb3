// The JSON of a request, read field by field. Every complaint is an ApiError 400 that names the
// field by its path ("messages[2].content[0].type").
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// A value at a path. Valid while its document lives.
class JsonView {
 public:
  // Absent fields and null are not given: the originals treat them alike.
  bool given() const;
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;
  bool is_integer() const;
  const std::string& path() const { return path_; }

  // A member of an object, perhaps not given. Refuses when this is no object.
  JsonView operator[](const char* key) const;
  // The number of items of a list. Refuses when this is no list.
  size_t size() const;
  JsonView item(size_t index) const;

  // Each refuses a value of another type or outside the range.
  bool flag() const;
  int64_t integer(int64_t low, int64_t high) const;
  double number(double low, double high) const;
  const std::string& text() const;
  // One of `names`; returns its place.
  size_t one_of(const std::vector<std::string_view>& names) const;

  [[noreturn]] void refuse(const std::string& what, const std::string& code = "") const;

  // The nlohmann::ordered_json behind it; null when absent. For .cpp files that copy parts.
  const void* node() const { return node_; }

 private:
  friend class JsonDocument;
  JsonView(const void* node, std::string path) : node_(node), path_(std::move(path)) {}

  const void* node_;
  std::string path_;
};

class JsonDocument {
 public:
  // Throws ApiError for text that is not UTF-8, not JSON, no object, or nested too deeply.
  explicit JsonDocument(std::string_view text);

  JsonView root() const { return {value_.get(), ""}; }

 private:
  std::shared_ptr<const void> value_;
};

}  // namespace lockstep
