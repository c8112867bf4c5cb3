// The front program in a folder of its own, with commands that are scripts.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Front : public ::testing::Test {
 protected:
  Front() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-front-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fs::copy_file(std::string(LOCKSTEP_BIN_DIR) + "/lockstep", folder_ / "lockstep");
    script("lockstep-compare", "printf '[%s]' \"$@\"; exit 7");
    script("lockstep-rank-faulty", "exit 0");
    write_file_atomically(folder_ / "lockstep-notes", std::string("not executable"));
  }
  ~Front() override { fs::remove_all(folder_); }

  void script(const char* name, const std::string& body) const {
    write_file_atomically(folder_ / name, "#!/bin/sh\n" + body + "\n");
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }
  ProcessResult front(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), (folder_ / "lockstep").string());
    return run_process(arguments, std::chrono::seconds(30));
  }

  fs::path folder_;
};

TEST_F(Front, PassesArgumentsAndExitCode) {
  const ProcessResult result = front({"compare", "--model", "a b", ""});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.stdout_text, "[--model][a b][]");
  EXPECT_EQ(front({"help", "compare"}).stdout_text, "[--help]");
}

TEST_F(Front, HelpListsWhatIsThere) {
  const ProcessResult result = front({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.stdout_text.find("compare      engine or dump"), std::string::npos);
  EXPECT_EQ(result.stdout_text.find("gate "), std::string::npos);
  EXPECT_EQ(result.stdout_text.find("rank-faulty"), std::string::npos);
  EXPECT_EQ(result.stdout_text.find("notes"), std::string::npos);
  EXPECT_EQ(front({}).exit_code, 2);
  EXPECT_EQ(front({"--version"}).exit_code, 0);
}

// Of all programs of this build.
TEST(FrontHelp, SaysOfEveryProgramWhatItIs) {
  const std::string bin = LOCKSTEP_BIN_DIR;
  const std::string help = run_process({bin + "/lockstep", "--help"}).stdout_text;
  size_t n_listed = 0;
  for (const auto& entry : fs::directory_iterator(bin)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("lockstep-") || name == "lockstep-rank-faulty") continue;
    const std::string line = "\n  " + name.substr(9) + " ";
    const size_t at = help.find(line);
    ASSERT_NE(at, std::string::npos) << name;
    const std::string rest =
        help.substr(at + line.size(), help.find('\n', at + 1) - at - line.size());
    EXPECT_NE(rest.find_first_not_of(' '), std::string::npos) << name << " has no description";
    ++n_listed;
  }
  EXPECT_GE(n_listed, 3u);
}

TEST_F(Front, UnknownCommandsAreUsageErrors) {
  for (const char* bad : {"serve", "../compare", "notes", "-x", "com pare", "."}) {
    const ProcessResult result = front({bad});
    EXPECT_EQ(result.exit_code, 2) << bad;
    EXPECT_EQ(result.stderr_text,
              "lockstep: unknown command '" + std::string(bad) + "': see 'lockstep --help'\n");
  }
}

TEST_F(Front, WhatCannotBeWrittenIsAnError) {
  const std::string weights = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-weights";
  const ProcessResult full = run_process({"/bin/sh", "-c", weights + " --help > /dev/full"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.stderr_text, "lockstep-weights: standard output: No space left on device\n");
  const ProcessResult closed = run_process({"/bin/sh", "-c", weights + " --help >&-"});
  EXPECT_EQ(closed.exit_code, 1);
}

TEST_F(Front, NumbersThatAreNoneAreUsageErrors) {
  const std::string bin = LOCKSTEP_BIN_DIR;
  const std::vector<std::vector<std::string>> bad = {
      {bin + "/lockstep-generate", "--temperature=nan"},
      {bin + "/lockstep-generate", "--max-tokens=99999999999999999999"},
      {bin + "/lockstep-serve", "--watchdog=nan"},
      {bin + "/lockstep-exam", "--margin=nan"}};
  for (const auto& argv : bad) {
    const ProcessResult result = run_process(argv);
    const std::string name = argv[1].substr(0, argv[1].find('='));
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_NE(result.stderr_text.find(name + ": "), std::string::npos) << result.stderr_text;
    EXPECT_EQ(std::count(result.stderr_text.begin(), result.stderr_text.end(), '\n'), 1)
        << result.stderr_text;
  }
}

}  // namespace
}  // namespace lockstep
