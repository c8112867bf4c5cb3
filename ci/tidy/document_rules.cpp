#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <set>

#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

constexpr std::string_view kMap = "docs/README.md";

bool is_document(const std::string& path) {
  return path.ends_with(".md");
}

// Calls `visit` for every line outside fenced and indented code blocks.
void for_each_prose_line(const File& file,
                         const std::function<void(int line, std::string_view text)>& visit) {
  bool fenced = false;
  for (int number = 1; number <= file.n_lines(); ++number) {
    const std::string_view line = file.line(number);
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (!fenced && !line.starts_with("    ")) {
      visit(number, line);
    }
  }
}

// Calls `visit` for every piece of `line` between `open` and `close`.
void for_each_span(std::string_view line, std::string_view open, std::string_view close,
                   const std::function<void(std::string_view)>& visit) {
  for (size_t at = line.find(open); at != std::string_view::npos;) {
    const size_t begin = at + open.size();
    const size_t end = line.find(close, begin);
    if (end == std::string_view::npos) return;
    visit(line.substr(begin, end - begin));
    at = line.find(open, end + close.size());
  }
}

// `target` as a path from the root, named in the document `from`.
std::string resolve(const std::string& from, std::string_view target) {
  return (std::filesystem::path(from).parent_path() / target).lexically_normal().generic_string();
}

struct Link {
  int line = 0;
  std::string path;
};

std::vector<Link> links_of(const File& file) {
  std::vector<Link> links;
  for_each_prose_line(file, [&](int number, std::string_view line) {
    for_each_span(line, "](", ")", [&](std::string_view target) {
      target = target.substr(0, target.find('#'));
      if (target.empty() || target.find("://") != std::string_view::npos) return;
      links.push_back({number, resolve(file.path, target)});
    });
  });
  return links;
}

void follow(const Tree& tree, const std::string& path, std::set<std::string>& reached) {
  const File* file = tree.find(path);
  if (file == nullptr || !is_document(path) || !reached.insert(path).second) return;
  for (const Link& link : links_of(*file)) follow(tree, link.path, reached);
}

bool starts_with_any(std::string_view word, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    if (word.starts_with(prefix)) return true;
  }
  return false;
}

// `word` up to its first component that is a pattern rather than a name ("ops/<op>/x.h" is "ops").
std::string_view concrete_part(std::string_view word) {
  const size_t pattern = word.find_first_of("<>*{}[]$");
  if (pattern == std::string_view::npos) return word;
  const size_t slash = word.rfind('/', pattern);
  return slash == std::string_view::npos ? "" : word.substr(0, slash);
}

// True when `word`, quoted in a document, claims that a file of this repository exists.
bool claims_path(const Tree& tree, std::string_view word) {
  const size_t slash = word.find('/');
  if (slash == std::string_view::npos || slash == 0) return false;
  const std::string_view first = word.substr(0, slash);
  return first == "." || first == ".." || (slash + 1 < word.size() && tree.exists(first));
}

std::string_view trim(std::string_view word) {
  while (!word.empty() && std::string_view(".,;:)").find(word.back()) != std::string_view::npos) {
    word.remove_suffix(1);
  }
  return word;
}

void check_words(const Tree& tree, const RuleData& data, const File& file, int number,
                 std::string_view span, Findings& findings) {
  for (size_t at = 0; at < span.size();) {
    const size_t end = std::min(span.find(' ', at), span.size());
    const std::string_view word = trim(concrete_part(span.substr(at, end - at)));
    at = end + 1;
    if (!claims_path(tree, word) || starts_with_any(word, data.generated_paths)) continue;
    const std::string from_root = std::filesystem::path(word).lexically_normal().generic_string();
    if (tree.exists(from_root) || tree.exists(resolve(file.path, word))) continue;
    findings.push_back({file.path, number, fmt::format("`{}` does not exist", word)});
  }
}

}  // namespace

Findings check_document_links(const Tree& tree, const RuleData&) {
  Findings findings;
  std::set<std::string> reached;
  follow(tree, std::string(kMap), reached);
  for (const File& file : tree.files) {
    if (!is_document(file.path)) continue;
    if (file.path.starts_with("docs/") && !reached.contains(file.path)) {
      findings.push_back({file.path, 1, fmt::format("no link leads here from {}", kMap)});
    }
    for (const Link& link : links_of(file)) {
      if (tree.exists(link.path)) continue;
      findings.push_back(
          {file.path, link.line, fmt::format("link to {}: no such file", link.path)});
    }
  }
  return findings;
}

Findings check_document_paths(const Tree& tree, const RuleData& data) {
  Findings findings;
  for (const File& file : tree.files) {
    if (!is_document(file.path)) continue;
    for_each_prose_line(file, [&](int number, std::string_view line) {
      for_each_span(line, "`", "`", [&](std::string_view span) {
        check_words(tree, data, file, number, span, findings);
      });
    });
  }
  return findings;
}

Findings check_document_headings(const Tree& tree, const RuleData&) {
  Findings findings;
  for (const File& file : tree.files) {
    if (!is_document(file.path)) continue;
    int n_titles = 0;
    int last = 1;
    for_each_prose_line(file, [&](int number, std::string_view line) {
      if (!line.starts_with("# ")) return;
      ++n_titles;
      last = number;
    });
    if (n_titles == 1) continue;
    findings.push_back({file.path, last, fmt::format("{} first-level headings, want 1", n_titles)});
  }
  return findings;
}

}  // namespace lockstep::tidy
