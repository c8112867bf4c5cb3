// The policy gpu as its users start it, on fake op programs in an installed tree: honest ones pass,
// and each thing that a fake does wrong turns exactly its checks red.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "validation/gate/run_digest.h"
#include "validation/receipt/receipt_file.h"
#include "validation/receipt/waivers.h"
#include "validation/testing/source_tree.h"
#include "validation/testing/synthetic_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using Verdicts = std::map<std::string, std::string>;
namespace fs = std::filesystem;

const std::string kBin = LOCKSTEP_BIN_DIR;

constexpr const char* kOpList = R"({"format": "lockstep-op-tests", "format_version": 1,
  "programs": [{"program": "ops_linear_cuda_test", "ops": ["linear"]},
               {"program": "ops_attention_cuda_test", "ops": ["attention"]}],
  "sanitizer_sample": ["*Bits*"],
  "mutant_program": "ops_cuda_mutants_test",
  "mutants": [{"name": "linear_tail", "number": 1, "op": "linear"},
              {"name": "attention_mask", "number": 2, "op": "attention"}]})";

// What the fake engine answers: to the question whether it runs at all, then for the oracle.
void write_engine(const fs::path& golden, const fs::path& program) {
  const fs::path model = golden / "tiny-qwen3_5";
  testing::SyntheticRun run = testing::make_synthetic_run(Precision::bf16);
  testing::write_model(model);
  fs::create_directories(golden / "oracle");
  testing::write_oracle(run.oracle, golden / "oracle/public");
  testing::write_engine_outputs(run.results, 1, model / "outputs-bf16-tp1");
  std::vector<EngineResult> probe = {run.result("beta")};
  probe[0].name = "probe";
  testing::write_engine_outputs(first_tokens(std::move(probe), 1), 1, model / "outputs-call-1");
  fs::copy_file(fs::path(LOCKSTEP_SOURCE_DIR) / "validation/testing/fake_engine.sh", program);
}

// A tree as cmake --install makes it: bin with the real gate, tests and the other programs fakes.
class OpGate : public ::testing::Test {
 protected:
  OpGate() {
    for (const char* folder : {"bin", "tests", "linear", "attention"}) {
      fs::create_directories(root() / folder);
    }
    for (const char* program : {"lockstep-gate", "lockstep-receipt"}) {
      fs::copy_file(fs::path(kBin) / program, root() / "bin" / program);
    }
    const fs::path fakes = fs::path(LOCKSTEP_SOURCE_DIR) / "validation/testing";
    for (const char* program :
         {"ops_linear_cuda_test", "ops_attention_cuda_test", "ops_cuda_mutants_test"}) {
      fs::copy_file(fakes / "fake_op_test.sh", root() / "tests" / program);
    }
    fs::copy_file(fakes / "fake_ops_exact.sh", root() / "bin/lockstep-ops-exact");
    fs::copy_file(fakes / "fake_op_bench.sh", root() / "bin/lockstep-bench");
    fs::copy_file(fakes / "fake_sanitizer.sh", root() / "bin/compute-sanitizer");
    write("tests/op_tests.json", kOpList);
    write_engine(golden(), root() / "bin/lockstep-generate");
    tree_.write("engine/ops/attention/cuda/decode.cu", "int decode = 1;\n");
    bake();
  }

