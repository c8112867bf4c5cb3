// Every fault point is planted by the catalogue, caught by its detector, and named; without the
// fault the detectors are silent.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "faultinject/campaign.h"

namespace lockstep {
namespace {

CampaignOptions golden_options() {
  const std::filesystem::path golden = LOCKSTEP_GOLDEN_DIR;
  return {golden / "tiny-qwen3_5", golden / "oracle/public", LOCKSTEP_BIN_DIR};
}

class Campaign : public ::testing::TestWithParam<CatalogueRow> {};

TEST_P(Campaign, FaultIsCaughtAndNamed) {
  const Finding finding = run_row(GetParam(), golden_options(), true);
  EXPECT_TRUE(finding.caught) << "nothing noticed " << GetParam().fault;
  EXPECT_TRUE(finding.named) << "expected " << GetParam().names << ", found " << finding.found;
}

INSTANTIATE_TEST_SUITE_P(Catalogue, Campaign, ::testing::ValuesIn(built_in_catalogue()),
                         [](const auto& row) {
                           std::string name = row.param.point();
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '.' || c == '-'; }, '_');
                           return name;
                         });

TEST(Catalogue, DetectorsAreSilentWithoutAFault) {
  std::set<std::string> seen;
  for (const CatalogueRow& row : built_in_catalogue()) {
    const std::string kind =
        std::string(detector_name(row.detector)) + std::to_string(row.mtp) + std::to_string(row.tp);
    if (!seen.insert(kind).second) continue;
    const Finding finding = run_row(row, golden_options(), false);
    EXPECT_FALSE(finding.caught) << kind << ": " << finding.found;
  }
}

TEST(Catalogue, CoversEveryFaultPoint) {
  std::set<std::string> planted;
  for (const CatalogueRow& row : built_in_catalogue()) planted.insert(row.point());
  for (const FaultPoint& point : fault_points()) {
    EXPECT_EQ(planted.count(std::string(point.name)), 1u) << point.name;
    planted.erase(std::string(point.name));
  }
  EXPECT_TRUE(planted.empty()) << "the catalogue plants a fault that no program has";
}

TEST(Catalogue, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(parse_catalogue("{", "x"), Error);
  EXPECT_THROW(parse_catalogue(R"({"version": 2, "rows": []})", "x"), Error);
  EXPECT_THROW(
      parse_catalogue(R"({"version": 1, "rows": [{"fault": "a", "detector": "b", "names": "c"}]})",
                      "x"),
      Error);
}

}  // namespace
}  // namespace lockstep
