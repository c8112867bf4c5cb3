// ./run, ./test and .ci/run as a newcomer meets them. Nothing here installs or builds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>

#include "engine/base/process.h"

namespace lockstep {
namespace {

class EntryPoint : public testing::TestWithParam<const char*> {
 protected:
  std::string path() const { return std::string(LOCKSTEP_SOURCE_DIR) + "/" + GetParam(); }
};

TEST_P(EntryPoint, IsExecutable) {
  EXPECT_EQ(::access(path().c_str(), X_OK), 0) << path();
}

TEST_P(EntryPoint, ExplainsItself) {
  for (const char* option : {"--help", "-h"}) {
    const ProcessResult result = run_process({path(), option});
    EXPECT_EQ(result.exit_code, 0) << option;
    EXPECT_TRUE(result.stdout_text.starts_with("usage: ")) << result.stdout_text;
    EXPECT_EQ(result.stderr_text, "");
  }
}

TEST_P(EntryPoint, RefusesAnUnknownOptionByName) {
  const ProcessResult result = run_process({path(), "--no-such-option"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.stdout_text, "");
  EXPECT_NE(result.stderr_text.find("--no-such-option"), std::string::npos) << result.stderr_text;
}

std::string name_of(const testing::TestParamInfo<const char*>& tested) {
  std::string name;
  for (const char c : std::string(tested.param)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Scripts, EntryPoint,
                         testing::Values("run", "test", ".ci/run", "ci/lanes/fuzz.sh"), name_of);

}  // namespace
}  // namespace lockstep
