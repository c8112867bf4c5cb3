// The report as people read it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "validation/diverge/diverge.h"

namespace lockstep {
namespace {

ForkStep fork_at(size_t step, const std::string& a, const std::string& b) {
  ForkStep fork;
  fork.step = step;
  fork.a = {-1, a};
  fork.b = {-1, b};
  fork.fork = true;
  return fork;
}

DivergeReport report_of(size_t n_forks) {
  DivergeReport report;
  report.declared = "bf16";
  PromptDivergence prompt;
  prompt.evidence.name = "p";
  for (size_t i = 0; i < n_forks; ++i) {
    prompt.evidence.steps.push_back(fork_at(100 + i, "\n", "\\n"));
  }
  prompt.text_a = "same\n" + std::string(200, 'k') + "\tleft" + std::string(100, 'm');
  prompt.text_b = "same\n" + std::string(200, 'k') + "\x1b[2J";
  report.prompts.push_back(prompt);
  return report;
}

TEST(DivergeText, WritesControlCharactersOut) {
  const std::string text = diverge_text(report_of(1), false);
  EXPECT_NE(text.find("p        100  \\n  \\\\n"), std::string::npos) << text;
  EXPECT_NE(text.find("kkk | \\tleft"), std::string::npos) << text;
  EXPECT_NE(text.find("kkk | \\u{1B}[2J\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("\ufffd"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const auto json = nlohmann::json::parse(diverge_json(report_of(1)));
  EXPECT_EQ(json["prompts"][0]["forks"][0]["a"], "\n") << "JSON keeps the token";
}

TEST(DivergeText, SaysWhatItLeavesOut) {
  const std::string cut = diverge_text(report_of(11), false);
  EXPECT_NE(cut.find("107"), std::string::npos);
  EXPECT_EQ(cut.find("108"), std::string::npos);
  EXPECT_NE(cut.find("p: and 3 more\n"), std::string::npos) << cut;
  EXPECT_NE(diverge_html(report_of(11)).find("p: and 3 more"), std::string::npos);
  EXPECT_EQ(diverge_text(report_of(8), false).find("more"), std::string::npos);
  EXPECT_NE(cut.find("A: ...kkk"), std::string::npos) << "text before";
  EXPECT_NE(cut.find("mmm...\n"), std::string::npos) << "text behind";
}

// A character is not cut in two.
TEST(DivergeText, KeepsCharactersWhole) {
  DivergeReport report = report_of(0);
  report.prompts[0].text_a = std::string(79, 'k') + "\u6d4b\u8bd5";
  report.prompts[0].text_b = "b";
  const std::string text = diverge_text(report, false);
  EXPECT_NE(text.find("kk\u6d4b...\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("\\x"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