  fs::path root() const { return dir_.path(); }
  fs::path golden() const { return root() / "share/lockstep/golden"; }
  void write(const std::string& path, const std::string& text = "") const {
    write_file_atomically(root() / path, text);
  }
  void bake() const {
    const ProcessResult result =
        run_process({kBin + "/lockstep-receipt", "bake", "--source", tree_.root().string(), "--out",
                     (root() / "share/lockstep").string()});
    ASSERT_EQ(result.exit_code, 0) << result.stderr_text;
  }
  ProcessResult gate(const std::vector<std::string>& more = {}) const {
    const auto given = [&](const char* flag) {
      return std::find(more.begin(), more.end(), flag) != more.end();
    };
    std::vector<std::string> argv = {(root() / "bin/lockstep-gate").string(), "--json"};
    argv.insert(argv.end(), {"--out", (root() / "report").string(), "--workers", "1"});
    if (!given("--policy")) argv.insert(argv.end(), {"--policy", "gpu"});
    if (!given("--sanitizer")) {
      argv.insert(argv.end(), {"--sanitizer", (root() / "bin/compute-sanitizer").string()});
    }
    argv.insert(argv.end(), more.begin(), more.end());
    fs::remove(golden() / "tiny-qwen3_5/arguments");  // counts calls
    return run_process(argv, std::chrono::seconds(120), {{"REAL", kBin + "/lockstep-ops-exact"}});
  }
  Json receipt() const { return Json::parse(read_text_file(root() / "report/receipt.json")); }
  // The checks that are not PASS; the exit code is looked at on the way.
  Verdicts red(int exit_code, const std::vector<std::string>& more = {}) const {
    const ProcessResult result = gate(more);
    EXPECT_EQ(result.exit_code, exit_code) << result.stdout_text << result.stderr_text;
    Verdicts verdicts;
    const Json json = receipt();
    for (const Json& step : json["steps"]) {
      if (step["verdict"] != "PASS") verdicts[step["id"]] = step["verdict"];
      EXPECT_TRUE(step["repro"].get<std::string>().starts_with("lockstep ")) << step;
    }
    return verdicts;
  }
  Json step(const std::string& id) const {
    const Json json = receipt();
    for (const Json& step : json["steps"]) {
      if (step["id"] == id) return step;
    }
    return {};
  }
  ProcessResult verify(const fs::path& receipts) const {
    return run_process({kBin + "/lockstep-receipt", "verify", receipts.string(), "--source",
                        tree_.root().string()});
  }

  testing::SourceTree tree_;
  TempDir dir_;
};

const Verdicts kNoProfile = {{"probe-profile", "SKIPPED"}};

TEST_F(OpGate, HonestOpsPassAndTheReceiptCoversThem) {
  const fs::path folder = root() / "receipts";
  EXPECT_EQ(red(0, {"--receipt", folder.string()}), kNoProfile);
  const Json json = receipt();
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["proven"], (Json{{"checks", 11}, {"able_to_fail", 10}})) << "none for a skip";
  EXPECT_EQ(json["sources"]["units"].size(), 2u);
  const Json& ops = json["ops"];
  EXPECT_EQ(ops["card"]["uuid"], "GPU-0");
  EXPECT_EQ(ops["tests"].size(), 2u);
  EXPECT_EQ(ops["tests"][0]["passed"], 1);
  EXPECT_EQ(ops["mutants"][1], (Json{{"name", "attention_mask"},
                                     {"op", "attention"},
                                     {"caught", true},
                                     {"by", "ops_cuda_mutants_test.Bounds: bound exceeded"}}));
  EXPECT_EQ(ops["sanitizer"]["runs"].size(), 2u * 2 * 4);
  EXPECT_NEAR(ops["bench"]["rows"][0]["share"], 0.5, 1e-9);
  EXPECT_EQ(ops["bench"]["rows"][0]["samples"].size(), 3u);
  const std::string digest = json["sources"]["units"]["linear"]["digest"];
  for (const Json& output : ops["exact"]) {
    if (output["op"] == "linear") {
      EXPECT_EQ(output["seed"], digest.substr(0, 16));
    }
    EXPECT_GT(output["count"], 1000);
  }
  const std::string html = read_text_file(root() / "report/report.html");
  EXPECT_NE(html.find("CUDA ops on cuda:0 Fake V100"), std::string::npos);
  EXPECT_NE(html.find("20.00<td class='number'>50 %"), std::string::npos);
  const ProcessResult verified = verify(folder);
  EXPECT_EQ(verified.exit_code, 0) << verified.stdout_text << verified.stderr_text;
}

