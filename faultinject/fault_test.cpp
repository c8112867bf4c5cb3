// A fixed sample of the catalogue: each fault is caught by its check, and named; the whole
// catalogue is the full gate's.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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

TEST(Ladder, IsSilentWithoutAFault) {
  CatalogueRow honest;
  honest.check = mutant_ladder()[0];
  const MutantResult result = run_mutant(honest, golden_gate(), true);
  EXPECT_FALSE(result.killed) << result.killer << ": " << result.found;
}

}  // namespace
}  // namespace lockstep
