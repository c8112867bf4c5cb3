// The gate as its users start it, on a fake engine: an honest one passes, and each promise that the
// fake breaks turns exactly its steps red.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "validation/gate/receipt.h"
#include "validation/gate/run_digest.h"
#include "validation/receipt/waivers.h"
#include "validation/testing/synthetic_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using testing::make_synthetic_run;
using testing::SyntheticRun;
using Verdicts = std::map<std::string, std::string>;

// The gate asks for 16 tokens where it looks at the prefill.
void cut_to_16(SyntheticRun& run) {
  run.results = first_tokens(std::move(run.results), 16);
}

class GateMain : public ::testing::Test {
 protected:
  GateMain() {
    testing::write_model(model());
    testing::write_oracle(make_synthetic_run(Precision::fp32).oracle, dir_.path() / "oracle");
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      for (const int tp : {1, 2}) write(precision, tp, "", [](SyntheticRun&) {});
    }
    write(Precision::bf16, 2, "-grid-64", cut_to_16);
    SyntheticRun faulty = make_synthetic_run(Precision::fp32);
    faulty.perturb("alpha", "decode/layers.1.out", 0.2);
    // The gate runs its fault on the shortest prompts, shortest first.
    std::swap(faulty.results[0], faulty.results[1]);
    testing::write_engine_outputs(faulty.results, 2, model() / "outputs-faulty");
    // The quick policy without the integer-exact transformer: the fake engine answers its
    // recordings alone.
    write_file_atomically(dir_.path() / "quick.json",
                          std::string(R"({"format": "lockstep-policy", "format_version": 1,
        "name": "quick", "required": ["shard", "verify", "oracle-tp1-fp32", "oracle-tp2-fp32",
        "oracle-tp1-bf16", "oracle-tp2-bf16", "i1", "i2", "i3-fp32", "i3-bf16", "prefill-grid",
        "planted-fault", "empty-run"], "not_checked": ["CUDA backend: on the CPU"]})"));
  }

  std::filesystem::path model() const { return dir_.path() / "model"; }

  void write(Precision precision, int tp, const std::string& suffix,
             const std::function<void(SyntheticRun&)>& plant) const {
    SyntheticRun run = make_synthetic_run(precision);
    plant(run);
    const char* name = precision == Precision::fp32 ? "fp32" : "bf16";
    testing::write_engine_outputs(run.results, tp,
                                  model() / fmt::format("outputs-{}-tp{}{}", name, tp, suffix));
  }

  ProcessResult gate(std::vector<std::string> more) const {
    const std::string testing = std::string(LOCKSTEP_SOURCE_DIR) + "/validation/testing/";
    std::vector<std::string> argv = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-gate",
                                     "--model",
                                     model().string(),
                                     "--oracle",
                                     (dir_.path() / "oracle").string(),
                                     "--engine",
                                     testing + "fake_engine.sh",
                                     "--weights",
                                     testing + "fake_weights.sh",
                                     "--waivers",
                                     (dir_.path() / "waivers.json").string(),
                                     "--out",
                                     out().string()};
    if (std::find(more.begin(), more.end(), "--policy") == more.end()) {
      more.insert(more.end(), {"--policy", (dir_.path() / "quick.json").string()});
    }
    argv.insert(argv.end(), more.begin(), more.end());
    return run_process(argv, std::chrono::seconds(120));
  }
  std::filesystem::path out() const { return dir_.path() / "report"; }

  // The steps that are not PASS, with their verdicts; checks the exit code on the way.
  Verdicts red_steps(int exit_code, const std::vector<std::string>& more = {"--json"}) const {
    const ProcessResult result = gate(more);
    EXPECT_EQ(result.exit_code, exit_code) << result.stdout_text << result.stderr_text;
    Verdicts red;
    const Json receipt = Json::parse(read_text_file(out() / "receipt.json"));
    for (const Json& step : receipt["steps"]) {
      if (step["verdict"] != "PASS") red[step["id"]] = step["verdict"];
    }
    return red;
  }

  TempDir dir_;
};

