// A request log runs again with other ranks, slots and drafts to the same digests, and says so when
// it does not.
#include <gtest/gtest.h>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

const std::string kBin = LOCKSTEP_BIN_DIR;
const std::string kModel = std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";

class Replay : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file_atomically(
        path("jobs.jsonl"),
        R"({"name": "greedy", "prompt": "def add(", "temperature": 0})"
        "\n"
        R"({"name": "sampled", "prompt": "class Page", "temperature": 1, "seed": 5})"
        "\n");
    const ProcessResult made = run_process(
        {kBin + "/lockstep-generate", "--model", kModel, "--jobs", path("jobs.jsonl"), "--out",
         path("out"), "--max-tokens", "16", "--ignore-eos", "--record", path("log.jsonl")});
    ASSERT_EQ(made.exit_code, 0) << made.stderr_text;
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  ProcessResult replay(const std::vector<std::string>& flags) const {
    std::vector<std::string> argv = {kBin + "/lockstep-replay", path("log.jsonl"), "--model",
                                     kModel};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return run_process(argv);
  }

  void edit_log(const std::string& from, const std::string& to) const {
    std::string log = read_text_file(path("log.jsonl"));
    const size_t at = log.find(from);
    ASSERT_NE(at, std::string::npos) << log;
    write_file_atomically(path("log.jsonl"), log.replace(at, from.size(), to));
  }

 private:
  TempDir folder_;
};

TEST_F(Replay, OtherRanksSlotsAndDraftsGiveTheSameDigests) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--tp", "1"},
                                                {"--tp", "2", "--mtp", "0", "--slots", "1"},
                                                {"--tp", "1", "--mtp", "5", "--threads", "2"}}) {
    const ProcessResult result = replay(flags);
    EXPECT_EQ(result.exit_code, 0) << result.stdout_text << result.stderr_text;
  }
}

// Bits of a card are not those of the CPU. No machine has this card; only the CPU says that it
// takes none.
TEST_F(Replay, TheBackendIsTheLogs) {
  const std::vector<std::string> flags = {"--devices=999"};
  const std::string cpu = "--backend cpu uses none";
  EXPECT_NE(replay(flags).stderr_text.find(cpu), std::string::npos);
  edit_log(R"("backend":"cpu")", R"("backend":"cuda")");
  const ProcessResult result = replay(flags);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(result.stderr_text.find(cpu), std::string::npos) << result.stderr_text;
}

TEST_F(Replay, AnotherRequestIsADifference) {
  edit_log("class Page", "class Pack");
  const ProcessResult result = replay({"--tp", "1"});
  EXPECT_EQ(result.exit_code, 1) << result.stdout_text;
  EXPECT_NE(result.stdout_text.find("FAIL"), std::string::npos);
}

TEST_F(Replay, AnotherCheckpointCannotBeJudged) {
  edit_log("\"model\":\"", "\"model\":\"0");
  EXPECT_EQ(replay({"--tp", "1"}).exit_code, 3);
}

TEST_F(Replay, ANewerLogIsRefused) {
  edit_log("\"version\":1", "\"version\":2");
  const ProcessResult result = replay({"--tp", "1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.stderr_text.find("version 2"), std::string::npos) << result.stderr_text;
}

}  // namespace
}  // namespace lockstep
