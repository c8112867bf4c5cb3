#include "validation/compare/name_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

template <typename... Args>
[[noreturn]] void bad_map(const std::string& where, fmt::format_string<Args...> format,
                          Args&&... args) {
  fail_with(ExitCode::usage, "{}: {}", where, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void bad_dump(const std::string& where, fmt::format_string<Args...> format,
                           Args&&... args) {
  fail_with(ExitCode::could_not_judge, "{}: {}", where,
            fmt::format(format, std::forward<Args>(args)...));
}

std::string text_member(const Json& json, const char* key, const std::string& where) {
  if (!json.contains(key)) return {};
  if (!json[key].is_string()) bad_map(where, "\"{}\" must be a string", key);
  return json[key].get<std::string>();
}

bool flag_member(const Json& json, const char* key, const std::string& where) {
  if (!json.contains(key)) return false;
  if (!json[key].is_boolean()) bad_map(where, "\"{}\" must be true or false", key);
  return json[key].get<bool>();
}

std::optional<int64_t> count_member(const Json& json, const char* key, const std::string& where) {
  if (!json.contains(key)) return std::nullopt;
  if (!json[key].is_number_unsigned()) bad_map(where, "\"{}\" must be a number from 0", key);
  return json[key].get<int64_t>();
}

void read_join(const Json& json, const std::string& where, NameRule& rule) {
  const std::string how = text_member(json, "join", where);
  if (how.empty() || how == "same") return;
  if (how == "sum") {
    rule.join = Join::sum;
  } else if (how.starts_with("concat:") && how.size() == 8 && how[7] >= '0' && how[7] <= '7') {
    rule.join = Join::concat;
    rule.join_dim = static_cast<size_t>(how[7] - '0');
  } else {
    bad_map(where, "\"join\" must be same, sum or concat:D with D a dimension");
  }
}

NameRule read_rule(const Json& json, const std::string& where) {
  const std::set<std::string> known = {"from",    "to",        "drop",  "shift", "index",
                                       "squeeze", "transpose", "first", "last",  "join"};
  if (!json.is_object()) bad_map(where, "must be an object");
  for (const auto& [key, value] : json.items()) {
    if (known.count(key) == 0) bad_map(where, "unknown member \"{}\"", key);
  }
  NameRule rule;
  rule.from = text_member(json, "from", where);
  rule.to = text_member(json, "to", where);
  rule.drop = flag_member(json, "drop", where);
  rule.squeeze = flag_member(json, "squeeze", where);
  rule.transpose = flag_member(json, "transpose", where);
  rule.index = count_member(json, "index", where);
  rule.first = count_member(json, "first", where);
  rule.last = count_member(json, "last", where);
  read_join(json, where, rule);
  if (json.contains("shift")) {
    if (!json["shift"].is_number_integer()) bad_map(where, "\"shift\" must be an integer");
    rule.shift = json["shift"].get<int64_t>();
  }
  const auto stars = [](const std::string& text) { return std::ranges::count(text, '*'); };
  if (rule.from.empty() || stars(rule.from) > 1 || stars(rule.to) > stars(rule.from)) {
    bad_map(where, "\"from\" needs a name with at most one '*', \"to\" no more than that");
  }
  if (rule.drop != rule.to.empty()) bad_map(where, "needs either \"to\" or \"drop\"");
  return rule;
}

int64_t elements(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t d = begin; d < end; ++d) n *= shape[d];
  return n;
}

// Rows begin .. begin + n - 1 of dimension 0.
FloatTensor rows_of(const FloatTensor& tensor, int64_t begin, int64_t n) {
  const int64_t width = elements(tensor.shape, 1, tensor.shape.size());
  FloatTensor part{tensor.shape, {}};
  part.shape[0] = n;
  part.values.assign(tensor.values.begin() + begin * width,
                     tensor.values.begin() + (begin + n) * width);
  return part;
}

FloatTensor transposed(const FloatTensor& tensor) {
  const int64_t rows = tensor.shape[0];
  const int64_t columns = tensor.shape[1];
  FloatTensor result{{columns, rows}, std::vector<float>(tensor.values.size())};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      result.values[static_cast<size_t>(c * rows + r)] =
          tensor.values[static_cast<size_t>(r * columns + c)];
    }
  }
  return result;
}

