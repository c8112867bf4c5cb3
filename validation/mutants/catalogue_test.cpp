#include "validation/mutants/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "validation/gate/gate.h"
#include "validation/mutants/mutant_run.h"

namespace lockstep {
namespace {

std::string error_of(const std::string& row) {
  try {
    parse_catalogue(R"({"version": 2, "rows": [)" + row + "]}", "c.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Catalogue, CoversEveryFaultPointOnce) {
  std::multiset<std::string> planted;
  for (const CatalogueRow& row : built_in_catalogue()) planted.insert(row.point());
  for (const FaultPoint& point : fault_points()) {
    EXPECT_EQ(planted.erase(std::string(point.name)), 1u) << point.name;
  }
  EXPECT_TRUE(planted.empty()) << *planted.begin() << " is a fault that no program has";
}

TEST(Catalogue, NamesChecksOfTheGate) {
  std::set<std::string> known;
  for (const auto& [id, title] : gate_checks()) known.insert(id);
  for (const CatalogueRow& row : built_in_catalogue()) {
    EXPECT_TRUE(known.contains(row.check)) << row.fault << ": " << row.check;
  }
  for (const std::string& check : mutant_ladder()) EXPECT_TRUE(known.contains(check)) << check;
}

TEST(Catalogue, HoldsEnoughMutantsThatCount) {
  const auto rows = built_in_catalogue();
  const auto n = std::count_if(rows.begin(), rows.end(),
                               [](const CatalogueRow& row) { return row.equivalent.empty(); });
  EXPECT_GE(n, 60);
}

TEST(Catalogue, SamplesAreFixedAndSpread) {
  const auto rows = built_in_catalogue();
  EXPECT_EQ(catalogue_sample(rows, -1).size(), rows.size());
  EXPECT_EQ(catalogue_sample(rows, 100000).size(), rows.size());
  EXPECT_TRUE(catalogue_sample(rows, 0).empty());
  const auto sample = catalogue_sample(rows, 8);
  std::set<std::string> names;
  for (const CatalogueRow& row : sample) names.insert(row.fault);
  EXPECT_EQ(names.size(), 8u);
  EXPECT_EQ(sample[0].fault, rows[0].fault);
  EXPECT_EQ(sample[4].fault, rows[rows.size() / 2].fault);
}

TEST(Catalogue, RefusesByName) {
  EXPECT_EQ(error_of(R"({"fault": "a", "check": "i1", "names": "x"})"), "no error");
  EXPECT_EQ(error_of(R"({"fault": "a", "check": "i1", "equivalent": "a + b = b + a"})"),
            "no error");
  EXPECT_EQ(error_of(R"({"fault": "a", "check": "i1"})"), "no error");
  EXPECT_NE(error_of(R"({"fault": "a", "check": "i1", "names": "x", "survives": "y"})")
                .find("although nothing sees it"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"fault": "a", "names": "x"})").find("needs fault and check"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"fault": "a", "check": "i1", "names": "x", "tp": 2})")
                .find("unknown field 'tp'"),
            std::string::npos);
  EXPECT_THROW(parse_catalogue("{", "x"), Error);
  EXPECT_THROW(parse_catalogue(R"({"version": 1, "rows": []})", "x"), Error);
}

}  // namespace
}  // namespace lockstep