TEST_F(OpGate, AFailingCaseTurnsTheOpTestsRed) {
  write("linear/x");
  fs::rename(root() / "tests/ops_linear_cuda_test", root() / "linear/ops_linear_cuda_test");
  write("linear/fails");
  std::string list = kOpList;
  const std::string name = "\"ops_linear_cuda_test\"";
  list.replace(list.find(name), name.size(), "\"../linear/ops_linear_cuda_test\"");
  write("tests/op_tests.json", list);
  const fs::path folder = root() / "receipts";
  const Verdicts verdicts =
      red(1, {"--receipt", folder.string(), "--sanitizer", (root() / "none").string()});
  EXPECT_EQ(verdicts.at("op-tests"), "FAIL");
  EXPECT_EQ(step("op-tests")["ops"], Json::array({"linear"}));
  EXPECT_NE(step("op-tests")["detail"].get<std::string>().find("Bounds: bound exceeded"),
            std::string::npos);
  // The other op is covered all the same.
  const ProcessResult verified = verify(folder);
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_NE(verified.stdout_text.find("FAIL linear: in the receipt op-tests is FAIL"),
            std::string::npos)
      << verified.stdout_text;
  EXPECT_NE(verified.stdout_text.find("PASS attention"), std::string::npos);
}

TEST_F(OpGate, ACrashIsNoPass) {
  write("tests/crashes");
  EXPECT_EQ(red(1).at("op-tests"), "FAIL");
  EXPECT_NE(step("op-tests")["detail"].get<std::string>().find("exit code 139"), std::string::npos);
}

TEST_F(OpGate, SkippedCasesProveNothing) {
  write("tests/skips");
  const Verdicts verdicts = red(1);
  EXPECT_EQ(verdicts.at("op-tests"), "SKIPPED");
  EXPECT_EQ(verdicts.at("op-mutants"), "FAIL") << "without a mutant nothing ran";
}

TEST_F(OpGate, ASurvivingMutantIsNamed) {
  write("tests/survivors", "2\n");
  Verdicts expected = kNoProfile;
  expected["op-mutants"] = "FAIL";
  EXPECT_EQ(red(1), expected);
  EXPECT_EQ(step("op-mutants")["detail"], "attention_mask was not found");
  EXPECT_EQ(step("op-mutants")["ops"], Json::array({"attention"}));
}

TEST_F(OpGate, ARaceIsFoundByRacecheck) {
  write("tests/survivors", "2\n");
  write("bin/finds-races");
  const Verdicts verdicts = red(1);
  EXPECT_FALSE(verdicts.contains("op-mutants"));
  EXPECT_EQ(verdicts.at("op-sanitizer"), "FAIL") << "a race in the product is none of a mutant";
  EXPECT_NE(step("op-sanitizer")["detail"].get<std::string>().find("Race reported"),
            std::string::npos);
}

TEST_F(OpGate, BlindTestsAreMistrusted) {
  write("tests/blind");
  const Verdicts verdicts = red(1);
  EXPECT_EQ(verdicts.at("op-mutants"), "FAIL");
  EXPECT_EQ(verdicts.at("op-planted-fault"), "MISTRUSTED");
}

TEST_F(OpGate, ARunOfNothingThatSaysPassIsMistrusted) {
  write("tests/never-empty");
  Verdicts expected = kNoProfile;
  expected["op-empty-run"] = "MISTRUSTED";
  EXPECT_EQ(red(4), expected);
}

TEST_F(OpGate, WithoutSanitizerItSaysSo) {
  Verdicts expected = kNoProfile;
  expected["op-sanitizer"] = "SKIPPED";
  EXPECT_EQ(red(0, {"--sanitizer", (root() / "none").string()}), expected);
  write("bin/broken");
  EXPECT_EQ(red(3).at("op-sanitizer"), "ERROR");
}

TEST_F(OpGate, AToolThatSawNoLaunchProvesNothing) {
  write("bin/idle");
  EXPECT_EQ(red(4).at("op-sanitizer"), "MISTRUSTED");
  EXPECT_NE(step("op-sanitizer")["detail"].get<std::string>().find("no case came to its end"),
            std::string::npos);
}

