// Image prompts judged by a second oracle, which golden/recipe/numpy_vision.py makes from the
// model's definition: other pictures, other grids, three pictures in a prompt, text before and
// between them.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

const std::string kModel = LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5";

void record_oracle(const std::string& prefix) {
  const ProcessResult result =
      run_process({"/usr/bin/python3", LOCKSTEP_GOLDEN_DIR "/recipe/numpy_vision.py", "--model",
                   kModel, "--prompts", LOCKSTEP_GOLDEN_DIR "/oracle/public.json", "--out", prefix},
                  std::chrono::minutes(10), {{"OPENBLAS_NUM_THREADS", "1"}});
  ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
}

ProcessResult compare(const std::string& oracle, std::vector<std::string> arguments) {
  std::vector<std::string> command = {LOCKSTEP_BIN_DIR "/lockstep-compare",
                                      "--model",
                                      kModel,
                                      "--oracle",
                                      oracle,
                                      "--precision",
                                      "fp32"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_process(command, std::chrono::minutes(5));
}

TEST(SecondImageOracle, EngineAgreesAndPlantedMistakesAreNoticed) {
  const TempDir dir;
  const std::string oracle = (dir.path() / "second").string();
  record_oracle(oracle);
  for (const char* tp : {"1", "2"}) {
    const ProcessResult judged = compare(oracle, {"--tp", tp});
    EXPECT_EQ(judged.exit_code, 0) << judged.stdout_text << judged.stderr_text;
    for (const char* word : {"upright", "three", "between", "96/96"}) {
      EXPECT_NE(judged.stdout_text.find(word), std::string::npos) << judged.stdout_text;
    }
  }
  for (const char* fault : {"vision.position-nearest", "mrope.delta-ignored"}) {
    EXPECT_EQ(compare(oracle, {"--tp", "1", "--fault", fault}).exit_code, 1) << fault;
  }
}

}  // namespace
}  // namespace lockstep
