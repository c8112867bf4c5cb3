// The rules. Each reads the whole tree once and returns what breaks it.
#pragma once

#include <string>
#include <vector>

#include "ci/tidy/rule_data.h"
#include "ci/tidy/tree.h"

namespace lockstep::tidy {

struct Finding {
  std::string path;
  int line = 0;
  std::string message;
};

using Findings = std::vector<Finding>;

// "path:line: message", one a line.
std::string to_text(const Findings& findings);

struct Rule {
  const char* name;  // of its test case
  Findings (*check)(const Tree&, const RuleData&);
};

const std::vector<Rule>& all_rules();

// include_rules.cpp
Findings check_include_matrix(const Tree& tree, const RuleData& data);
Findings check_pinned_headers(const Tree& tree, const RuleData& data);
Findings check_pragma_once(const Tree& tree, const RuleData& data);

// text_rules.cpp
Findings check_bans(const Tree& tree, const RuleData& data);
Findings check_line_length(const Tree& tree, const RuleData& data);
Findings check_loop_lifetimes(const Tree& tree, const RuleData& data);
Findings check_file_length(const Tree& tree, const RuleData& data);
Findings check_function_length(const Tree& tree, const RuleData& data);

// document_rules.cpp
Findings check_document_links(const Tree& tree, const RuleData& data);
Findings check_document_paths(const Tree& tree, const RuleData& data);
Findings check_document_headings(const Tree& tree, const RuleData& data);

// build_rules.cpp
Findings check_sources_listed(const Tree& tree, const RuleData& data);
Findings check_tests_assert(const Tree& tree, const RuleData& data);
Findings check_fault_names(const Tree& tree, const RuleData& data);

// tool_rules.cpp: these start a program, so the tree has to lie under tree.root.
Findings check_clang_format(const Tree& tree, const RuleData& data);
Findings check_shell_scripts(const Tree& tree, const RuleData& data);
// The findings in a compiler-like report ("path:line:column: message"); other lines are left out.
Findings parse_tool_report(const std::string& report);

}  // namespace lockstep::tidy