TEST_F(OpGate, AnotherAnswerThanTheHostsIsFound) {
  write("bin/wrong-bit");
  Verdicts expected = kNoProfile;
  expected["op-exact"] = "FAIL";
  EXPECT_EQ(red(1), expected);
  EXPECT_NE(step("op-exact")["detail"].get<std::string>().find("the host computes"),
            std::string::npos);
}

// CI computes what a receipt says a card answered; an edit that fits its digest is found too.
TEST_F(OpGate, AForgedAnswerInAReceiptIsFound) {
  EXPECT_EQ(gate().exit_code, 0);
  Json forged = receipt();
  std::string& digest = forged["ops"]["exact"][0]["digest"].get_ref<std::string&>();
  digest[0] = digest[0] == '0' ? '1' : '0';
  add_receipt(root() / "forged", sealed_receipt(forged.dump()));
  const ProcessResult verified = verify(root() / "forged");
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_NE(verified.stdout_text.find("the card gave"), std::string::npos) << verified.stdout_text;
  // Nor may the answers be left out.
  forged["ops"].erase("exact");
  add_receipt(root() / "left-out", sealed_receipt(forged.dump()));
  EXPECT_NE(verify(root() / "left-out").stdout_text.find("no output of its integer-exact cases"),
            std::string::npos);
}

TEST_F(OpGate, TimesWithoutSamplesAreMistrusted) {
  write("bin/no-samples");
  Verdicts expected = kNoProfile;
  expected["op-bench"] = "MISTRUSTED";
  EXPECT_EQ(red(4), expected);
}

TEST_F(OpGate, AnOpWithoutATimeIsNamed) {
  write("bin/forgets");
  Verdicts expected = kNoProfile;
  expected["op-bench"] = "FAIL";
  EXPECT_EQ(red(1), expected);
  EXPECT_EQ(step("op-bench")["detail"], "op attention: no row times it");
  EXPECT_EQ(step("op-bench")["ops"], Json::array({"attention"}));
}

// A seed for an op that has no exact case would be a question that nobody answers.
TEST(OpsExact, RefusesOpsThatItDoesNotKnow) {
  const std::string program = kBin + "/lockstep-ops-exact";
  const std::string digits = "=0123456789abcdef";
  const ProcessResult refused =
      run_process({program, "--seeds", "gelu" + digits + ",nosuch" + digits});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.stderr_text.find("op 'nosuch' has no exact case"), std::string::npos)
      << refused.stderr_text;
  EXPECT_EQ(run_process({program}).exit_code, 2) << "asks nothing";
  const std::string list = run_process({program, "--list"}).stdout_text;
  EXPECT_NE(list.find("gelu\n"), std::string::npos) << list;
  EXPECT_EQ(run_process({program, "--seeds", "gelu" + digits}).exit_code, 0);
}

TEST_F(OpGate, WithoutACardNothingIsJudged) {
  write("bin/no-card", "lockstep-ops-exact: no CUDA device here\n");
  write("share/lockstep/golden/tiny-qwen3_5/no-backend", "lockstep-rank: no CUDA device here\n");
  const ProcessResult result = gate();
  EXPECT_EQ(result.exit_code, 77) << result.stdout_text;
  const Json json = Json::parse(result.stdout_text);
  for (const Json& check : json["checks"]) EXPECT_EQ(check["verdict"], "SKIPPED") << check;
  EXPECT_NE(result.stdout_text.find("no CUDA device here"), std::string::npos);
}

TEST_F(OpGate, WithoutOpProgramsNothingIsJudged) {
  fs::remove(root() / "tests/op_tests.json");
  const ProcessResult result = gate();
  EXPECT_EQ(result.exit_code, 77) << result.stdout_text;
  EXPECT_NE(result.stdout_text.find("no list of op tests"), std::string::npos);
  write("tests/op_tests.json", "{}");
  EXPECT_EQ(red(1).at("card"), "FAIL");
}

