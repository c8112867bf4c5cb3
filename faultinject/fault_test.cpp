// A fixed sample of the catalogue: each fault is caught by its check, and named; the whole
// catalogue is the full gate's.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/base/process.h"
#include "validation/mutants/mutant_run.h"

namespace lockstep {
namespace {

constexpr int kSample = 24;

GateOptions golden_gate() {
  const std::filesystem::path golden = LOCKSTEP_GOLDEN_DIR;
  const std::filesystem::path programs = LOCKSTEP_BIN_DIR;
  GateOptions options;
  options.model = golden / "tiny-qwen3_5";
  options.oracle = golden / "oracle/public";
  options.engine = programs / "lockstep-generate";
  options.weights = programs / "lockstep-weights";
  return options;
}

class Campaign : public ::testing::TestWithParam<CatalogueRow> {};

TEST_P(Campaign, FaultIsCaughtAndNamed) {
  const CatalogueRow& row = GetParam();
  const MutantResult result = run_mutant(row, golden_gate(), false);
  EXPECT_TRUE(result.reached) << "the fault never fired";
  if (!row.caught()) {
    EXPECT_FALSE(result.killed) << "the catalogue says that nothing sees it; " << result.found;
    return;
  }
  EXPECT_TRUE(result.killed) << "nothing noticed " << row.fault << "; " << result.found;
  EXPECT_TRUE(result.found.starts_with(row.names))
      << "expected " << row.names << ", found " << result.found;
}

INSTANTIATE_TEST_SUITE_P(Catalogue, Campaign,
                         ::testing::ValuesIn(catalogue_sample(built_in_catalogue(), kSample)),
                         [](const auto& row) {
                           std::string name = row.param.point();
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '.' || c == '-'; }, '_');
                           return name;
                         });

// One short text of the golden model with this fault.
ProcessResult generate_with(const std::string& fault) {
  const GateOptions gate = golden_gate();
  return run_process({gate.engine.string(), "--model", gate.model.string(), "--tp", "1", "--prompt",
                      "a", "--max-tokens", "2", "--fault", fault});
}

// Nothing is planted where no run can judge it.
TEST(Program, RefusesAModelOrOracleThatIsNotThereAtOnce) {
  const std::string program = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-fault";
  for (const auto& [flag, exit_code] : {std::pair("--model", 1), std::pair("--oracle", 3)}) {
    const ProcessResult refused =
        run_process({program, flag, "/nonexistent"}, std::chrono::seconds(60));
    EXPECT_EQ(refused.exit_code, exit_code) << flag;
    EXPECT_EQ(refused.stdout_text, "") << flag;
    EXPECT_NE(refused.stderr_text.find("/nonexistent"), std::string::npos) << refused.stderr_text;
  }
}

TEST(Program, ListsAndPlantsOnlyKnownFaults) {
  const std::string program = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-fault";
  for (const std::vector<std::string>& unknown :
       {std::vector<std::string>{"--list", "--only", "nosuch"},
        {"--only", "mlp.gate-up-swapped", "nosuch"}}) {
    std::vector<std::string> argv = {program};
    argv.insert(argv.end(), unknown.begin(), unknown.end());
    const ProcessResult refused = run_process(argv, std::chrono::seconds(60));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_EQ(refused.stderr_text,
              "lockstep-fault: --only nosuch: no such fault point; see --list\n");
  }
  const std::string one =
      run_process({program, "--list", "--only", "mlp.rows-permuted"}).stdout_text;
  EXPECT_NE(one.find("layer, rank"), std::string::npos) << one;
  EXPECT_EQ(one.find("mlp.gate-up-swapped"), std::string::npos) << one;
}

TEST(Selectors, ChooseTheLayerOfAnMlpFault) {
  EXPECT_EQ(generate_with("mlp.gate-up-swapped@layer=2,rank=0").exit_code, 0);
  EXPECT_EQ(generate_with("mlp.down-k-tail-dropped@layer=2").exit_code, 0);
  const ProcessResult beyond = generate_with("mlp.gate-up-swapped@layer=99");
  EXPECT_EQ(beyond.exit_code, 4);
  EXPECT_NE(beyond.stderr_text.find("never fired"), std::string::npos) << beyond.stderr_text;
}

TEST(Selectors, AreRefusedWhereThePointDoesNotKnowThem) {
  const std::pair<const char*, const char*> rows[] = {
      {"mlp.rows-permuted@round=3", "has no selector 'round', only layer, rank"},
      {"sampling.token-bit-flipped@layer=1", "has no selector 'layer', only rank, round"},
      {"mlp.rows-permuted@layer=1,slot=2", "has no selector 'slot', only layer, rank"},
      {"embedding.next-row@rank=1", "has no selector 'rank', and no other: leave out"},
      {"mlp.rows-permuted@layer=x", "'x' is not a number"},
      {"nosuch@layer=1", "unknown fault"}};
  for (const auto& [fault, words] : rows) {
    const ProcessResult refused = generate_with(fault);
    EXPECT_EQ(refused.exit_code, 2) << fault;
    EXPECT_NE(refused.stderr_text.find(words), std::string::npos) << refused.stderr_text;
  }
}

TEST(Ladder, IsSilentWithoutAFault) {
  CatalogueRow honest;
  honest.check = mutant_ladder()[0];
  const MutantResult result = run_mutant(honest, golden_gate(), true);
  EXPECT_FALSE(result.killed) << result.killer << ": " << result.found;
}

}  // namespace
}  // namespace lockstep
