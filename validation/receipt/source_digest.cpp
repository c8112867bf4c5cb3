#include "validation/receipt/source_digest.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<SourceScope, const char*> kScopes[] = {{SourceScope::cuda_ops, "cuda-ops"},
                                                           {SourceScope::engine, "engine"}};
constexpr const char* kSourceSuffixes[] = {".cpp", ".h", ".cu", ".cuh", ".inl"};

bool is_source(const fs::path& path) {
  const std::string suffix = path.extension().string();
  return std::any_of(std::begin(kSourceSuffixes), std::end(kSourceSuffixes),
                     [&](const char* known) { return suffix == known; });
}

bool is_test(const fs::path& path) {
  return path.stem().string().ends_with("_test");
}

// End of the quoted literal that starts at `at`, one past its closing quote.
size_t literal_end(const std::string& text, size_t at) {
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

// End of R"delimiter(...)delimiter" whose quote is at `at`.
size_t raw_literal_end(const std::string& text, size_t at) {
  const size_t open = text.find('(', at);
  if (open == std::string::npos) return text.size();
  const std::string closing = ")" + text.substr(at + 1, open - at - 1) + "\"";
  const size_t close = text.find(closing, open);
  return close == std::string::npos ? text.size() : close + closing.size();
}

bool is_digit_separator(const std::string& text, size_t at) {
  return at > 0 && std::isxdigit(static_cast<unsigned char>(text[at - 1])) != 0;
}

std::string drop_comments(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (text.compare(at, 2, "/*") == 0) {
      const size_t close = text.find("*/", at + 2);
      at = close == std::string::npos ? text.size() : close + 2;
      out += ' ';
      continue;
    }
    if (text[at] == '"') {
      end = at > 0 && text[at - 1] == 'R' ? raw_literal_end(text, at) : literal_end(text, at);
    } else if (text[at] == '\'' && !is_digit_separator(text, at)) {
      end = literal_end(text, at);
    }
    out.append(text, at, end - at);
    at = end;
  }
  return out;
}

// Quoted includes: paths from the root, as everywhere in this repository.
std::vector<std::string> included_paths(const std::string& code) {
  std::vector<std::string> paths;
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#include") && !line.starts_with("#define HWY_TARGET_INCLUDE")) continue;
    const size_t open = line.find('"');
    const size_t close = open == std::string::npos ? open : line.find('"', open + 1);
    if (close != std::string::npos) paths.push_back(line.substr(open + 1, close - open - 1));
  }
  return paths;
}

std::string digest_of(const std::string& text) {
  return digest128_hex(std::as_bytes(std::span(text)));
}

// Adds the file and everything that it includes from the tree.
void add_with_includes(const fs::path& root, const std::string& path, FileDigests& files) {
  if (files.contains(path) || !fs::is_regular_file(root / path)) return;
  const std::string code = without_comments(read_text_file(root / path));
  files[path] = digest_of(code);
  for (const std::string& included : included_paths(code)) add_with_includes(root, included, files);
}

std::string relative_path(const fs::path& root, const fs::path& path) {
  return path.lexically_relative(root).generic_string();
}

std::vector<fs::path> sources_below(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && is_source(entry.path()) && !is_test(entry.path())) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool names_cuda(const fs::path& below_op) {
  return std::any_of(below_op.begin(), below_op.end(),
                     [](const fs::path& part) { return part.string().starts_with("cuda"); }) ||
         below_op.extension() == ".cu" || below_op.extension() == ".cuh";
}

// What ops share; it counts where an op includes it.
constexpr const char* kNoOp = "common";

// An op without CUDA sources has no unit: there is nothing that a GPU could prove.
SourceUnits cuda_op_units(const fs::path& root) {
  SourceUnits units;
  for (const auto& op : fs::directory_iterator(root / "engine" / "ops")) {
    if (!op.is_directory() || op.path().filename() == kNoOp) continue;
    FileDigests files;
    std::vector<fs::path> plans;
    for (const fs::path& path : sources_below(op.path())) {
      const fs::path below = path.lexically_relative(op.path());
      if (names_cuda(below)) add_with_includes(root, relative_path(root, path), files);
      if (path.filename().string().find("plan") != std::string::npos) plans.push_back(path);
    }
    if (files.empty()) continue;
    for (const fs::path& plan : plans) add_with_includes(root, relative_path(root, plan), files);
    units[op.path().filename().string()] = std::move(files);
  }
  return units;
}

SourceUnits engine_units(const fs::path& root) {
  SourceUnits units;
  for (const fs::path& path : sources_below(root / "engine")) {
    const std::string unit = path.parent_path().lexically_relative(root).generic_string();
    units[unit][relative_path(root, path)] = digest_of(without_comments(read_text_file(path)));
  }
  return units;
}

}  // namespace

std::string scope_name(SourceScope scope) {
  for (const auto& [known, name] : kScopes) {
    if (known == scope) return name;
  }
  return {};
}

SourceScope parse_scope(const std::string& name, const std::string& label) {
  for (const auto& [scope, known] : kScopes) {
    if (name == known) return scope;
  }
  fail("{}: unknown scope of sources '{}': use cuda-ops or engine", label, name);
}

std::string without_comments(const std::string& text) {
  std::istringstream lines(drop_comments(text));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const size_t last = line.find_last_not_of(" \t\r");
    if (last == std::string::npos) continue;
    out.append(line, 0, last + 1);
    out += '\n';
  }
  return out;
}

SourceUnits source_units(const fs::path& root, SourceScope scope) {
  if (!fs::is_directory(root / "engine" / "ops")) {
    fail_with(ExitCode::could_not_judge, "{}: is no source tree of Lockstep; use --source DIR",
              root.string());
  }
  return scope == SourceScope::cuda_ops ? cuda_op_units(root) : engine_units(root);
}

std::string unit_digest(const FileDigests& files) {
  std::string text;
  for (const auto& [path, digest] : files) text += path + " " + digest + "\n";
  return digest_of(text);
}

fs::path source_root() {
  const fs::path root = sibling_program("").parent_path() / "../..";
  return fs::is_directory(root / "engine" / "ops") ? fs::canonical(root) : fs::path();
}

}  // namespace lockstep
