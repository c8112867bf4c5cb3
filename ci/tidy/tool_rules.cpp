#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ci/tidy/rules.h"
#include "engine/base/process.h"

namespace lockstep::tidy {
namespace {

bool has_tool(const std::string& name) {
  return run_process({"/bin/sh", "-c", "command -v " + name}).exit_code == 0;
}

Findings run_tool(const Tree& tree, std::vector<std::string> command,
                  const std::vector<std::string>& paths) {
  const std::string tool = command.front();
  if (paths.empty()) return {{"ci/tidy/rules.json", 1, tool + " was given no file"}};
  if (!has_tool(tool)) {
    return {{"ci/setup/packages.txt", 1, tool + " is not installed: run ci/setup/install.sh"}};
  }
  for (const std::string& path : paths) command.push_back((tree.root / path).string());
  const ProcessResult result = run_process(command);
  Findings findings = parse_tool_report(result.stdout_text + result.stderr_text);
  const std::string prefix = tree.root.string() + "/";
  for (Finding& finding : findings) {
    if (finding.path.starts_with(prefix)) finding.path.erase(0, prefix.size());
  }
  if (result.exit_code != 0 && findings.empty()) {
    findings.push_back({tool, 1, fmt::format("exit {}: {}", result.exit_code, result.stderr_text)});
  }
  return findings;
}

bool is_shell_script(const File& file) {
  return file.path.ends_with(".sh") || file.text.starts_with("#!/usr/bin/env bash") ||
         file.text.starts_with("#!/bin/sh") || file.text.starts_with("#!/bin/bash");
}

// Takes the number and the colon behind it off the front of `text`; -1 when there is none.
int take_number(std::string_view& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != ':') return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return value;
}

}  // namespace

Findings parse_tool_report(const std::string& report) {
  Findings findings;
  for (size_t at = 0; at < report.size();) {
    const size_t end = std::min(report.find('\n', at), report.size());
    std::string_view line = std::string_view(report).substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string path(line.substr(0, colon));
    line.remove_prefix(colon + 1);
    const int number = take_number(line);
    const int column = take_number(line);
    if (number < 0 || column < 0) continue;
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    findings.push_back({path, number, std::string(line)});
  }
  return findings;
}

Findings check_clang_format(const Tree& tree, const RuleData& data) {
  std::vector<std::string> paths;
  for (const File& file : tree.files) {
    if (is_cpp(file.path) && data.formatted_files.contains(file.path)) paths.push_back(file.path);
  }
  return run_tool(tree, {"clang-format", "--dry-run", "-Werror", "--ferror-limit=1"}, paths);
}

Findings check_shell_scripts(const Tree& tree, const RuleData&) {
  std::vector<std::string> paths;
  for (const File& file : tree.files) {
    if (is_shell_script(file)) paths.push_back(file.path);
  }
  return run_tool(tree, {"shellcheck", "--format=gcc", "--severity=warning"}, paths);
}

}  // namespace lockstep::tidy
