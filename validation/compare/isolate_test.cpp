// Isolation: a wrong operation is told from those that pass its error on, in invented runs and in
// the engine with faults planted.
#include "validation/compare/isolate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "engine/model/safetensors.h"
#include "validation/compare/compare.h"
#include "validation/testing/synthetic_run.h"

namespace lockstep {
namespace {

using testing::make_synthetic_run;
using testing::SyntheticRun;

// The plain run of "alpha" with 1 % of error in the taps `wrong_plain`, the isolated one in
// `wrong_isolated`.
IsolatedPrompt judge(const std::vector<std::string>& wrong_plain,
                     const std::vector<std::string>& wrong_isolated) {
  SyntheticRun plain = make_synthetic_run(Precision::fp32);
  SyntheticRun isolated = make_synthetic_run(Precision::fp32);
  for (const std::string& tap : wrong_plain) plain.perturb("alpha", tap, 0.01);
  for (const std::string& tap : wrong_isolated) isolated.perturb("alpha", tap, 0.01);
  for (SyntheticRun* run : {&plain, &isolated}) {
    std::erase_if(run->result("alpha").dump.taps,
                  [](const auto& entry) { return !can_inject(entry.first); });
  }
  return judge_isolation(plain.prompt("alpha"), plain.result("alpha"), isolated.result("alpha"),
                         Precision::fp32);
}

TEST(Isolation, TellsCulpritsFromVictims) {
  const IsolatedPrompt prompt =
      judge({"layers.0.mlp", "layers.0.out", "layers.1.out", "final_norm"}, {"layers.0.mlp"});
  EXPECT_EQ(prompt.verdict, Verdict::fail);
  EXPECT_EQ(prompt.culprit, "layers.0.mlp");
  for (const IsolatedTap& tap : prompt.taps) {
    const bool victim =
        tap.tap == "layers.0.out" || tap.tap == "layers.1.out" || tap.tap == "final_norm";
    EXPECT_EQ(tap.victim, victim) << tap.tap;
  }
}

TEST(Isolation, AnHonestRunHasNoCulprit) {
  const IsolatedPrompt prompt = judge({}, {});
  EXPECT_EQ(prompt.verdict, Verdict::pass);
  EXPECT_EQ(prompt.culprit, "");
}

TEST(Isolation, AnEngineThatPutsNothingInIsMistrusted) {
  const std::vector<std::string> wrong = {"layers.0.mlp", "layers.0.out"};
  EXPECT_EQ(judge(wrong, wrong).reason,
            "the engine put nothing in: both runs are equal in every bit");
  SyntheticRun run = make_synthetic_run(Precision::fp32);
  run.perturb("alpha", "layers.0.mlp", 1e-6);  // within the limit, and still there afterwards
  EXPECT_EQ(judge_isolation(run.prompt("alpha"), run.result("alpha"), run.result("alpha"),
                            Precision::fp32)
                .verdict,
            Verdict::error)
      << "states are taps that the isolated prompt does not hold";
  std::erase_if(run.result("alpha").dump.taps,
                [](const auto& entry) { return !can_inject(entry.first); });
  EXPECT_EQ(judge_isolation(run.prompt("alpha"), run.result("alpha"), run.result("alpha"),
                            Precision::fp32)
                .verdict,
            Verdict::mistrusted);
}

TEST(Isolation, JobsPutTheOraclesTensorsIn) {
  const TempDir folder;
  const SyntheticRun run = make_synthetic_run(Precision::fp32);
  const IsolationJobs made = isolation_jobs(run.oracle, folder.path());
  ASSERT_EQ(made.jobs.size(), 4u);
  EXPECT_TRUE(made.jobs[0].inject.empty());
  EXPECT_EQ(made.jobs[1].name, "alpha.isolated");
  const SafetensorsFile file(made.jobs[1].inject);
  EXPECT_NE(file.find("layers.1.mixer"), nullptr);
  EXPECT_NE(file.find("decode/layers.0.out"), nullptr);
  EXPECT_EQ(file.find("state/layers.1.k"), nullptr);
}

// The real engine on one short prompt of the golden oracle.
nlohmann::json isolate_golden(const std::string& prompt, const std::string& fault) {
  const std::string golden = LOCKSTEP_GOLDEN_DIR;
  std::vector<std::string> argv = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-compare",
                                   "--json",
                                   "--isolate",
                                   "--model",
                                   golden + "/tiny-qwen3_5",
                                   "--oracle",
                                   golden + "/oracle/public",
                                   "--prompt",
                                   prompt};
  if (!fault.empty()) argv.insert(argv.end(), {"--fault", fault});
  const ProcessResult result = run_process(argv, std::chrono::seconds(120));
  return nlohmann::json::parse(result.stdout_text, nullptr, false);
}

TEST(IsolateGolden, TheEngineHasNoCulprit) {
  const auto json = isolate_golden("chat-code", "");
  EXPECT_EQ(json["verdict"], "PASS") << json;
  EXPECT_GT(json["prompts"][0]["taps"].size(), 20u);
}

TEST(IsolateGolden, FaultsAreNamedWhereTheyAre) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"mlp.block-scale-plus-1@layer=2", "layers.2.mlp"},
      {"mlp.rows-permuted@layer=4", "layers.4.mlp"},
      {"attention.q-gate-swapped@layer=7", "layers.7.mixer"},
      {"gdn.state-lost-at-prompt-end@layer=1", "decode/layers.1.out"}};
  for (const auto& [fault, culprit] : faults) {
    const auto json = isolate_golden("chat-code", fault);
    ASSERT_EQ(json["verdict"], "FAIL") << fault << json;
    EXPECT_EQ(json["prompts"][0]["culprit"], culprit) << fault;
  }
}

}  // namespace
}  // namespace lockstep