TEST_F(GateMain, AFolderThatCannotBeMadeIsRefusedBeforeTheChecks) {
  write_file_atomically(dir_.path() / "file", std::string("x"));
  const ProcessResult receipts = gate({"--receipt", (dir_.path() / "file" / "new").string()});
  EXPECT_EQ(receipts.exit_code, 1);
  EXPECT_NE(receipts.stderr_text.find("--receipt "), std::string::npos) << receipts.stderr_text;
  std::filesystem::remove(out());
  write_file_atomically(out(), std::string("x"));
  const ProcessResult report = gate({});
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_NE(report.stderr_text.find("--out "), std::string::npos) << report.stderr_text;
  EXPECT_FALSE(std::filesystem::exists(model() / "arguments")) << "an engine was started";
}

// The smallest change there is: one bit of one value.
void flip_bit(SyntheticRun& run) {
  float& value = run.result("beta").dump.taps.at("layers.1.mlp").values[3];
  value = std::nextafter(value, 10.0f);
}

TEST_F(GateMain, HonestEnginePasses) {
  EXPECT_EQ(red_steps(0), Verdicts{});
  const std::string receipt = read_text_file(out() / "receipt.json");
  verify_receipt(receipt, "receipt");
  const Json json = Json::parse(receipt);
  EXPECT_EQ(json["verdict"], "PASS");
  EXPECT_EQ(json["policy"], "quick");
  EXPECT_EQ(json["complete"], true);
  EXPECT_FALSE(json["sources"]["units"].empty());
  EXPECT_EQ(json["steps"].size(), 13u);
  EXPECT_EQ(json["proven"], (Json{{"checks", 13}, {"able_to_fail", 13}}));
  EXPECT_EQ(json["comparisons"].size(), 4u);
  EXPECT_EQ(json["runs"]["tp1-fp32"], json["runs"]["tp2-fp32"]);
  EXPECT_NE(json["runs"]["tp1-fp32"], json["runs"]["tp2-fp32-faulty"]);
  EXPECT_FALSE(json["not_checked"].empty());
  for (const Json& step : json["steps"]) {
    EXPECT_TRUE(step["repro"].get<std::string>().starts_with("lockstep ")) << step;
  }
}

