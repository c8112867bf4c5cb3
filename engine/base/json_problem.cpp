#include "engine/base/json_problem.h"

#include <string_view>

namespace lockstep {
namespace {

// What stands between two marks; empty when one of them is absent.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const size_t at = text.find(begin);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + begin.size());
  return rest.substr(0, rest.find(end) == std::string_view::npos ? 0 : rest.find(end));
}

}  // namespace

std::string json_problem(const std::exception& error) {
  std::string_view text = error.what();
  if (!text.starts_with("[json.exception.")) return std::string(text);
  text.remove_prefix(text.find("] ") + 2);
  const std::string_view line = between(text, "at line ", ", column ");
  if (!line.empty()) {
    const std::string_view column = between(text, ", column ", ":");
    return line == "1" ? fmt::format("not valid JSON at column {}", column)
                       : fmt::format("not valid JSON at line {}, column {}", line, column);
  }
  const std::string_view missing = between(text, "key '", "' not found");
  if (!missing.empty()) return fmt::format("'{}' is missing", missing);
  if (text.starts_with("type must be ")) return fmt::format("a value {}", text.substr(5));
  if (text.starts_with("cannot use ")) {
    const size_t with = text.rfind("with ");
    return fmt::format("a value of another type is needed where there is {}",
                       text.substr(with + 5));
  }
  if (text.starts_with("array index ")) return "a list is too short";
  return std::string(text);
}

}  // namespace lockstep
