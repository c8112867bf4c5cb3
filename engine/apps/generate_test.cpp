// lockstep-generate in a folder of its own, with a rank that is a script.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Generate : public ::testing::Test {
 protected:
  Generate() {
    fs::copy_file(std::string(LOCKSTEP_BIN_DIR) + "/lockstep-generate",
                  folder_.path() / "lockstep-generate");
  }

  void rank_does(const std::string& body) const {
    const fs::path rank = folder_.path() / "lockstep-rank";
    write_file_atomically(rank, "#!/bin/sh\n" + body + "\n");
    fs::permissions(rank, fs::perms::owner_all);
  }

  ProcessResult generate(std::vector<std::string> more = {}) const {
    std::vector<std::string> argv = {(folder_.path() / "lockstep-generate").string(), "--model",
                                     "m", "--prompt", "p"};
    argv.insert(argv.end(), more.begin(), more.end());
    return run_process(argv, std::chrono::seconds(60));
  }

  TempDir folder_;
};

void expect_one_line(const ProcessResult& result, int exit_code, const std::string& part) {
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_EQ(std::count(result.stderr_text.begin(), result.stderr_text.end(), '\n'), 1)
      << result.stderr_text;
  EXPECT_NE(result.stderr_text.find(part), std::string::npos) << result.stderr_text;
}

TEST_F(Generate, NamesARankThatASignalEnded) {
  rank_does(R"(case "$*" in *--rank=1*) kill -KILL $$;; esac; exec sleep 30)");
  expect_one_line(generate(), 75, "rank 1 was killed by signal 9 (Killed): the system does that");
  rank_does(R"(case "$*" in *--rank=0*) kill -SEGV $$;; esac; exec sleep 30)");
  expect_one_line(generate(), 75, "rank 0 was killed by signal 11 (Segmentation fault): run it");
  rank_does("kill -TERM $$");
  expect_one_line(generate({"--tp", "1"}), 75, "rank 0 was killed by signal 15 (Terminated)");
}

// The survivor may end first: what it says is no cause.
TEST_F(Generate, NamesTheKilledRankThoughItsPeerEndedBefore) {
  rank_does(R"(case "$*" in *--rank=0*) exit 75;; esac; sleep 0.5; kill -KILL $$)");
  expect_one_line(generate(), 75, "rank 1 was killed by signal 9");
}

// Nothing is generated that could not be kept.
TEST_F(Generate, RefusesARecordThatCannotBeWrittenBeforeTheWork) {
  const fs::path ran = folder_.path() / "ran";
  rank_does("touch " + ran.string());
  const fs::path none = folder_.path() / "none";
  expect_one_line(generate({"--record", (none / "log.jsonl").string()}), 1,
                  none.string() + " is no folder: make it first");
  expect_one_line(generate({"--record", folder_.path().string()}), 1, "is a folder");
  expect_one_line(generate({"--record", (folder_.path() / "log.jsonl").string()}), 1,
                  "m/config.json");
  const std::string jobs = (folder_.path() / "jobs.jsonl").string();
  write_file_atomically(
      jobs, std::string(R"({"name": "a", "ids": [1], "inject": {"file": "x"}})") + "\n");
  const ProcessResult injecting = run_process(
      {(folder_.path() / "lockstep-generate").string(), "--model", "m", "--jobs", jobs, "--out",
       (folder_.path() / "out").string(), "--record", (folder_.path() / "log.jsonl").string()});
  expect_one_line(injecting, 1, "job \"a\" puts tensors in");
  EXPECT_FALSE(fs::exists(ran));
}

TEST_F(Generate, PassesOnTheExitCodeOfARankThatSaidWhy) {
  rank_does("echo 'lockstep-rank: no' >&2; exit 2");
  expect_one_line(generate({"--tp", "1"}), 2, "lockstep-rank: no");
}

}  // namespace
}  // namespace lockstep
