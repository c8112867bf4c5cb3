#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "ci/tidy/code_view.h"
#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Length of the match of `pattern` at the start of `text`, or npos. A '*' takes identifier
// characters, as many as there are up to the next literal character of the pattern.
size_t match_length(std::string_view text, std::string_view pattern, bool any_case) {
  size_t at = 0;
  for (size_t p = 0; p < pattern.size(); ++p) {
    if (pattern[p] == '*') {
      const std::string_view rest = pattern.substr(p + 1);
      for (size_t skip = 0;; ++skip) {
        const size_t tail = match_length(text.substr(at + skip), rest, any_case);
        if (tail != std::string_view::npos) return at + skip + tail;
        if (at + skip >= text.size() || !is_identifier_char(text[at + skip])) return tail;
      }
    }
    if (at == text.size()) return std::string_view::npos;
    const bool same = any_case ? lower(text[at]) == lower(pattern[p]) : text[at] == pattern[p];
    if (!same) return std::string_view::npos;
    ++at;
  }
  const bool open_end = at < text.size() && is_identifier_char(text[at]);
  const bool cuts_word = !pattern.empty() && is_identifier_char(pattern.back()) && open_end;
  return cuts_word ? std::string_view::npos : at;
}

void find_ban(const File& file, const Ban& ban, const std::string& pattern, Findings& findings) {
  const bool view = ban.code_only && !file.code.empty();
  const std::string_view text = view ? file.code : file.text;
  // A path or a word that only ends like the pattern is another thing.
  const bool guarded = is_identifier_char(pattern.front()) || pattern.front() == '/';
  for (size_t i = 0; i < text.size(); ++i) {
    const char before = i == 0 ? ' ' : text[i - 1];
    if (guarded && (is_identifier_char(before) || (pattern[0] == '/' && before == '.'))) continue;
    const size_t length = match_length(text.substr(i, 200), pattern, ban.any_case);
    if (length == std::string_view::npos) continue;
    findings.push_back(
        {file.path, file.line_of(i), fmt::format("'{}': {}", text.substr(i, length), ban.reason)});
    i += length;
  }
}

int n_columns(std::string_view line) {
  return static_cast<int>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Offset of the parenthesis that closes the one at `open`, or npos.
size_t closing_parenthesis(std::string_view code, size_t open) {
  int depth = 0;
  for (size_t i = open; i < code.size(); ++i) {
    depth += code[i] == '(' ? 1 : (code[i] == ')' ? -1 : 0);
    if (depth == 0) return i;
  }
  return std::string_view::npos;
}

// What stands in the parentheses of the loop that `code` begins with.
std::string_view loop_header(std::string_view code) {
  const size_t open = code.find('(');
  const size_t close =
      open == std::string_view::npos ? open : closing_parenthesis(code.substr(0, 1000), open);
  return close == std::string_view::npos ? "" : code.substr(open + 1, close - open - 1);
}

// `x : f(y)[z]`: the loop keeps what f returned no longer than the subscript takes.
bool walks_through_a_part(std::string_view header) {
  const size_t colon = header.find(" : ");
  if (colon == std::string_view::npos || header.find(';') != std::string_view::npos) return false;
  const std::string_view range = header.substr(colon + 3);
  const size_t call = range.find('(');
  if (call == 0 || call == std::string_view::npos || !is_identifier_char(range[call - 1])) {
    return false;
  }
  const size_t end = closing_parenthesis(range, call);
  const bool subscript = end != std::string_view::npos && range.substr(end + 1).starts_with('[');
  return subscript && range.ends_with(']');
}

}  // namespace

Findings check_bans(const Tree& tree, const RuleData& data) {
  Findings findings;
  for (const File& file : tree.files) {
    for (const Ban& ban : data.bans) {
      if (!ban.files.contains(file.path)) continue;
      for (const std::string& pattern : ban.patterns) find_ban(file, ban, pattern, findings);
    }
  }
  return findings;
}

Findings check_loop_lifetimes(const Tree& tree, const RuleData&) {
  Findings findings;
  for (const File& file : tree.files) {
    const std::string_view code = file.code;
    for (size_t at = find_word(code, "for"); at != std::string_view::npos;
         at = find_word(code, "for", at + 1)) {
      if (!walks_through_a_part(loop_header(code.substr(at)))) continue;
      findings.push_back({file.path, file.line_of(at),
                          "walks through a part of what a call returned, which is gone before the "
                          "first turn: give it a name"});
    }
  }
  return findings;
}

Findings check_line_length(const Tree& tree, const RuleData& data) {
  Findings findings;
  for (const File& file : tree.files) {
    if (!data.column_files.contains(file.path)) continue;
    for (int number = 1; number <= file.n_lines(); ++number) {
      const int columns = n_columns(file.line(number));
      if (columns <= data.max_columns) continue;
      findings.push_back({file.path, number,
                          fmt::format("{} columns, the limit is {}", columns, data.max_columns)});
    }
  }
  return findings;
}

Findings check_file_length(const Tree& tree, const RuleData& data) {
  Findings findings;
  for (const File& file : tree.files) {
    if (!data.length_files.contains(file.path) || file.n_lines() <= data.max_file_lines) continue;
    findings.push_back({file.path, data.max_file_lines + 1,
                        fmt::format("{} lines, the limit is {}: split it by job", file.n_lines(),
                                    data.max_file_lines)});
  }
  return findings;
}

Findings check_function_length(const Tree& tree, const RuleData& data) {
  Findings findings;
  std::set<std::string> seen;
  for (const File& file : tree.files) {
    for (const FunctionBody& body : find_functions(file.code)) {
      const int line = file.line_of(body.begin);
      const int n_lines = file.line_of(body.end) - line + 1;
      const std::string id = file.path + ":" + body.name;
      const auto listed = data.long_functions.find(id);
      const bool is_listed = listed != data.long_functions.end();
      if (is_listed && n_lines == listed->second) seen.insert(id);
      const int limit = is_listed ? listed->second : data.max_function_lines;
      if (n_lines > limit) {
        findings.push_back(
            {file.path, line,
             fmt::format("{} has {} lines, the limit is {}", body.name, n_lines, limit)});
      }
    }
  }
  for (const auto& [id, lines] : data.long_functions) {
    if (seen.contains(id)) continue;
    findings.push_back(
        {"ci/tidy/rules.json", 1,
         fmt::format("{} no longer has {} lines: lower or drop its entry", id, lines)});
  }
  return findings;
}

}  // namespace lockstep::tidy
