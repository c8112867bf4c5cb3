#include "validation/gate/policy.h"

#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "validation/gate/policies_data.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::pair<const char*, const char*> kBuiltIn[] = {{"quick", kQuickPolicyJson},
                                                            {"full", kFullPolicyJson},
                                                            {"gpu", kGpuPolicyJson},
                                                            {"release", kReleasePolicyJson}};

std::vector<std::string> strings(const Json& json, const char* key, const std::string& label) {
  std::vector<std::string> texts;
  if (!json.contains(key)) return texts;
  if (!json[key].is_array()) fail("{}: {} must be a list of strings", label, key);
  for (const Json& item : json[key]) {
    if (!item.is_string()) fail("{}: {} must be a list of strings", label, key);
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

int parse_mutants(const Json& json, const std::string& label) {
  if (!json.contains("mutants")) return 0;
  const Json& value = json["mutants"];
  if (value == Json("all")) return -1;
  if (!value.is_number_unsigned() || value.get<uint64_t>() > 100000) {
    fail("{}: mutants must be a number or \"all\"", label);
  }
  return value.get<int>();
}

void refuse_unknown(const Json& json, const std::string& label) {
  static const std::set<std::string> known = {"format",  "format_version", "name",
                                              "backend", "required",       "optional",
                                              "mutants", "waivers",        "not_checked"};
  for (const auto& [key, unused] : json.items()) {
    if (!known.contains(key)) fail("{}: unknown field '{}'", label, key);
  }
}

}  // namespace

std::vector<std::string> built_in_policies() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : kBuiltIn) names.emplace_back(name);
  return names;
}

Policy parse_policy(const std::string& text, const std::string& label) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != Json("lockstep-policy")) {
    fail("{}: is no policy", label);
  }
  const Json version = json.value("format_version", Json());
  if (version != Json(kPolicyVersion)) {
    fail("{}: policy format version {} is not {}, the one this build reads", label, version.dump(),
         kPolicyVersion);
  }
  refuse_unknown(json, label);
  Policy policy;
  if (!json.contains("name") || !json["name"].is_string()) fail("{}: needs a name", label);
  policy.name = json["name"].get<std::string>();
  const Json backend = json.value("backend", Json("cpu"));
  if (backend != "cpu" && backend != "cuda") fail("{}: backend must be cpu or cuda", label);
  policy.backend = backend.get<std::string>();
  for (const std::string& id : strings(json, "required", label))
    policy.checks.push_back({id, true});
  for (const std::string& id : strings(json, "optional", label)) {
    policy.checks.push_back({id, false});
  }
  policy.n_mutants = parse_mutants(json, label);
  const Json waivers = json.value("waivers", Json(true));
  if (!waivers.is_boolean()) fail("{}: waivers must be true or false", label);
  policy.accepts_waivers = waivers.get<bool>();
  policy.not_checked = strings(json, "not_checked", label);
  return policy;
}

Policy load_policy(const std::string& name_or_file) {
  for (const auto& [name, text] : kBuiltIn) {
    if (name_or_file == name) return parse_policy(text, name_or_file + " policy");
  }
  if (!std::filesystem::is_regular_file(name_or_file)) {
    fail_with(ExitCode::usage, "--policy {}: is neither quick, full, gpu or release nor a file",
              name_or_file);
  }
  return parse_policy(read_text_file(name_or_file), name_or_file);
}

}  // namespace lockstep
