#include "validation/receipt/coverage.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "validation/testing/receipts.h"
#include "validation/testing/source_tree.h"

namespace lockstep {
namespace {

using testing::ReceiptPlan;
using testing::write_receipt;

class Coverage : public ::testing::Test {
 protected:
  PolicyCoverage judge() const {
    return policy_coverage("gpu", {tree_.root(), receipts(), waivers_, "2026-02-01"});
  }
  std::filesystem::path receipts() const { return tree_.root() / "ci/receipts"; }
  void add(const ReceiptPlan& plan) const { write_receipt(tree_.root(), receipts(), plan); }
  void change_kernel() const { tree_.write("engine/ops/linear/cuda/gemv.cu", "int kernel = 2;\n"); }

  testing::SourceTree tree_;
  std::vector<Waiver> waivers_;
};

TEST_F(Coverage, ANewReceiptCovers) {
  add({});
  const PolicyCoverage coverage = judge();
  EXPECT_EQ(coverage.verdict, Verdict::pass);
  EXPECT_EQ(coverage.units.size(), 1u);
}

TEST_F(Coverage, AChangedKernelIsNamed) {
  add({});
  change_kernel();
  const PolicyCoverage coverage = judge();
  EXPECT_EQ(coverage.verdict, Verdict::fail);
  EXPECT_NE(coverage.units[0].detail.find("engine/ops/linear/cuda/gemv.cu changed"),
            std::string::npos);
  EXPECT_NE(coverage.units[0].detail.find("linear.h is gone"), std::string::npos)
      << "the header is no longer included";
}

// For people beside another verdict: no verdict of its own.
TEST_F(Coverage, InWordsItSaysWhatIsCovered) {
  EXPECT_EQ(coverage_words(judge()), "there is none");
  add({});
  const std::string receipt = judge().receipt;
  EXPECT_EQ(coverage_words(judge()), receipt + " covers 1 of 1 ops as their sources are now");
  change_kernel();
  EXPECT_EQ(coverage_words(judge()),
            receipt + " covers 0 of 1 ops as their sources are now; not: linear");
  waivers_ = {{"linear", "", "ada", "no GPU at hand", "2026-01-31", "2026-02-01"}};
  EXPECT_EQ(coverage_words(judge()),
            receipt + " covers 0 of 1 ops as their sources are now, 1 is waived");
  PolicyCoverage many{"gpu", "r.json", Verdict::fail, {}, {}};
  for (int i = 0; i < 11; ++i) many.units.push_back({std::to_string(i), Verdict::fail, ""});
  EXPECT_NE(coverage_words(many).find("; not: 0, 1, 2, 3, 4, 5, 6, 7 and 3 more"),
            std::string::npos);
}

TEST_F(Coverage, AWaiverMakesItMistrusted) {
  change_kernel();
  waivers_ = {{"linear", "", "ada", "no GPU at hand", "2026-01-31", "2026-02-01"}};
  EXPECT_EQ(judge().verdict, Verdict::mistrusted);
  waivers_[0].expires = "2026-01-31";
  EXPECT_EQ(judge().verdict, Verdict::fail) << "it has expired";
}

TEST_F(Coverage, TheNewestReceiptCounts) {
  add({});
  change_kernel();
  add({.started = "2026-02-01T00:00:00Z"});
  EXPECT_EQ(judge().verdict, Verdict::pass);
}

TEST_F(Coverage, OnlyWholeGreenGatesCount) {
  add({.verdict = "FAIL"});
  add({.complete = false, .started = "2026-02-01T00:00:00Z"});
  add({.fault = "mlp.rows-permuted", .started = "2026-02-01T00:00:01Z"});
  add({.policy = "release", .started = "2026-02-01T00:00:02Z"});
  const PolicyCoverage coverage = judge();
  EXPECT_EQ(coverage.verdict, Verdict::fail);
  EXPECT_EQ(coverage.receipt, "");
  EXPECT_EQ(coverage.reasons.size(), 4u) << "three left out, none found";
}

TEST_F(Coverage, AnEditedReceiptDoesNotCount) {
  const auto path = write_receipt(tree_.root(), receipts(), {});
  std::string text = read_text_file(path);
  text.replace(text.find("12 prompts"), 2, "13");
  write_file_atomically(path, text);
  EXPECT_EQ(judge().verdict, Verdict::fail);
}

TEST_F(Coverage, NothingToCoverIsMistrusted) {
  std::filesystem::remove_all(tree_.root() / "engine/ops/linear/cuda");
  EXPECT_EQ(judge().verdict, Verdict::mistrusted);
}

TEST_F(Coverage, ReceiptsAreNeverOverwritten) {
  add({});
  EXPECT_THROW(add({}), Error);
}

TEST(RequiredPolicies, AreReadAndChecked) {
  const testing::SourceTree tree;
  EXPECT_EQ(required_policies(tree.root() / "ci/policy.json"), std::vector<std::string>{"gpu"});
  tree.write("ci/policy.json",
             R"({"format": "lockstep-receipt-policy", "format_version": 1, "required": ["tpu"]})");
  EXPECT_THROW(required_policies(tree.root() / "ci/policy.json"), Error);
  tree.write("ci/policy.json", "{}");
  EXPECT_THROW(required_policies(tree.root() / "ci/policy.json"), Error);
}

// The rule itself, on this repository: an op whose kernels no receipt covers needs a waiver.
TEST(ThisRepository, EveryCudaOpHasAReceiptOrAWaiver) {
  const std::filesystem::path root = LOCKSTEP_SOURCE_DIR;
  const CoverageInputs inputs{root, root / "ci/receipts", read_waivers(root / "ci/waivers.json"),
                              utc_today(), std::string(LOCKSTEP_BIN_DIR) + "/lockstep-ops-exact"};
  for (const std::string& policy : required_policies(root / "ci/policy.json")) {
    const PolicyCoverage coverage = policy_coverage(policy, inputs);
    for (const UnitCoverage& unit : coverage.units) {
      EXPECT_NE(unit.verdict, Verdict::fail) << policy << " " << unit.unit << ": " << unit.detail
                                             << ": run 'lockstep gate --policy gpu --receipt "
                                                "ci/receipts' on a card, or add a waiver to "
                                                "ci/waivers.json (docs/formats/waiver.md)";
    }
  }
}

}  // namespace
}  // namespace lockstep