TEST_F(GateMain, TheReportStandsAlone) {
  gate({});
  const std::string html = read_text_file(out() / "report.html");
  for (const char* outside : {"http:", "https:", "<script", "<link", "src=", "@import", "url("}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(html.find("<svg"), std::string::npos);
  EXPECT_NE(html.find("class='limit'"), std::string::npos);
  EXPECT_NE(html.find("decode/layers.1.out"), std::string::npos);
  EXPECT_NE(html.find("Not checked"), std::string::npos);
}

TEST_F(GateMain, OneBitBetweenTpTurnsI3Red) {
  write(Precision::fp32, 1, "", flip_bit);
  EXPECT_EQ(red_steps(1), (Verdicts{{"i3-fp32", "FAIL"}}));
}

TEST_F(GateMain, OneBitBetweenGridsTurnsThatStepRed) {
  write(Precision::bf16, 2, "-grid-64", [](SyntheticRun& run) {
    cut_to_16(run);
    flip_bit(run);
  });
  EXPECT_EQ(red_steps(1), (Verdicts{{"prefill-grid", "FAIL"}}));
}

TEST_F(GateMain, OneBitBetweenTwoRunsTurnsI1Red) {
  SyntheticRun run = make_synthetic_run(Precision::bf16);
  cut_to_16(run);
  flip_bit(run);
  // Calls: TP=1 and TP=2 in fp32, the same in bf16, then the run that I1 makes twice.
  testing::write_engine_outputs(run.results, 2, model() / "outputs-call-6");
  EXPECT_EQ(red_steps(1), (Verdicts{{"i1", "FAIL"}}));
}

TEST_F(GateMain, RanksThatDifferTurnI2Red) {
  write(Precision::fp32, 2, "",
        [](SyntheticRun& run) { run.result("alpha").dump.rank_differences = {"layers.0.out"}; });
  EXPECT_EQ(red_steps(1), (Verdicts{{"i2", "FAIL"}, {"oracle-tp2-fp32", "FAIL"}}));
}

TEST_F(GateMain, WrongNumbersTurnTheOracleStepsRed) {
  const auto wrong = [](SyntheticRun& run) { run.perturb("alpha", "layers.0.mixer", 0.2); };
  for (const int tp : {1, 2}) write(Precision::bf16, tp, "", wrong);
  write(Precision::bf16, 2, "-grid-64", [&](SyntheticRun& run) {
    wrong(run);
    cut_to_16(run);
  });
  EXPECT_EQ(red_steps(1), (Verdicts{{"oracle-tp1-bf16", "FAIL"}, {"oracle-tp2-bf16", "FAIL"}}));
}

TEST_F(GateMain, BadShardsTurnVerifyRed) {
  write_file_atomically(model() / "bad-shards", std::string("lockstep-weights: q_proj differs\n"));
  EXPECT_EQ(red_steps(1), (Verdicts{{"verify", "FAIL"}}));
}

// The canary: a blind judge makes everything else worthless, and the gate says so.
TEST_F(GateMain, AFaultThatNobodySeesIsMistrusted) {
  SyntheticRun blind = make_synthetic_run(Precision::fp32);
  std::swap(blind.results[0], blind.results[1]);
  testing::write_engine_outputs(blind.results, 2, model() / "outputs-faulty");
  EXPECT_EQ(red_steps(4), (Verdicts{{"planted-fault", "MISTRUSTED"}}));
}

TEST_F(GateMain, AFailingEngineIsAnErrorEverywhereItIsNeeded) {
  write_file_atomically(model() / "stderr", std::string("lockstep-rank: no memory\n"));
  write_file_atomically(model() / "exit", std::string("1"));
  const Verdicts red = red_steps(3);
  EXPECT_EQ(red.size(), 10u);
  for (const auto& [step, verdict] : red) EXPECT_EQ(verdict, "ERROR") << step;
  EXPECT_EQ(red.count("shard") + red.count("verify") + red.count("empty-run"), 0u);
}

TEST_F(GateMain, AnUnreadableOracleIsAnError) {
  std::filesystem::remove(dir_.path() / "oracle.json");
  EXPECT_EQ(red_steps(3)["empty-run"], "ERROR");
}

TEST_F(GateMain, AnOracleOfImagesAloneIsMistrusted) {
  Oracle oracle = make_synthetic_run(Precision::fp32).oracle;
  std::erase_if(oracle.prompts, [](const OraclePrompt& prompt) { return !prompt.has_image; });
  testing::write_oracle(oracle, dir_.path() / "oracle");
  const Verdicts red = red_steps(4);
  EXPECT_EQ(red.at("oracle-tp1-fp32"), "MISTRUSTED");
  EXPECT_EQ(red.at("i1"), "MISTRUSTED");
  EXPECT_EQ(red.at("i2"), "MISTRUSTED");
  EXPECT_EQ(red.at("planted-fault"), "MISTRUSTED") << "nothing was caught";
}

TEST_F(GateMain, OnlyRunsWhatIsAskedFor) {
  EXPECT_EQ(red_steps(0, {"--only", "i3-fp32,empty-run"}), Verdicts{});
  const Json json = Json::parse(read_text_file(out() / "receipt.json"));
  EXPECT_EQ(json["steps"].size(), 2u);
  EXPECT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(gate({"--only", "i9"}).exit_code, 2);
}

TEST_F(GateMain, TheListHoldsWhatIsAskedFor) {
  const ProcessResult refused = gate({"--list", "--only", "i9"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.stderr_text.find("no check i9"), std::string::npos) << refused.stderr_text;
  const std::string one = gate({"--list", "--only", "i1"}).stdout_text;
  EXPECT_TRUE(one.starts_with("i1 ")) << one;
  EXPECT_EQ(std::count(one.begin(), one.end(), '\n'), 1) << one;
  const std::string all = gate({"--list"}).stdout_text;
  EXPECT_GT(std::count(all.begin(), all.end(), '\n'), 20) << all;
}

// Bits are pinned for all prompts together.
TEST_F(GateMain, PinnedBitsOfSomePromptsAreNotJudged) {
  const ProcessResult some = gate({"--only", "pinned-bits", "--prompts", "alpha"});
  EXPECT_EQ(some.exit_code, 77) << some.stdout_text;
  EXPECT_NE(some.stdout_text.find("leave --prompts out"), std::string::npos) << some.stdout_text;
  EXPECT_EQ(gate({"--print-bits", "--prompts", "alpha"}).exit_code, 2);
}

TEST_F(GateMain, ADoubtfulMachineIsMistrusted) {
  const std::string profile =
      std::string(LOCKSTEP_SOURCE_DIR) + "/hardware-probe/tests/golden/profile.json";
  EXPECT_EQ(red_steps(4, {"--machine", profile, "--only", "probe-profile"}),
            (Verdicts{{"probe-profile", "MISTRUSTED"}}));
  const Json receipt = Json::parse(read_text_file(out() / "receipt.json"));
  EXPECT_EQ(receipt["machine"]["marks"], Json::array({"simulated"}));
  EXPECT_EQ(receipt["machine"]["digest"], receipt["machine"]["profile"]["digest"]);
  write_file_atomically(dir_.path() / "no-profile.json", std::string("{}"));
  EXPECT_EQ(gate({"--machine", (dir_.path() / "no-profile.json").string()}).exit_code, 2);
}

TEST_F(GateMain, TheReceiptSaysWhenThereIsNoProfile) {
  EXPECT_EQ(red_steps(0, {"--only", "empty-run"}), Verdicts{});
  const Json machine = Json::parse(read_text_file(out() / "receipt.json"))["machine"];
  EXPECT_TRUE(machine["profile"].is_null());
  EXPECT_NE(machine["summary"].get<std::string>().find("no probe profile"), std::string::npos);
}

TEST_F(GateMain, TheFaultReachesEveryRun) {
  EXPECT_EQ(red_steps(0, {"--fault", "mlp.rows-permuted", "--only", "oracle-tp2-fp32"}),
            Verdicts{});
  EXPECT_NE(read_text_file(model() / "arguments").find("--fault mlp.rows-permuted"),
            std::string::npos);
}

TEST_F(GateMain, PrintsItsInterfaceAsJson) {
  const ProcessResult result = gate({"--json"});
  const Json json = Json::parse(result.stdout_text);
  std::vector<std::string> keys;
  for (const auto& [key, unused] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"checks", "mutation", "proven", "seconds", "verdict"}));
  EXPECT_EQ(json["verdict"], "PASS");
  for (const Json& check : json["checks"]) {
    EXPECT_EQ(check.size(), 4u);
    for (const char* key : {"id", "verdict", "figure", "repro"}) EXPECT_TRUE(check.contains(key));
  }
  EXPECT_EQ(json["mutation"], (Json{{"total", 0},
                                    {"killed", 0},
                                    {"equivalent", 0},
                                    {"survivors", Json::array()},
                                    {"score", 0.0}}));
  EXPECT_EQ(json["proven"]["able_to_fail"], json["proven"]["checks"]);
}

