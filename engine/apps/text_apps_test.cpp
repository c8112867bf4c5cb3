// lockstep-tokenize and lockstep-render as programs: output, exit codes, one line for bad input.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/core.h>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"

namespace lockstep {
namespace {

const std::string kBin = LOCKSTEP_BIN_DIR;
const std::string kGolden = LOCKSTEP_GOLDEN_DIR;
const std::string kModel = kGolden + "/tiny-qwen3_5";

class TextApps : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / fmt::format("lockstep-text-apps-{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) {
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }

  static void expect_one_line(const ProcessResult& result, int exit_code, const std::string& part) {
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.stdout_text, "");
    EXPECT_EQ(std::count(result.stderr_text.begin(), result.stderr_text.end(), '\n'), 1)
        << result.stderr_text;
    EXPECT_NE(result.stderr_text.find(part), std::string::npos) << result.stderr_text;
  }

  std::filesystem::path folder_;
};

TEST_F(TextApps, TokenizeGivesTheGoldenIds) {
  const std::string cases = kGolden + "/tokenizer/tokenizer-cases.jsonl";
  const ProcessResult result =
      run_process({kBin + "/lockstep-tokenize", "--model", kModel, "--jsonl", cases});
  ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
  std::ifstream expected(cases);
  std::istringstream actual(result.stdout_text);
  std::string expected_line;
  std::string actual_line;
  int n = 0;
  while (std::getline(expected, expected_line)) {
    ASSERT_TRUE(std::getline(actual, actual_line));
    const auto want = nlohmann::json::parse(expected_line);
    const auto have = nlohmann::json::parse(actual_line);
    ASSERT_EQ(have.at("ids"), want.at("ids"));
    ASSERT_EQ(have.at("decoded"), want.at("decoded"));
    ++n;
  }
  EXPECT_EQ(n, 5000);
}

TEST_F(TextApps, RenderPrintsThePromptAlone) {
  const std::string chat =
      file("chat.json", R"({"messages": [{"role": "user", "content": " hi "}]})");
  const ProcessResult result =
      run_process({kBin + "/lockstep-render", "--model", kModel, "--chat", chat});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.stdout_text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(result.stderr_text, "");
}

TEST_F(TextApps, BadInputIsOneLineAndExitOne) {
  const std::string tokenize = kBin + "/lockstep-tokenize";
  const std::string render = kBin + "/lockstep-render";
  expect_one_line(run_process({tokenize, "--model", "/nonexistent", "--jsonl", "x"}), 1,
                  "/nonexistent/tokenizer.json");
  expect_one_line(run_process({tokenize, "--model", kModel, "--jsonl", "/nonexistent"}), 1,
                  "/nonexistent");
  expect_one_line(
      run_process({tokenize, "--model", kModel, "--jsonl", file("a", "{\"txt\": 1}\n")}), 1,
      "a:1: ");
  expect_one_line(run_process({render, "--model", kModel, "--chat", file("b", "{}")}), 1,
                  "no messages");
  expect_one_line(run_process({render, "--model", kModel, "--chat", "/nonexistent"}), 1,
                  "/nonexistent");
  expect_one_line(run_process({render, "--model", "/nonexistent", "--chat", file("c", "{}")}), 1,
                  "/nonexistent");
  expect_one_line(run_process({render, "--model", kModel, "--chat",
                               file("d", R"({"messages": [{"role": "developer"}]})")}),
                  1, "chat_template.jinja: line");
}

TEST_F(TextApps, WhatCannotBeWrittenIsAnError) {
  const std::string chat = file("c.json", R"({"messages": [{"role": "user", "content": "hi"}]})");
  const std::string text = file("t.jsonl", "{\"text\": \"hi\"}\n");
  for (const std::string& command : {"/lockstep-render --model " + kModel + " --chat " + chat,
                                     "/lockstep-tokenize --model " + kModel + " --jsonl " + text}) {
    expect_one_line(run_process({"/bin/sh", "-c", kBin + command + " > /dev/full"}), 1,
                    "standard output: No space left on device");
    expect_one_line(run_process({"/bin/sh", "-c", kBin + command + " >&-"}), 1,
                    "standard output: ");
    EXPECT_EQ(run_process({"/bin/sh", "-c", kBin + command}).exit_code, 0) << command;
  }
}

TEST_F(TextApps, FlagsFollowTheConventions) {
  for (const char* name : {"/lockstep-tokenize", "/lockstep-render"}) {
    const ProcessResult help = run_process({kBin + name, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.stdout_text.find("--model"), std::string::npos);
    EXPECT_EQ(run_process({kBin + name, "--no-such-flag"}).exit_code, 2);
    EXPECT_EQ(run_process({kBin + name}).exit_code, 2);
  }
}

}  // namespace
}  // namespace lockstep
