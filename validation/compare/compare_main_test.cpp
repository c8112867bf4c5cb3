// The program as its users start it, against a fake engine that replays recorded outputs: every
// verdict with its exit code and its words.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "validation/testing/synthetic_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using testing::make_synthetic_run;
using testing::SyntheticRun;

class CompareMain : public ::testing::Test {
 protected:
  CompareMain() { testing::write_model(model()); }

  std::filesystem::path model() const { return dir_.path() / "model"; }

  void write(const SyntheticRun& run, int tp) {
    testing::write_oracle(run.oracle, dir_.path() / "oracle");
    testing::write_engine_outputs(run.results, tp, model() / "outputs");
  }

  ProcessResult compare(std::vector<std::string> more) const {
    std::vector<std::string> argv = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-compare",
                                     "--model",
                                     model().string(),
                                     "--oracle",
                                     (dir_.path() / "oracle").string(),
                                     "--engine",
                                     engine_};
    argv.insert(argv.end(), more.begin(), more.end());
    return run_process(argv, std::chrono::seconds(60));
  }

  void put(const char* file, const std::string& text) const {
    write_file_atomically(model() / file, text);
  }

  TempDir dir_;
  std::string engine_ = std::string(LOCKSTEP_SOURCE_DIR) + "/validation/testing/fake_engine.sh";
};

TEST_F(CompareMain, HonestRunsPassInEveryMode) {
  for (const int tp : {1, 2}) {
    for (const std::string precision : {"fp32", "bf16"}) {
      write(make_synthetic_run(precision == "fp32" ? Precision::fp32 : Precision::bf16), tp);
      const ProcessResult result =
          compare({"--tp", std::to_string(tp), "--precision", precision, "--json"});
      ASSERT_EQ(result.exit_code, 0) << result.stdout_text << result.stderr_text;
      const Json json = Json::parse(result.stdout_text);
      EXPECT_EQ(json["verdict"], "PASS");
      ASSERT_EQ(json["prompts"].size(), 3u);
      const Json& alpha = json["prompts"][0];
      EXPECT_EQ(alpha["name"], "alpha");
      EXPECT_EQ(alpha["skipped"], false);
      EXPECT_LT(alpha["worst_rel_l2"].get<double>(), 1e-6);
      EXPECT_GT(alpha["worst_cos"].get<double>(), 0.999999);
      EXPECT_EQ(alpha["first_bad"], "");
      EXPECT_EQ(alpha["greedy_match"], 96);
      EXPECT_EQ(alpha["greedy_len"], 96);
      EXPECT_LT(alpha["worst_margin_err"].get<double>(), 1e-9);
      EXPECT_LT(alpha["worst_logprob_err"].get<double>(), 1e-9);
      EXPECT_EQ(alpha["max_margin_at_mismatch"], 0.0);
      EXPECT_EQ(json["prompts"][2]["skipped"], true);
    }
  }
}

TEST_F(CompareMain, FlagsReachTheEngine) {
  write(make_synthetic_run(Precision::bf16), 2);
  EXPECT_EQ(compare({"--tp", "2", "--precision", "bf16", "--backend", "cpu", "--prefill-grid", "64",
                     "--fault", "drop_row@3", "--mtp", "2", "--kv", "int8", "--devices", "0",
                     "--share-device", "--transport", "host"})
                .exit_code,
            0);
  const std::string arguments = read_text_file(model() / "arguments");
  for (const char* part :
       {"--tp 2", "--precision bf16", "--backend cpu", "--prefill-grid 64", "--fault drop_row@3",
        "--mtp 2", "--kv int8", "--devices 0 --share-device", "--transport host"}) {
    EXPECT_NE(arguments.find(part), std::string::npos) << part << " in " << arguments;
  }
  const std::string jobs = read_text_file(model() / "jobs");
  const Json job = Json::parse(jobs.substr(0, jobs.find('\n')));
  EXPECT_EQ(job["name"], "alpha");
  EXPECT_EQ(job["force_ids"].size(), 96u);
  EXPECT_EQ(job["logits"], 16);
  EXPECT_EQ(job["taps"]["last"], 8);
}

