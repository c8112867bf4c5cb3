#include "validation/ops/op_list.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

std::string text_at(const Json& json, const char* key, const std::string& label) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
    fail("{}: {} must be a string", label, key);
  }
  return json[key].get<std::string>();
}

const Json& list_at(const Json& json, const char* key, const std::string& label) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_array()) {
    fail("{}: {} must be a list", label, key);
  }
  return json[key];
}

std::vector<std::string> texts_at(const Json& json, const char* key, const std::string& label) {
  std::vector<std::string> texts;
  for (const Json& item : list_at(json, key, label)) {
    if (!item.is_string()) fail("{}: {} must hold strings", label, key);
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

}  // namespace

std::set<std::string> OpList::ops() const {
  std::set<std::string> all;
  for (const OpProgram& program : programs) all.insert(program.ops.begin(), program.ops.end());
  return all;
}

OpList read_op_list(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "op_tests.json";
  const std::string label = path.string();
  if (!std::filesystem::is_regular_file(path)) {
    fail_with(ExitCode::skipped,
              "{}: no list of op tests: build with 'cmake --preset cuda' and the target "
              "lockstep_tree, or give --op-tests DIR",
              label);
  }
  const Json json = Json::parse(read_text_file(path), nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != Json("lockstep-op-tests")) {
    fail("{}: is no list of op tests", label);
  }
  const Json version = json.value("format_version", Json());
  if (version != Json(kOpListVersion)) {
    fail("{}: op test list version {} is not {}, the one this build reads", label, version.dump(),
         kOpListVersion);
  }
  OpList list;
  list.folder = folder;
  for (const Json& item : list_at(json, "programs", label)) {
    list.programs.push_back({text_at(item, "program", label), texts_at(item, "ops", label)});
  }
  list.sanitizer_sample = texts_at(json, "sanitizer_sample", label);
  list.mutant_program = text_at(json, "mutant_program", label);
  for (const Json& item : list_at(json, "mutants", label)) {
    const Json number = item.value("number", Json());
    if (!number.is_number_unsigned()) fail("{}: a mutant without a number", label);
    list.mutants.push_back(
        {text_at(item, "name", label), number.get<int>(), text_at(item, "op", label)});
  }
  return list;
}

bool fits_pattern(std::string_view text, std::string_view pattern) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] != '*') {
    return !text.empty() && text[0] == pattern[0] &&
           fits_pattern(text.substr(1), pattern.substr(1));
  }
  for (size_t skipped = 0; skipped <= text.size(); ++skipped) {
    if (fits_pattern(text.substr(skipped), pattern.substr(1))) return true;
  }
  return false;
}

}  // namespace lockstep
