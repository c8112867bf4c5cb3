// The perf gate: its statistics, what it promises of itself, and the program on fake builds. No
// clock is looked at.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/gate/gate_run.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kGates = 500;

TEST(SignedRank, HasItsExactChances) {
  EXPECT_DOUBLE_EQ(signed_rank_p({1, 2, 3}), 1.0 / 8);
  EXPECT_DOUBLE_EQ(signed_rank_p({-1, -2, -3}), 1.0);
  // Of 32 signs, those that leave out nothing, rank 1 or rank 2.
  EXPECT_DOUBLE_EQ(signed_rank_p({1, -2, 3, 4, 5}), 3.0 / 32);
  EXPECT_DOUBLE_EQ(signed_rank_p({0}), 1.0);
  EXPECT_DOUBLE_EQ(signed_rank_p({}), 1.0);
}

TEST(ShareInterval, IsThatOfClopperAndPearson) {
  EXPECT_NEAR(share_interval(5, 10).low, 0.1871, 1e-4);
  EXPECT_NEAR(share_interval(5, 10).high, 0.8129, 1e-4);
  EXPECT_EQ(share_interval(0, 2000).low, 0.0);
  EXPECT_NEAR(share_interval(0, 2000).high, 1 - std::pow(0.025, 1.0 / 2000), 1e-9);
  EXPECT_EQ(share_interval(7, 7).high, 1.0);
}

TEST(Quads, HaveTwoOfEachAndBothOrders) {
  std::set<bool> first;
  for (int quad = 0; quad < 20; ++quad) {
    const std::array<bool, 4> order = quad_order(3, quad);
    EXPECT_EQ(order[0], order[3]);
    EXPECT_EQ(order[1], order[2]);
    EXPECT_NE(order[0], order[1]);
    first.insert(order[0]);
  }
  EXPECT_EQ(first.size(), 2u);
  EXPECT_EQ(quad_order(3, 7), quad_order(3, 7));
}

// A drift that is even over the four takes nothing from the difference.
TEST(Quads, AreFreeOfEvenDrift) {
  const PaceQuad quad{{1.00 * 1.0, 1.00 * 1.3}, {1.02 * 1.1, 1.02 * 1.2}};
  const double even = (std::log(1.1) + std::log(1.2) - std::log(1.0) - std::log(1.3)) / 2;
  EXPECT_NEAR(quad.difference(), std::log(1.02) + even, 1e-12);
  EXPECT_LT(std::fabs(even), 0.01);
}

TEST(Pace, HasFourAnswers) {
  const PaceRule rule;
  const auto verdict = [&](double shift, double noise) {
    std::vector<double> differences;
    for (int i = 0; i < 12; ++i) differences.push_back(shift + (i % 2 == 0 ? noise : -noise));
    return judge_pace(differences, rule, rule.alpha);
  };
  EXPECT_EQ(verdict(0.01, 0.002), PaceVerdict::slower);
  EXPECT_EQ(verdict(-0.01, 0.002), PaceVerdict::faster);
  EXPECT_EQ(verdict(0.0, 0.002), PaceVerdict::same);
  EXPECT_EQ(verdict(0.0, 0.05), PaceVerdict::ambiguous);
}

TEST(SelfTest, KeepsItsPromises) {
  const PaceRule rule;
  EXPECT_EQ(broken_promise(self_test(kGates, 1, rule), rule), "");
}

// A rule that alarms too soon, and one that sees too little.
TEST(SelfTest, FindsBadRules) {
  PaceRule eager;
  eager.margin = 0;
  eager.alpha = 0.8;
  EXPECT_NE(broken_promise(self_test(kGates, 1, eager), eager).find("equal builds"),
            std::string::npos);
  PaceRule blind;
  blind.margin = 0.009;
  EXPECT_NE(broken_promise(self_test(kGates, 1, blind), blind).find("is found in"),
            std::string::npos);
}

TEST(SelfTest, UsesTheNoiseThatWasMeasured) {
  const PaceRule rule;
  std::vector<double> quiet;
  std::vector<double> loud;
  for (int i = 0; i < 12; ++i) {
    quiet.push_back(0.3 + 0.002 * std::sin(i));  // their level does not count
    loud.push_back(0.1 * std::sin(i));
  }
  EXPECT_EQ(resample_gates(quiet, 0, kGates, 1, rule).n_slower, 0);
  EXPECT_GT(resample_gates(quiet, 0.01, kGates, 1, rule).slower_share(), 0.95);
  EXPECT_LT(resample_gates(loud, 0.01, kGates, 1, rule).slower_share(), 0.2);
}

