// lockstep receipt as its users start it, and what makes a receipt trustworthy.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "validation/receipt/receipt_file.h"
#include "validation/receipt/signature.h"
#include "validation/testing/receipts.h"
#include "validation/testing/source_tree.h"

namespace lockstep {
namespace {

// Made for this test with openssl; it signs nothing else.
constexpr const char* kKey =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIJ/T5WGrY0ueSRHqUHVU0NdXfm+INikQdjts3ULht+6K\n"
    "-----END PRIVATE KEY-----\n";

class ReceiptMain : public ::testing::Test {
 protected:
  ReceiptMain() { std::filesystem::create_directories(receipts()); }

  ProcessResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), std::string(LOCKSTEP_BIN_DIR) + "/lockstep-receipt");
    return run_process(arguments, std::chrono::seconds(60));
  }
  ProcessResult verify(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"verify", receipts().string(), "--source",
                                          tree_.root().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::filesystem::path receipts() const { return tree_.root() / "receipts"; }
  std::filesystem::path add(testing::ReceiptPlan plan = {}) const {
    plan.exact_program = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-ops-exact";
    return testing::write_receipt(tree_.root(), receipts(), plan);
  }

  testing::SourceTree tree_;
};

TEST_F(ReceiptMain, VerifyPassesOnPresentSources) {
  add();
  const ProcessResult result = verify();
  EXPECT_EQ(result.exit_code, 0) << result.stdout_text << result.stderr_text;
  EXPECT_NE(verify({"--json"}).stdout_text.find("\"verdict\": \"PASS\""), std::string::npos);
}

TEST_F(ReceiptMain, VerifyNamesTheChangedFile) {
  add();
  tree_.write("engine/ops/linear/linear_plan.h", "int plan(int);\n");
  const ProcessResult result = verify();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.stdout_text.find("engine/ops/linear/linear_plan.h changed"), std::string::npos);
}

TEST_F(ReceiptMain, VerifyWithoutReceiptFailsAndSaysHow) {
  const ProcessResult result = verify();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.stdout_text.find("lockstep gate --policy gpu --receipt"), std::string::npos);
}

TEST_F(ReceiptMain, VerifySaysThatThereIsNoSuchFolder) {
  const ProcessResult result = run({"verify", "/nonexistent", "--source", tree_.root().string()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.stdout_text, "");
  EXPECT_NE(result.stderr_text.find("/nonexistent: does not exist: name a folder"),
            std::string::npos)
      << result.stderr_text;
}

TEST_F(ReceiptMain, AWaiverMakesItMistrusted) {
  tree_.write("ci/waivers.json",
              R"({"format": "lockstep-waivers", "format_version": 1, "waivers": [
                  {"op": "linear", "owner": "ada", "reason": "no GPU at hand",
                   "issued": "2026-01-31", "expires": "2026-02-14"}]})");
  EXPECT_EQ(verify({"--today", "2026-02-14"}).exit_code, 4);
  EXPECT_EQ(verify({"--today", "2026-02-15"}).exit_code, 1);
}

TEST_F(ReceiptMain, ShowAndDiff) {
  const std::string a = add();
  const std::string b = add({.started = "2027-01-31T12:00:00Z"});
  const ProcessResult shown = run({"show", a});
  EXPECT_EQ(shown.exit_code, 0) << shown.stderr_text;
  EXPECT_NE(shown.stdout_text.find("gpu PASS"), std::string::npos);
  EXPECT_EQ(run({"diff", a, b}).exit_code, 0) << "the host may differ";
  tree_.write("engine/ops/linear/linear_plan.h", "int plan(int);\n");
  const std::string c = add({.started = "2028-01-31T12:00:00Z"});
  const ProcessResult changed = run({"diff", a, c});
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_NE(changed.stdout_text.find("sources.units.linear.files.engine/ops/linear/linear_plan.h"),
            std::string::npos);
  EXPECT_EQ(run({"show", (tree_.root() / "ci/policy.json").string()}).exit_code, 1);
  EXPECT_EQ(run({}).exit_code, 2);
}

TEST_F(ReceiptMain, ASignatureFitsItsReceiptAlone) {
  tree_.write("key.pem", kKey);
  const std::string text =
      sealed_receipt(testing::receipt_json(tree_.root(), {}), tree_.root() / "key.pem");
  EXPECT_NO_THROW(verify_receipt(text, "r"));
  const Signature signature = sign_text("digest", tree_.root() / "key.pem");
  EXPECT_TRUE(signature_fits("digest", signature));
  EXPECT_FALSE(signature_fits("digesu", signature));
  EXPECT_FALSE(signature_fits("digest", {signature.public_key, std::string(128, '0')}));
  EXPECT_FALSE(signature_fits("digest", {"", signature.value}));
  std::string forged = text;
  const size_t value = forged.find("\"value\": \"") + 10;
  forged[value] = forged[value] == '0' ? '1' : '0';
  EXPECT_THROW(verify_receipt(forged, "r"), Error);
  tree_.write("no-key.pem", "nothing");
  EXPECT_THROW(sign_text("digest", tree_.root() / "no-key.pem"), Error);
}

}  // namespace
}  // namespace lockstep
