#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "ci/tidy/code_view.h"
#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

bool is_build_file(const std::string& path) {
  return path.ends_with("CMakeLists.txt") || path.ends_with(".cmake");
}

void drop_prefix(std::string& word, std::string_view prefix) {
  if (word.starts_with(prefix)) word.erase(0, prefix.size());
}

// Every word of a build file, as a path from the root.
void add_listed_paths(const File& file, std::set<std::string>& listed) {
  const auto folder = std::filesystem::path(file.path).parent_path();
  for (int number = 1; number <= file.n_lines(); ++number) {
    const std::string line(file.line(number).substr(0, file.line(number).find('#')));
    for (size_t at = 0; at < line.size();) {
      const size_t begin = line.find_first_not_of(" \t()\";", at);
      if (begin == std::string::npos) break;
      const size_t end = std::min(line.find_first_of(" \t()\";", begin), line.size());
      std::string word = line.substr(begin, end - begin);
      at = end;
      const bool from_root =
          word.starts_with("${CMAKE_SOURCE_DIR}/") || word.starts_with("${PROJECT_SOURCE_DIR}/");
      drop_prefix(word, "${CMAKE_SOURCE_DIR}/");
      drop_prefix(word, "${PROJECT_SOURCE_DIR}/");
      drop_prefix(word, "${CMAKE_CURRENT_SOURCE_DIR}/");
      const auto path = from_root ? std::filesystem::path(word) : folder / word;
      listed.insert(path.lexically_normal().generic_string());
    }
  }
}

// Every path between quotes after #include or in a macro such as HWY_TARGET_INCLUDE.
void add_included_paths(const File& file, std::set<std::string>& included) {
  for (int number = 1; number <= file.n_lines(); ++number) {
    const std::string_view line = file.line(number);
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || line[first] != '#') continue;
    const size_t open = line.find('"');
    const size_t close = open == std::string_view::npos ? open : line.find('"', open + 1);
    if (close != std::string_view::npos) {
      included.insert(std::string(line.substr(open + 1, close - open - 1)));
    }
  }
}

struct Name {
  std::string path;
  int line = 0;
};

// The string literals that directly follow `opening` and blanks.
std::map<std::string, Name> literals_after(const File& file, std::string_view opening) {
  std::map<std::string, Name> names;
  for (size_t at = file.code.find(opening); at != std::string::npos;
       at = file.code.find(opening, at + 1)) {
    const size_t quote = file.code.find_first_not_of(" \n", at + opening.size());
    if (quote == std::string::npos || file.code[quote] != '"') continue;
    const size_t end = file.code.find('"', quote + 1);
    names.emplace(file.text.substr(quote + 1, end - quote - 1),
                  Name{file.path, file.line_of(quote)});
  }
  return names;
}

}  // namespace

Findings check_sources_listed(const Tree& tree, const RuleData& data) {
  std::set<std::string> listed;
  std::set<std::string> included;
  for (const File& file : tree.files) {
    if (is_build_file(file.path)) add_listed_paths(file, listed);
    if (is_cpp(file.path)) add_included_paths(file, included);
  }
  Findings findings;
  for (const File& file : tree.files) {
    if (!is_cpp(file.path) || data.unlisted_sources.contains(file.path)) continue;
    const bool is_source = file.path.ends_with(".cpp") || file.path.ends_with(".cu");
    if (is_source && !listed.contains(file.path)) {
      findings.push_back({file.path, 1, "no CMakeLists.txt lists this source"});
    }
    if (!is_source && !included.contains(file.path)) {
      findings.push_back({file.path, 1, "no file includes this header"});
    }
  }
  return findings;
}

Findings check_tests_assert(const Tree& tree, const RuleData&) {
  Findings findings;
  for (const File& file : tree.files) {
    if (!file.path.ends_with("_test.cpp")) continue;
    bool asserts = false;
    for (const char* macro : {"EXPECT_", "ASSERT_"}) {
      asserts = asserts || file.code.find(macro) != std::string::npos;
    }
    if (!asserts) findings.push_back({file.path, 1, "a test file without an assertion"});
  }
  return findings;
}

Findings check_fault_names(const Tree& tree, const RuleData&) {
  const File* catalogue = tree.find("engine/base/fault_points.cpp");
  if (catalogue == nullptr) return {{"engine/base/fault_points.cpp", 1, "is missing"}};
  const std::map<std::string, Name> declared = literals_after(*catalogue, "{");
  std::map<std::string, Name> used;
  for (const File& file : tree.files) {
    const bool in_product = file.path.starts_with("engine/") && !file.path.ends_with("_test.cpp");
    if (in_product && is_cpp(file.path)) used.merge(literals_after(file, "fault_fires("));
  }
  Findings findings;
  for (const auto& [name, where] : declared) {
    if (used.contains(name)) continue;
    findings.push_back({where.path, where.line, fmt::format("no code asks for fault '{}'", name)});
  }
  for (const auto& [name, where] : used) {
    if (declared.contains(name)) continue;
    findings.push_back(
        {where.path, where.line, fmt::format("fault '{}' is not in {}", name, catalogue->path)});
  }
  if (declared.empty()) findings.push_back({catalogue->path, 1, "declares no fault"});
  return findings;
}

}  // namespace lockstep::tidy