TEST_F(OpGate, TheEngineIsComparedWithTheOracle) {
  testing::SyntheticRun run = testing::make_synthetic_run(Precision::bf16);
  run.perturb("alpha", "layers.1.mixer", 0.5);
  testing::write_engine_outputs(run.results, 1, golden() / "tiny-qwen3_5/outputs-bf16-tp1");
  Verdicts expected = kNoProfile;
  expected["oracle-tp1-bf16"] = "FAIL";
  EXPECT_EQ(red(1), expected);
  EXPECT_NE(step("oracle-tp1-bf16")["repro"].get<std::string>().find("--backend cuda"),
            std::string::npos);
}

TEST_F(OpGate, WithoutTheModelTheEngineIsNotJudged) {
  fs::remove_all(golden());
  Verdicts expected = kNoProfile;
  expected["cuda-device"] = expected["oracle-tp1-bf16"] = "SKIPPED";
  EXPECT_EQ(red(77), expected);
  EXPECT_NE(step("cuda-device")["detail"].get<std::string>().find("give --model"),
            std::string::npos);
}

TEST_F(OpGate, AnOpWithoutTestProgramIsFound) {
  tree_.write("engine/ops/rope/cuda/rope.cu", "int rope = 1;\n");
  bake();
  Verdicts expected = kNoProfile;
  expected["op-tests"] = expected["op-bench"] = "FAIL";
  EXPECT_EQ(red(1), expected);
  EXPECT_EQ(step("op-tests")["detail"], "op rope: no test program is registered");
}

// Programs that were built before the sources changed prove nothing about them.
TEST_F(OpGate, StaleProgramsAreAnError) {
  tree_.write("engine/ops/linear/linear_plan.h", "int plan(int);\n");
  const Verdicts verdicts = red(3, {"--source", tree_.root().string()});
  EXPECT_EQ(verdicts.at("card"), "ERROR");
  EXPECT_NE(step("card")["detail"].get<std::string>().find("linear_plan.h changed"),
            std::string::npos);
  bake();
  EXPECT_EQ(red(0, {"--source", tree_.root().string()}), kNoProfile);
}

TEST_F(OpGate, ItSaysAtStartWhichOpIsNotGated) {
  const std::string text = gate().stderr_text;
  EXPECT_NE(text.find("op linear is not gated: no receipt covers it"), std::string::npos) << text;
  write("share/lockstep/ungated-ops.txt", "");
  EXPECT_EQ(gate().stderr_text, "");
}

// The release policy wants two cards, receipts and a build to race, says which of them the machine
// lacks, and takes no waiver for a receipt.
TEST_F(OpGate, ReleaseNamesWhatIsMissingAndTakesNoWaiver) {
  const std::vector<std::string> arguments = {"--policy", "release", "--only",
                                              "card,two-gpus,receipts,bench-gate"};
  EXPECT_EQ(
      red(77, arguments),
      (Verdicts{{"two-gpus", "SKIPPED"}, {"receipts", "SKIPPED"}, {"bench-gate", "SKIPPED"}}));
  EXPECT_NE(step("two-gpus")["detail"].get<std::string>().find("two are needed"),
            std::string::npos);
  const std::string today = utc_today();
  tree_.write("ci/waivers.json",
              fmt::format(R"({{"format": "lockstep-waivers", "format_version": 1, "waivers": [
                  {{"op": "linear", "owner": "ada", "reason": "no GPU", "issued": "{0}",
                    "expires": "{0}"}},
                  {{"op": "attention", "owner": "ada", "reason": "no GPU", "issued": "{0}",
                    "expires": "{0}"}}]}})",
                          today));
  std::vector<std::string> receipts = {"--only", "receipts", "--source", tree_.root().string()};
  const fs::path policy = root() / "waiving.json";
  write("waiving.json",
        R"({"format": "lockstep-policy", "format_version": 1, "name": "waiving", "backend": "cuda",
                            "required": ["receipts"]})");
  receipts.insert(receipts.end(), {"--policy", policy.string()});
  EXPECT_EQ(red(4, receipts), (Verdicts{{"receipts", "MISTRUSTED"}}));
  receipts.back() = "release";
  EXPECT_EQ(red(1, receipts), (Verdicts{{"receipts", "FAIL"}}));
}

}  // namespace
}  // namespace lockstep