TEST_F(CompareMain, FaultsFail) {
  SyntheticRun run = make_synthetic_run(Precision::fp32);
  run.perturb("beta", "layers.1.mixer", 0.01);
  write(run, 2);
  const ProcessResult result = compare({"--tp", "2", "--precision", "fp32", "--json"});
  EXPECT_EQ(result.exit_code, 1);
  const Json json = Json::parse(result.stdout_text);
  EXPECT_EQ(json["verdict"], "FAIL");
  EXPECT_EQ(json["prompts"][1]["first_bad"], "layers.1.mixer");
  EXPECT_NEAR(json["prompts"][1]["worst_rel_l2"].get<double>(), 0.01, 1e-4);
}

TEST_F(CompareMain, RanksThatDifferFail) {
  SyntheticRun run = make_synthetic_run(Precision::fp32);
  run.result("alpha").dump.rank_differences = {"layers.0.out"};
  write(run, 2);
  const ProcessResult result = compare({"--tp", "2"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.stdout_text.find("ranks differ at layers.0.out"), std::string::npos);
}

TEST_F(CompareMain, RanksWithDifferentTokensFail) {
  SyntheticRun run = make_synthetic_run(Precision::fp32);
  write(run, 2);
  const std::filesystem::path file = model() / "outputs" / "results.rank1.jsonl";
  std::string text = read_text_file(file);
  const size_t at = text.find("\"lse\":1");
  ASSERT_NE(at, std::string::npos);
  text[at + 6] = '2';
  write_file_atomically(file, text);
  const ProcessResult result = compare({"--tp", "2"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.stdout_text.find("ranks differ at results"), std::string::npos);
  std::filesystem::remove(file);
  EXPECT_EQ(compare({"--tp", "2"}).exit_code, 3);
}

TEST_F(CompareMain, NaNFailsAndStaysValidJson) {
  SyntheticRun run = make_synthetic_run(Precision::fp32);
  run.result("alpha").dump.taps.at("layers.0.out").values[0] = std::nanf("");
  write(run, 1);
  const ProcessResult result = compare({"--json", "--verbose"});
  EXPECT_EQ(result.exit_code, 1);
  const Json json = Json::parse(result.stdout_text);
  EXPECT_EQ(json["prompts"][0]["worst_rel_l2"], 1e300);
  EXPECT_EQ(json["prompts"][0]["first_bad"], "layers.0.out");
}

TEST_F(CompareMain, TooLittleIsMistrusted) {
  SyntheticRun run = make_synthetic_run(Precision::fp32);
  run.oracle.prompts.erase(run.oracle.prompts.begin(), run.oracle.prompts.begin() + 2);
  run.results.clear();
  write(run, 1);
  const ProcessResult result = compare({"--json"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(Json::parse(result.stdout_text)["verdict"], "MISTRUSTED");
}

TEST_F(CompareMain, EngineFailureIsAnErrorWithItsOwnLine) {
  write(make_synthetic_run(Precision::fp32), 1);
  put("stderr", "loading\nlockstep-generate: model.safetensors: truncated\n\n");
  put("exit", "1");
  const ProcessResult result = compare({"--json"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(Json::parse(result.stdout_text)["verdict"], "ERROR");
  EXPECT_EQ(result.stderr_text,
            "lockstep-compare: the engine ended with exit code 1: lockstep-generate: "
            "model.safetensors: truncated\n");
}

TEST_F(CompareMain, TheReasonIsTheFirstFailureNotItsEcho) {
  write(make_synthetic_run(Precision::fp32), 1);
  put("exit", "70");
  put("stderr", "lockstep-rank: out of pages\nlockstep-rank: peer lost\n");
  EXPECT_NE(compare({}).stderr_text.find("out of pages"), std::string::npos);
  put("stderr", "lockstep-rank: peer lost\nTP2 LOCKSTEP FAILURE round 7\nlockstep-rank: x\n");
  EXPECT_NE(compare({}).stderr_text.find("code 70: TP2 LOCKSTEP FAILURE round 7"),
            std::string::npos);
}

TEST_F(CompareMain, SilentAndSlowAndMissingEngines) {
  write(make_synthetic_run(Precision::fp32), 1);
  put("exit", "139");
  EXPECT_NE(compare({}).stderr_text.find("exit code 139: "), std::string::npos);
  EXPECT_NE(compare({}).stderr_text.find("printed no reason"), std::string::npos);
  put("sleep", "30");
  const ProcessResult slow = compare({"--timeout", "1"});
  EXPECT_EQ(slow.exit_code, 3);
  EXPECT_NE(slow.stderr_text.find("did not end within 1 s"), std::string::npos);
  engine_ = "/nonexistent/engine";
  const ProcessResult missing = compare({});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_NE(missing.stderr_text.find("/nonexistent/engine"), std::string::npos);
}

TEST_F(CompareMain, BrokenEngineOutputsAreErrors) {
  const auto after = [&](const std::function<void(const std::filesystem::path&)>& damage) {
    write(make_synthetic_run(Precision::fp32), 1);
    damage(model() / "outputs");
    const ProcessResult result = compare({});
    EXPECT_EQ(result.exit_code, 3) << result.stdout_text;
    EXPECT_EQ(std::count(result.stderr_text.begin(), result.stderr_text.end(), '\n'), 1);
    return result.stderr_text;
  };
  namespace fs = std::filesystem;
  const auto edit = [](const fs::path& out, const std::string& from, const std::string& to) {
    std::string text = read_text_file(out / "results.jsonl");
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    write_file_atomically(out / "results.jsonl", text.replace(at, from.size(), to));
  };
  const std::vector<std::pair<std::string, std::function<void(const fs::path&)>>> damages = {
      {"exit code 0 without writing its results: ",
       [](const fs::path& out) { fs::remove(out / "results.jsonl"); }},
      {"beta.rank0", [](const fs::path& out) { fs::remove(out / "beta.rank0.safetensors"); }},
      {"alpha.rank0",
       [](const fs::path& out) {
         write_file_atomically(out / "alpha.rank0.safetensors", std::string("xx"));
       }},
      {"no JSON",
       [&](const fs::path& out) {
         write_file_atomically(out / "results.jsonl", std::string("no JSON\n{}\n"));
       }},
      {"0 results for 2",
       [&](const fs::path& out) {
         write_file_atomically(out / "results.jsonl", std::string("\n"));
       }},
      {"answered job", [&](const fs::path& out) { edit(out, "\"alpha\"", "\"gamma\""); }},
      {"4 prompt tokens",
       [&](const fs::path& out) { edit(out, "\"prompt_tokens\":20", "\"prompt_tokens\":4"); }},
      {"\"logits\" is missing", [&](const fs::path& out) { edit(out, "\"logits\"", "\"other\""); }},
      {"out of pages",
       [&](const fs::path& out) {
         edit(out, "\"finish_reason\"", "\"error\":\"out of pages\",\"finish_reason\"");
       }},
  };
  for (const auto& [expected, damage] : damages) {
    const std::string message = after(damage);
    const std::string needle = expected == "no JSON" ? "is not a JSON object" : expected;
    EXPECT_NE(message.find(needle), std::string::npos) << expected << ": " << message;
  }
}

TEST_F(CompareMain, UnreadableOracleIsAnError) {
  const ProcessResult result = compare({"--json"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.stderr_text.find("oracle.json"), std::string::npos);
  EXPECT_EQ(Json::parse(result.stdout_text)["verdict"], "ERROR");
}

TEST_F(CompareMain, UsageErrors) {
  write(make_synthetic_run(Precision::fp32), 1);
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--tp", "3"},
                                              {"--precision", "fp64"},
                                              {"--nonsense"},
                                              {"--mtp", "9"},
                                              {"--prefill-grid", "0"},
                                              {"--names", "/nonexistent"},
                                              {"--against-names", "/nonexistent"},
                                              {"--max-rel-l2", "0.1"},
                                              {"--dump", "a", "--against", "b"}}) {
    EXPECT_EQ(compare(bad).exit_code, 2) << bad[0];
  }
  EXPECT_EQ(compare({"--help"}).exit_code, 0);
}

TEST_F(CompareMain, TextIsPlainInAPipe) {
  SyntheticRun run = make_synthetic_run(Precision::fp32);
  run.perturb("alpha", "layers.1.mixer", 0.01);
  write(run, 1);
  put("config.json", R"({"text_config":{"num_hidden_layers":2,"full_attention_interval":2}})");
  const std::string text = compare({"--verbose"}).stdout_text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("layers.1.mixer (attention)"), std::string::npos) << text;
  EXPECT_NE(text.find("0 GDN"), std::string::npos) << text;
  EXPECT_NE(text.find("not checked: 1 prompts: image prompts are out of scope"), std::string::npos);
  EXPECT_NE(text.find("verdict: FAIL"), std::string::npos);
}

class CompareDumps : public ::testing::Test {
 protected:
  ProcessResult compare(const TapMap& a, const TapMap& b, std::vector<std::string> more = {}) {
    testing::write_tensors(a, "", path("a"));
    testing::write_tensors(b, "", path("b"));
    std::vector<std::string> argv = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-compare",
                                     "--json",
                                     "--dump",
                                     path("a"),
                                     "--against",
                                     path("b")};
    argv.insert(argv.end(), more.begin(), more.end());
    return run_process(argv, std::chrono::seconds(60));
  }
  std::string path(const std::string& name) const {
    return (dir_.path() / (name + ".safetensors")).string();
  }

  TempDir dir_;
  TapMap taps_ = {{"embed", testing::random_tensor({8, 32}, 1)},
                  {"layers.0.out", testing::random_tensor({8, 32}, 2)}};
};

TEST_F(CompareDumps, FlagsOfAnEngineAreRefused) {
  for (const std::vector<std::string>& idle : {std::vector<std::string>{"--model", "m"},
                                               {"--tp", "2"},
                                               {"--fault", "gdn.decay-missing"},
                                               {"--isolate"},
                                               {"--precision", "bf16"},
                                               {"--prompt", "alpha"}}) {
    const ProcessResult result = compare(taps_, taps_, idle);
    EXPECT_EQ(result.exit_code, 2) << idle[0];
    EXPECT_NE(result.stderr_text.find(idle[0]), std::string::npos) << result.stderr_text;
  }
}

TEST_F(CompareDumps, Verdicts) {
  EXPECT_EQ(compare(taps_, taps_).exit_code, 0);
  TapMap other = taps_;
  other["layers.0.out"].values[5] += 0.01f;
  const ProcessResult different = compare(other, taps_);
  EXPECT_EQ(different.exit_code, 1);
  EXPECT_EQ(Json::parse(different.stdout_text)["first_bad"], "layers.0.out");
  EXPECT_EQ(compare(other, taps_, {"--max-rel-l2", "0.1"}).exit_code, 0);
  other = taps_;
  other.erase("embed");
  EXPECT_EQ(compare(other, taps_).exit_code, 3);
  EXPECT_EQ(compare(taps_, other).exit_code, 3);
  EXPECT_EQ(compare({}, {}).exit_code, 4);
  other = {{"embed", FloatTensor{{2, 2}, {0, 0, 0, 0}}}};
  EXPECT_EQ(compare(other, other).exit_code, 4);
}

}  // namespace
}  // namespace lockstep
