#include <fmt/format.h>

#include <algorithm>

#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

struct Include {
  int line = 0;
  std::string target;
  bool quoted = false;
};

std::vector<Include> includes_of(const File& file) {
  std::vector<Include> found;
  for (int number = 1; number <= file.n_lines(); ++number) {
    const std::string_view line = file.line(number);
    const size_t hash = line.find_first_not_of(" \t");
    // Text in a literal or a comment may look like a directive; the code view has none there.
    const size_t offset = file.line_starts[static_cast<size_t>(number) - 1] + hash;
    if (hash == std::string_view::npos || file.code[offset] != '#') continue;
    const size_t word = line.find_first_not_of(" \t", hash + 1);
    if (word == std::string_view::npos || !line.substr(word).starts_with("include")) continue;
    const size_t open = line.find_first_of("<\"", word);
    if (open == std::string_view::npos) continue;
    const bool quoted = line[open] == '"';
    const size_t close = line.find(quoted ? '"' : '>', open + 1);
    if (close == std::string_view::npos) continue;
    found.push_back({number, std::string(line.substr(open + 1, close - open - 1)), quoted});
  }
  return found;
}

bool is_below(const std::string& path, const std::string& folder) {
  return path.starts_with(folder + "/");
}

bool starts_with_any(const std::string& path, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return path.starts_with(prefix); });
}

bool is_generated(const std::string& target, const RuleData& data) {
  return std::count(data.generated_headers.begin(), data.generated_headers.end(), target) > 0;
}

// Index of the engine layer that `path` belongs to, or -1.
int layer_of(const std::string& path, const RuleData& data) {
  for (size_t i = 0; i < data.layers.size(); ++i) {
    if (is_below(path, data.layers[i])) return static_cast<int>(i);
  }
  return -1;
}

// Why `path` may not include `target`; empty when it may.
std::string objection(const std::string& path, const std::string& target, const RuleData& data) {
  const int own_layer = layer_of(path, data);
  if (own_layer >= 0) {
    const int layer = layer_of(target, data);
    if (layer >= 0 && layer <= own_layer) return "";
    const std::string& own = data.layers[static_cast<size_t>(own_layer)];
    return fmt::format("{} may not include {}: includes go down the layers", own, target);
  }
  for (const auto& [folder, prefixes] : data.outsiders) {
    if (!is_below(path, folder)) continue;
    if (is_below(target, folder) || starts_with_any(target, prefixes)) return "";
    return fmt::format("{} may not include {}: not in its row of the include matrix", folder,
                       target);
  }
  return fmt::format("{} has no row in the include matrix (ci/tidy/rules.json)", path);
}

}  // namespace

Findings check_include_matrix(const Tree& tree, const RuleData& data) {
  Findings findings;
  for (const File& file : tree.files) {
    if (!is_cpp(file.path)) continue;
    for (const Include& include : includes_of(file)) {
      if (!include.quoted || is_generated(include.target, data)) continue;
      if (tree.find(include.target) == nullptr) {
        findings.push_back(
            {file.path, include.line,
             fmt::format("\"{}\" is no file of this repository; name it from the root",
                         include.target)});
        continue;
      }
      const std::string why = objection(file.path, include.target, data);
      if (!why.empty()) findings.push_back({file.path, include.line, why});
    }
  }
  return findings;
}

Findings check_pinned_headers(const Tree& tree, const RuleData& data) {
  Findings findings;
  for (const File& file : tree.files) {
    if (!is_cpp(file.path)) continue;
    for (const Include& include : includes_of(file)) {
      for (const PinnedHeader& pin : data.pinned_headers) {
        if (!include.target.starts_with(pin.prefix) || pin.allowed.contains(file.path)) continue;
        findings.push_back({file.path, include.line,
                            fmt::format("<{}> may not be included here", include.target)});
      }
    }
  }
  return findings;
}

Findings check_pragma_once(const Tree& tree, const RuleData&) {
  Findings findings;
  for (const File& file : tree.files) {
    // Highway compiles *-inl.h once per instruction set: its guard is a toggle.
    const bool is_header = file.path.ends_with(".h") || file.path.ends_with(".cuh");
    if (!is_header || file.path.ends_with("-inl.h")) continue;
    if (file.code.find("#pragma once\n") != std::string::npos) continue;
    findings.push_back({file.path, 1, "a header without #pragma once"});
  }
  return findings;
}

}  // namespace lockstep::tidy