TEST_F(GateMain, AReceiptIsAddedToTheFolder) {
  const std::filesystem::path folder = dir_.path() / "receipts";
  EXPECT_EQ(gate({"--json", "--receipt", folder.string()}).exit_code, 0);
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(read_receipt(entry.path()).policy, "quick");
    ++n;
  }
  EXPECT_EQ(n, 1u);
}

TEST_F(GateMain, AWaivedCheckIsMistrusted) {
  write(Precision::fp32, 1, "", flip_bit);
  const std::string today = utc_today();
  write_file_atomically(
      dir_.path() / "waivers.json",
      fmt::format(R"({{"format": "lockstep-waivers", "format_version": 1, "waivers": [
                       {{"check": "i3-fp32", "owner": "ada", "reason": "known",
                         "issued": "{0}", "expires": "{0}"}}]}})",
                  today));
  EXPECT_EQ(red_steps(4), (Verdicts{{"i3-fp32", "MISTRUSTED"}}));
  EXPECT_NE(gate({}).stdout_text.find("waiver: check i3-fp32 by ada"), std::string::npos);
}

TEST_F(GateMain, APolicyFileChoosesTheChecks) {
  const std::string file = (dir_.path() / "mine.json").string();
  write_file_atomically(file, std::string(R"({"format": "lockstep-policy", "format_version": 1,
      "name": "mine", "required": ["i1"], "optional": ["two-gpus"]})"));
  const ProcessResult result = gate({"--policy", file, "--json"});
  const Json json = Json::parse(result.stdout_text);
  ASSERT_EQ(json["checks"].size(), 2u) << result.stderr_text;
  EXPECT_EQ(json["checks"][1]["id"], "i1");
  write_file_atomically(file, std::string(R"({"format": "lockstep-policy", "format_version": 1,
      "name": "mine", "required": ["i9"]})"));
  EXPECT_EQ(gate({"--policy", file}).exit_code, 2);
}

