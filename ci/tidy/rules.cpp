#include "ci/tidy/rules.h"

#include <fmt/format.h>

namespace lockstep::tidy {

std::string to_text(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{}:{}: {}\n", finding.path, finding.line, finding.message);
  }
  return text;
}

const std::vector<Rule>& all_rules() {
  static const std::vector<Rule> rules = {
      {"bans", check_bans},
      {"clang_format", check_clang_format},
      {"document_headings", check_document_headings},
      {"document_links", check_document_links},
      {"document_paths", check_document_paths},
      {"fault_names", check_fault_names},
      {"file_length", check_file_length},
      {"function_length", check_function_length},
      {"include_matrix", check_include_matrix},
      {"line_length", check_line_length},
      {"loop_lifetimes", check_loop_lifetimes},
      {"pinned_headers", check_pinned_headers},
      {"pragma_once", check_pragma_once},
      {"shell_scripts", check_shell_scripts},
      {"sources_listed", check_sources_listed},
      {"tests_assert", check_tests_assert},
  };
  return rules;
}

}  // namespace lockstep::tidy
