#include "ci/tidy/rule_data.h"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace lockstep::tidy {
namespace {

using Json = nlohmann::json;

bool matches_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
  });
}

Scope parse_scope(const Json& json) {
  Scope scope;
  if (json.contains("in")) scope.in = json.at("in").get<std::vector<std::string>>();
  if (json.contains("except")) scope.except = json.at("except").get<std::vector<std::string>>();
  return scope;
}

Ban parse_ban(const Json& json) {
  Ban ban;
  ban.patterns = json.at("patterns").get<std::vector<std::string>>();
  ban.reason = json.at("reason").get<std::string>();
  ban.files = parse_scope(json.at("files"));
  ban.code_only = json.value("code_only", false);
  ban.any_case = json.value("any_case", false);
  return ban;
}

RuleData parse_rules(const Json& json) {
  RuleData data;
  json.at("generated_headers").get_to(data.generated_headers);
  json.at("layers").get_to(data.layers);
  json.at("outsiders").get_to(data.outsiders);
  for (const Json& pin : json.at("pinned_headers")) {
    for (const auto& prefix : pin.at("prefixes")) {
      data.pinned_headers.push_back({prefix.get<std::string>(), parse_scope(pin.at("allowed"))});
    }
  }
  for (const Json& ban : json.at("bans")) data.bans.push_back(parse_ban(ban));
  json.at("line_length").at("columns").get_to(data.max_columns);
  data.column_files = parse_scope(json.at("line_length").at("files"));
  json.at("file_length").at("lines").get_to(data.max_file_lines);
  data.length_files = parse_scope(json.at("file_length").at("files"));
  json.at("function_length").at("lines").get_to(data.max_function_lines);
  json.at("function_length").at("longer").get_to(data.long_functions);
  json.at("generated_paths").get_to(data.generated_paths);
  data.formatted_files = parse_scope(json.at("formatted_files"));
  data.unlisted_sources = parse_scope(json.at("unlisted_sources"));
  return data;
}

}  // namespace

bool Scope::contains(const std::string& path) const {
  return matches_any(in, path) && !matches_any(except, path);
}

RuleData load_rule_data(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream) fail("{}: cannot be read", path.string());
  try {
    return parse_rules(Json::parse(stream));
  } catch (const Json::exception& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

}  // namespace lockstep::tidy
