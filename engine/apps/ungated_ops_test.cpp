// A rank that is started on a card says first which kernels nobody has seen to be right on one.
#include <gtest/gtest.h>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class UngatedOps : public ::testing::Test {
 protected:
  UngatedOps() {
    fs::create_directories(dir_.path() / "bin");
    fs::create_directories(dir_.path() / "share/lockstep");
    fs::copy_file(std::string(LOCKSTEP_BIN_DIR) + "/lockstep-rank", rank());
  }
  fs::path rank() const { return dir_.path() / "bin/lockstep-rank"; }
  void write_list(const std::string& text) const {
    write_file_atomically(dir_.path() / "share/lockstep/ungated-ops.txt", text);
  }
  std::string start(const std::string& backend) const {
    const std::string model = std::string(LOCKSTEP_GOLDEN_DIR) + "/tiny-qwen3_5";
    const fs::path jobs = dir_.path() / "jobs.jsonl";
    write_file_atomically(jobs, std::string(R"({"name": "a", "ids": [1], "max_tokens": 1})"));
    fs::create_directories(dir_.path() / "out");
    return run_process({rank().string(), "--model", model, "--backend", backend, "--tp", "1",
                        "--jobs", jobs.string(), "--out", (dir_.path() / "out").string()})
        .stderr_text;
  }

  TempDir dir_;
};

TEST_F(UngatedOps, AreNamedAtStart) {
  write_list("linear: no receipt covers it; waived by ada until 2026-02-14: no GPU at hand\n");
  const std::string said = start("cuda");
  EXPECT_TRUE(said.starts_with("op linear is not gated: no receipt covers it; waived by ada"))
      << said;
  EXPECT_EQ(start("cpu").find("not gated"), std::string::npos);
}

TEST_F(UngatedOps, NothingIsSaidWhenReceiptsCoverAll) {
  write_list("");
  EXPECT_EQ(start("cuda").find("gated"), std::string::npos);
}

TEST_F(UngatedOps, AMissingListIsSaid) {
  EXPECT_NE(start("cuda").find("no CUDA op is known to be gated"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