// Where the engine has no such backend, nothing is judged, and that is no pass.
TEST_F(GateMain, AnEngineWithoutCudaIsSkipped) {
  write_file_atomically(model() / "no-backend", std::string("lockstep-rank: no CUDA backend\n"));
  const ProcessResult result = gate({"--policy", "release", "--json", "--only", "cuda-device,i1"});
  EXPECT_EQ(result.exit_code, 77) << result.stdout_text;
  const Json report = Json::parse(result.stdout_text);
  for (const Json& check : report["checks"]) {
    EXPECT_EQ(check["verdict"], "SKIPPED");
    EXPECT_NE(check["figure"].get<std::string>().find("no CUDA backend"), std::string::npos);
  }
}

// What is printed of a red check can be pasted: the program is named by its path, the policy by
// its file.
TEST_F(GateMain, ARedCheckNamesACommandThatCanBePasted) {
  write(Precision::fp32, 1, "", flip_bit);
  const std::string text = gate({}).stdout_text;
  const size_t again = text.find("again: ");
  ASSERT_NE(again, std::string::npos) << text;
  const std::string line = text.substr(again + 7, text.find('\n', again) - again - 7);
  EXPECT_TRUE(line.starts_with(std::string(LOCKSTEP_BIN_DIR) + "/lockstep gate")) << line;
  EXPECT_NE(line.find("--policy " + (dir_.path() / "quick.json").string()), std::string::npos);
  EXPECT_EQ(run_process({"/bin/sh", "-c", line + " --list"}).exit_code, 0);
  EXPECT_NE(read_text_file(out() / "report.html").find(line), std::string::npos);
}

// Beside PASS no other verdict may stand that the run did not ask for.
TEST_F(GateMain, ReceiptsThatNobodyAskedForHaveNoVerdict) {
  const std::filesystem::path folder = dir_.path() / "receipts";
  std::filesystem::create_directory(folder);
  const std::string text = gate({"--receipt", folder.string()}).stdout_text;
  EXPECT_NE(
      text.find("receipts of policy gpu (not judged: this run asked for none): there is none"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("FAIL"), std::string::npos) << text;
  EXPECT_NE(text.find("receipt of this run: " + (out() / "receipt.json").string()),
            std::string::npos);
}

TEST_F(GateMain, TextIsPlainInAPipe) {
  const std::string text = gate({}).stdout_text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_NE(text.find("verdict: PASS in "), std::string::npos);
  EXPECT_NE(text.find("not checked: image prompts"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
