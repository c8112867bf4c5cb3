// ./run, ./test and .ci/run as a newcomer meets them. Nothing here installs or builds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>

#include "engine/base/mapped_file.h"
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

// What ./run builds: programs, and no test.
TEST(Run, BuildsTheProgramsAlone) {
  const std::string root = LOCKSTEP_SOURCE_DIR;
  EXPECT_NE(read_text_file(root + "/run").find("build.sh\" cpu --target lockstep_tree\n"),
            std::string::npos);
  const std::string build = std::string(LOCKSTEP_BIN_DIR) + "/..";
  if (read_text_file(build + "/CMakeCache.txt").find("LOCKSTEP_CUDA:BOOL=ON") != std::string::npos)
    GTEST_SKIP() << "the tree of a CUDA build holds the tests of ops";
  const auto ninja = [&](const char* tool) {
    const ProcessResult result = run_process({"ninja", "-C", build, "-t", tool, "lockstep_tree"});
    EXPECT_EQ(result.exit_code, 0) << result.stderr_text;
    return result.stdout_text;
  };
  const std::string programs = ninja("query");
  for (const char* program : {" bin/lockstep\n", " bin/lockstep-gate\n", " bin/lockstep-generate\n",
                              " bin/lockstep-rank-faulty\n", " bin/lockstep-weights\n"}) {
    EXPECT_NE(programs.find(program), std::string::npos) << program;
  }
  const std::string inputs = ninja("inputs");
  EXPECT_NE(inputs.find("generate.cpp"), std::string::npos);
  for (const char* test : {"_test.cpp", "libgtest", "_fuzz.cpp", "lockstep-bench-ops"}) {
    EXPECT_EQ(inputs.find(test), std::string::npos) << test;
  }
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
