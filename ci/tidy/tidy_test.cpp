// The rules over the repository itself.
#include <gtest/gtest.h>

#include <ostream>

#include "ci/tidy/rules.h"

namespace lockstep::tidy {

void PrintTo(const Rule& rule, std::ostream* stream) {
  *stream << rule.name;
}

namespace {

const Tree& repository() {
  static const Tree tree = load_tree(LOCKSTEP_SOURCE_DIR);
  return tree;
}

class Repository : public testing::TestWithParam<Rule> {};

TEST_P(Repository, KeepsTheRule) {
  static const RuleData data = load_rule_data(LOCKSTEP_SOURCE_DIR "/ci/tidy/rules.json");
  const Findings findings = GetParam().check(repository(), data);
  EXPECT_TRUE(findings.empty()) << "\n" << to_text(findings);
}

INSTANTIATE_TEST_SUITE_P(Tidy, Repository, testing::ValuesIn(all_rules()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Tidy, TheScanSeesTheProductAndItself) {
  for (const char* path : {"CMakeLists.txt", "engine/base/error.h", "docs/README.md", "run",
                           "ci/tidy/tidy_test.cpp"}) {
    const File* file = repository().find(path);
    ASSERT_NE(file, nullptr) << path;
    EXPECT_FALSE(file->text.empty()) << path;
  }
  EXPECT_GT(repository().files.size(), 100u);
}

}  // namespace
}  // namespace lockstep::tidy
