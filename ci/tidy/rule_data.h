// What ci/tidy/rules.json says, typed.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tidy {

// Files by shell patterns over the whole path; '*' crosses '/'.
struct Scope {
  std::vector<std::string> in = {"*"};
  std::vector<std::string> except;

  bool contains(const std::string& path) const;
};

struct Ban {
  std::vector<std::string> patterns;  // '*' stands for identifier characters
  std::string reason;
  Scope files;
  bool code_only = false;  // comments and literals may say it
  bool any_case = false;
};

struct PinnedHeader {
  std::string prefix;  // of what stands between <> or ""
  Scope allowed;
};

struct RuleData {
  std::vector<std::string> generated_headers;  // that the build writes; any module may include them
  std::vector<std::string> layers;  // of the engine, lowest first; each may include those before it
  std::map<std::string, std::vector<std::string>>
      outsiders;  // folder -> prefixes that it may include
  std::vector<PinnedHeader> pinned_headers;
  std::vector<Ban> bans;
  int max_columns = 0;
  Scope column_files;
  int max_file_lines = 0;
  Scope length_files;
  int max_function_lines = 0;
  std::map<std::string, int> long_functions;  // "path:name" -> lines that it may have, a ratchet
  std::vector<std::string> generated_paths;  // prefixes that documents may name though git has none
  Scope formatted_files;
  Scope unlisted_sources;  // sources that no CMakeLists.txt needs to list
};

RuleData load_rule_data(const std::filesystem::path& path);

}  // namespace lockstep::tidy