FloatTensor concatenate(const std::vector<FloatTensor>& parts, size_t dim,
                        const std::string& label) {
  FloatTensor whole = parts[0];
  if (dim >= whole.shape.size()) bad_dump(label, "has no dimension {} to join", dim);
  whole.shape[dim] = 0;
  for (const FloatTensor& part : parts) {
    std::vector<int64_t> rest = part.shape;
    if (rest.size() == whole.shape.size()) rest[dim] = whole.shape[dim];
    if (rest != whole.shape) bad_dump(label, "the files hold parts that do not fit together");
    whole.shape[dim] += part.shape[dim];
  }
  const int64_t outer = elements(whole.shape, 0, dim);
  whole.values.clear();
  for (int64_t i = 0; i < outer; ++i) {
    for (const FloatTensor& part : parts) {
      const int64_t n = elements(part.shape, dim, part.shape.size());
      whole.values.insert(whole.values.end(), part.values.begin() + i * n,
                          part.values.begin() + (i + 1) * n);
    }
  }
  return whole;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name, std::string* star) {
  const size_t at = pattern.find('*');
  if (at == std::string_view::npos) return pattern == name;
  const std::string_view head = pattern.substr(0, at);
  const std::string_view tail = pattern.substr(at + 1);
  if (name.size() < head.size() + tail.size()) return false;
  if (!name.starts_with(head) || !name.ends_with(tail)) return false;
  if (star != nullptr) *star = name.substr(at, name.size() - head.size() - tail.size());
  return true;
}

NameMap parse_name_map(const std::string& text, const std::string& label) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) bad_map(label, "is not a JSON object");
  if (!json.contains("version") || json["version"] != kVersion) {
    bad_map(label, "\"version\" must be {}", kVersion);
  }
  for (const auto& [key, value] : json.items()) {
    if (key != "version" && key != "names" && key != "only") {
      bad_map(label, "unknown member \"{}\"", key);
    }
  }
  NameMap map;
  map.label = label;
  if (!json.contains("names") || !json["names"].is_array() || json["names"].empty()) {
    bad_map(label, "\"names\" must be a list of rules");
  }
  for (size_t i = 0; i < json["names"].size(); ++i) {
    map.rules.push_back(read_rule(json["names"][i], fmt::format("{}: names[{}]", label, i)));
  }
  if (!json.contains("only")) return map;
  for (const Json& pattern : json["only"]) {
    if (!pattern.is_string()) bad_map(label, "\"only\" must be a list of tap names");
    map.only.push_back(pattern.get<std::string>());
  }
  return map;
}

NameMap read_name_map(const std::filesystem::path& path) {
  return parse_name_map(read_text_file(path), path.string());
}

Renamed rename(const NameMap& map, const std::string& name) {
  std::string star;
  for (const NameRule& rule : map.rules) {
    if (!matches(rule.from, name, &star)) continue;
    if (rule.drop) return {&rule, {}};
    std::string tap = rule.to;
    const size_t at = tap.find('*');
    if (at == std::string::npos) return {&rule, tap};
    if (rule.shift != 0) {
      int64_t number = 0;
      const auto [end, error] = std::from_chars(star.data(), star.data() + star.size(), number);
      if (error != std::errc() || end != star.data() + star.size()) {
        bad_dump(map.label, "tensor {}: '*' stands for {}, shift needs a number", name, star);
      }
      star = std::to_string(number + rule.shift);
    }
    return {&rule, tap.replace(at, 1, star)};
  }
  bad_dump(map.label, "no rule for tensor {}: name it, or drop it by a rule", name);
}

FloatTensor reshape(FloatTensor tensor, const NameRule& rule, const std::string& label) {
  std::vector<int64_t>& shape = tensor.shape;
  if (rule.index) {
    if (shape.empty() || *rule.index >= shape[0]) {
      bad_dump(label, "shape {} has no entry {}", tensor.shape_text(), *rule.index);
    }
    tensor = rows_of(tensor, *rule.index, 1);
    tensor.shape.erase(tensor.shape.begin());
  }
  if (rule.squeeze) std::erase(tensor.shape, 1);
  if (rule.transpose) {
    if (shape.size() != 2) bad_dump(label, "shape {} cannot be swapped", tensor.shape_text());
    tensor = transposed(tensor);
  }
  for (const auto& [wanted, from_end] :
       {std::pair(rule.first, false), std::pair(rule.last, true)}) {
    if (!wanted) continue;
    if (shape.empty() || *wanted > shape[0]) {
      bad_dump(label, "shape {} has no {} rows", tensor.shape_text(), *wanted);
    }
    tensor = rows_of(tensor, from_end ? shape[0] - *wanted : 0, *wanted);
  }
  return tensor;
}

FloatTensor join_parts(const std::vector<FloatTensor>& parts, const NameRule& rule,
                       const std::string& label, bool& differ) {
  differ = false;
  if (parts.size() == 1) return parts[0];
  if (rule.join == Join::concat) return concatenate(parts, rule.join_dim, label);
  FloatTensor whole = parts[0];
  for (size_t p = 1; p < parts.size(); ++p) {
    if (parts[p].shape != whole.shape) bad_dump(label, "the files hold it in different shapes");
    for (size_t i = 0; i < whole.values.size(); ++i) {
      if (rule.join == Join::sum) {
        whole.values[i] += parts[p].values[i];
      } else {
        differ = differ || std::bit_cast<uint32_t>(parts[p].values[i]) !=
                               std::bit_cast<uint32_t>(whole.values[i]);
      }
    }
  }
  return whole;
}

}  // namespace lockstep
