// Acceptance against a baseline: the interval's size, every verdict, the engine and its drafting
// faults.
#include "validation/acceptance/acceptance.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/philox.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

using Prompts = std::vector<PromptAcceptance>;

// 12 prompts of 100 drafts, taken with probability `share`, a prompt's own share apart by +-0.2.
Prompts drawn(PhiloxStream& random, double share) {
  Prompts prompts;
  for (int i = 0; i < 12; ++i) {
    const double own = share + 0.2 * (i % 2 == 0 ? 1 : -1);
    PromptAcceptance prompt{"p" + std::to_string(i), 100, 0};
    for (int k = 0; k < 100; ++k) prompt.accepted += random.next_uniform() < own ? 1 : 0;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

TEST(Acceptance, EqualRunsAreTheSame) {
  PhiloxStream random(1);
  const Prompts run = drawn(random, 0.7);
  const AcceptanceReport report = judge_acceptance(run, run, 0.05);
  EXPECT_EQ(report.verdict, PairedVerdict::same);
  EXPECT_EQ(report.interval.low, 0);
  EXPECT_EQ(report.interval.high, 0);
}

TEST(Acceptance, VerdictsFollowTheInterval) {
  PhiloxStream random(2);
  const Prompts run = drawn(random, 0.7);
  Prompts low = run;
  for (PromptAcceptance& prompt : low) prompt.accepted -= 10;
  EXPECT_EQ(judge_acceptance(low, run, 0.05).verdict, PairedVerdict::worse);
  EXPECT_EQ(judge_acceptance(run, low, 0.05).verdict, PairedVerdict::better);
  Prompts one = run;
  one[3].accepted -= 60;
  EXPECT_EQ(judge_acceptance(one, run, 0.05).verdict, PairedVerdict::undecided)
      << "a single prompt says little";
}

TEST(Acceptance, TheIntervalHoldsTheTruth) {
  PhiloxStream random(3);
  int covered = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const Prompts baseline = drawn(random, 0.7);
    const AcceptanceReport report = judge_acceptance(drawn(random, 0.65), baseline, 0.05);
    covered += report.interval.low <= -0.05 && -0.05 <= report.interval.high ? 1 : 0;
  }
  EXPECT_GE(covered, 330);  // 90 % of 400, five standard deviations below
  EXPECT_LE(covered, 395);
}

TEST(Acceptance, WhatCannotBePairedIsRefused) {
  PhiloxStream random(4);
  const Prompts run = drawn(random, 0.7);
  Prompts other = run;
  other[0].name = "q";
  EXPECT_THROW(judge_acceptance(run, other, 0.05), Error);
  EXPECT_THROW(judge_acceptance({run[0]}, {run[0]}, 0.05), Error);
  EXPECT_NEAR(student_t95(11), 1.7959, 1e-3);
  EXPECT_NEAR(student_t95(100), 1.6602, 1e-3);
}

TEST(Acceptance, FilesThatAreNoBaselineAreRefusedInPlainWords) {
  const TempDir dir;
  const std::string path = (dir.path() / "x.json").string();
  const std::pair<const char*, const char*> rows[] = {
      {"{x", "not valid JSON at column 2"},
      {"{}", "'prompts' is missing"},
      {R"({"acceptance": [{"name": "p"}]})", "'drafted' is missing"},
      {R"({"acceptance": [{"name": 7, "drafted": 1, "accepted": 1}]})",
       "'name': a value must be string, but is number"}};
  for (const auto& [text, words] : rows) {
    write_file_atomically(path, std::string(text));
    try {
      read_acceptance(path);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(),
                path + ": neither an oracle nor a store of acceptance: " + std::string(words));
    }
  }
}

TEST(Acceptance, AStoreThatCannotBeWrittenIsRefusedBeforeTheRun) {
  const std::string golden = LOCKSTEP_GOLDEN_DIR;
  const ProcessResult result =
      run_process({std::string(LOCKSTEP_BIN_DIR) + "/lockstep-acceptance", "--model",
                   golden + "/tiny-qwen3_5", "--oracle", golden + "/oracle/public", "--engine",
                   "/bin/false", "--store", "/nonexistent/store"},
                  std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.stderr_text.find("--store /nonexistent/store: /nonexistent is no folder"),
            std::string::npos)
      << result.stderr_text;
}

TEST(Acceptance, TheEngineAndADraftingFault) {
  const std::string golden = LOCKSTEP_GOLDEN_DIR;
  const TempDir dir;
  const auto judge = [&](std::vector<std::string> more) {
    std::vector<std::string> argv = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-acceptance",
                                     "--json",
                                     "--model",
                                     golden + "/tiny-qwen3_5",
                                     "--oracle",
                                     golden + "/oracle/public"};
    argv.insert(argv.end(), more.begin(), more.end());
    return run_process(argv, std::chrono::seconds(200));
  };
  const std::string store = (dir.path() / "store.json").string();
  const ProcessResult honest = judge({"--store", store});
  EXPECT_EQ(honest.exit_code, 0) << honest.stdout_text << honest.stderr_text;
  EXPECT_EQ(nlohmann::json::parse(honest.stdout_text)["verdict"], "SAME");
  EXPECT_GE(read_acceptance(store).size(), 8u);
  // The text stays the same; only the share of taken drafts tells.
  const ProcessResult fault =
      judge({"--against", store, "--fault", "speculation.hidden-of-first-column"});
  const auto json = nlohmann::json::parse(fault.stdout_text);
  EXPECT_EQ(fault.exit_code, 1) << json;
  EXPECT_EQ(json["verdict"], "WORSE") << json;
}

}  // namespace
}  // namespace lockstep