TEST(Race, WorstFigureDecides) {
  const auto race = [](PaceVerdict a, PaceVerdict b) {
    return PaceRace{{{"x", a, {}}, {"y", b, {}}}}.verdict();
  };
  EXPECT_EQ(race(PaceVerdict::same, PaceVerdict::same), PaceVerdict::same);
  EXPECT_EQ(race(PaceVerdict::same, PaceVerdict::faster), PaceVerdict::faster);
  EXPECT_EQ(race(PaceVerdict::ambiguous, PaceVerdict::faster), PaceVerdict::ambiguous);
  EXPECT_EQ(race(PaceVerdict::ambiguous, PaceVerdict::slower), PaceVerdict::slower);
}

TEST(Race, FiguresAreJudgedOneByOne) {
  const PaceRule rule;
  const auto process = [](bool candidate) {
    return std::vector<double>{1.0, candidate ? 1.02 : 1.0};
  };
  const PaceRace race = run_race({"x", "y"}, process, 1, rule);
  EXPECT_EQ(race.figures[0].verdict, PaceVerdict::same);
  EXPECT_EQ(race.figures[1].verdict, PaceVerdict::slower);
  EXPECT_NEAR(race.figures[1].change(), 0.02, 1e-9);
  EXPECT_EQ(race.figures[0].quads.size(), static_cast<size_t>(rule.looks[0]));
  const auto broken = [](bool) { return std::vector<double>{0.0}; };
  EXPECT_THROW(run_race({"x"}, broken, 1, rule), Error);
}

class GateProgram : public ::testing::Test {
 protected:
  GateProgram() {
    for (const char* build : {"a", "b"}) {
      fs::create_directories(dir_.path() / build);
      fs::copy_file(std::string(LOCKSTEP_SOURCE_DIR) + "/bench/gate/fake_generate.sh",
                    dir_.path() / build / "lockstep-generate");
      set(build, "seconds", "0.5\n");
      set(build, "noise", "0.3\n");
    }
  }
  void set(const std::string& build, const char* file, const std::string& text) const {
    write_file_atomically(dir_.path() / build / file, text);
  }
  ProcessResult gate(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-bench", "gate",
                                     (dir_.path() / "a").string(), (dir_.path() / "b").string()};
    argv.insert(argv.end(), more.begin(), more.end());
    return run_process(argv, std::chrono::seconds(120));
  }
  TempDir dir_;
};

TEST_F(GateProgram, EqualBuildsPass) {
  const ProcessResult result = gate({"--json", "--backend", "cuda", "--tp", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.stdout_text << result.stderr_text;
  const Json json = Json::parse(result.stdout_text);
  EXPECT_EQ(json["verdict"], "SAME");
  EXPECT_EQ(json["figures"].size(), 2u);
  EXPECT_GE(json["figures"][1]["quads"].size(), 12u);
  EXPECT_EQ(json["figures"][0]["false_alarms"], 0.0);
  const std::string calls = read_text_file(dir_.path() / "b/calls");
  EXPECT_NE(calls.find("--backend=cuda --precision=bf16 --tp=2"), std::string::npos) << calls;
}

TEST_F(GateProgram, ASlowerBuildFails) {
  set("b", "seconds", "0.505\n");
  const ProcessResult result = gate();
  EXPECT_EQ(result.exit_code, 1) << result.stdout_text << result.stderr_text;
  EXPECT_NE(result.stdout_text.find("SLOWER"), std::string::npos);
}

TEST_F(GateProgram, APlantedSlowdownFails) {
  EXPECT_EQ(gate({"--inject-percent", "1"}).exit_code, 1);
}

TEST_F(GateProgram, TooMuchNoiseIsMistrusted) {
  set("b", "noise", "40\n");
  const ProcessResult result = gate();
  EXPECT_EQ(result.exit_code, 4) << result.stdout_text;
  EXPECT_NE(result.stderr_text.find("quiet machine"), std::string::npos);
}

TEST_F(GateProgram, ABrokenBuildIsNoVerdict) {
  set("b", "fails", "");
  const ProcessResult result = gate();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.stderr_text.find("out of pages"), std::string::npos) << result.stderr_text;
  EXPECT_EQ(result.stdout_text, "");
}

TEST_F(GateProgram, TestsItself) {
  const ProcessResult result = run_process(
      {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-bench", "gate", "--self-test", "--gates", "300"});
  EXPECT_EQ(result.exit_code, 0) << result.stdout_text << result.stderr_text;
  EXPECT_NE(result.stdout_text.find("strong drift"), std::string::npos);
  EXPECT_EQ(run_process({std::string(LOCKSTEP_BIN_DIR) + "/lockstep-bench", "gate"}).exit_code, 2);
}

}  // namespace
}  // namespace lockstep
