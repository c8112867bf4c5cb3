// The program as its users start it: two endpoints, an oracle, engines with and without a fault.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "validation/testing/fake_endpoint.h"
#include "validation/testing/running_server.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using testing::FakeAnswers;
using testing::FakeEndpoint;
using testing::FakeToken;
using testing::RunningServer;

ProcessResult diverge(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {std::string(LOCKSTEP_BIN_DIR) + "/lockstep-diverge", "--json"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run_process(argv, std::chrono::seconds(120));
}

// Next token from the length and the last token. At the lengths in `forks`, the runner-up comes
// out by `flipped` where the first engine has it down by `margin`.
FakeAnswers answers(double margin, double flipped, bool second_engine) {
  FakeAnswers made;
  made.next = [=](const std::vector<int32_t>& history) {
    const auto n = static_cast<int32_t>(history.size());
    FakeToken token;
    token.id = (history.back() * 7 + n) % 50;
    token.second = 50 + n % 10;
    const bool fork = n == 20 || n == 33;
    if (!fork) return token;
    token.margin = margin;
    if (second_engine) {
      std::swap(token.id, token.second);
      token.margin = flipped;
    }
    return token;
  };
  made.chat_style_logprobs = second_engine;
  return made;
}

class DivergeEndpoints : public ::testing::Test {
 protected:
  DivergeEndpoints() {
    write_file_atomically(dir_.path() / "prompts.jsonl",
                          std::string(R"({"name": "p", "ids": [1, 2, 3, 4, 5]})"));
  }

  Json judge(const FakeEndpoint& a, const FakeEndpoint& b, int expected_exit) {
    const ProcessResult result =
        diverge({a.url(), b.url() + "/v1", "--prompts", (dir_.path() / "prompts.jsonl").string(),
                 "--max-tokens", "40", "--html", (dir_.path() / "report.html").string()});
    EXPECT_EQ(result.exit_code, expected_exit) << result.stderr_text;
    return Json::parse(result.stdout_text);
  }

  Json judge(double margin, double flipped, int expected_exit) {
    const FakeEndpoint a(answers(margin, flipped, false));
    const FakeEndpoint b(answers(margin, flipped, true));
    const Json json = judge(a, b, expected_exit);
    EXPECT_EQ(a.n_requests(), 1);
    EXPECT_EQ(b.n_requests(), 3) << "one more behind each fork";
    return json;
  }

  TempDir dir_;
};

TEST_F(DivergeEndpoints, AReportThatCannotBeWrittenIsRefusedBeforeTheWork) {
  const FakeEndpoint a(answers(0.1, 0.05, false));
  const ProcessResult result =
      diverge({a.url(), a.url(), "--prompts", (dir_.path() / "prompts.jsonl").string(), "--html",
               (dir_.path() / "none" / "report.html").string()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.stderr_text.find("none is no folder: make it first"), std::string::npos)
      << result.stderr_text;
  EXPECT_EQ(a.n_requests(), 0);
}

TEST_F(DivergeEndpoints, PromptsThatCannotBeReadAreNamed) {
  const FakeEndpoint a(answers(0.1, 0.05, false));
  const std::string path = (dir_.path() / "bad.jsonl").string();
  const std::pair<const char*, const char*> rows[] = {
      {"{x", "not valid JSON at column 2"},
      {R"({"ids": [1]})", "'name' is missing"},
      {R"({"name": "p", "ids": ["x"]})", "'ids': a value must be number, but is string"},
      {R"({"name": "p"})", "'prompt' is missing"}};
  for (const auto& [line, words] : rows) {
    write_file_atomically(path, std::string(line) + "\n");
    const ProcessResult result = diverge({a.url(), a.url(), "--prompts", path});
    EXPECT_EQ(result.exit_code, 3) << line;
    EXPECT_EQ(result.stderr_text, "lockstep-diverge: " + path + ":1: " + words + "\n");
  }
}

TEST_F(DivergeEndpoints, SmallMarginsAreTies) {
  const Json json = judge(0.1, 0.05, 0);
  EXPECT_EQ(json["verdict"], "TIE");
  const Json& prompt = json["prompts"][0];
  EXPECT_EQ(prompt["prefix"], 15);
  EXPECT_EQ(prompt["compared"], 40);
  ASSERT_EQ(prompt["forks"].size(), 2u);
  EXPECT_EQ(prompt["forks"][1]["step"], 28);
  EXPECT_NEAR(prompt["forks"][0]["drift"].get<double>(), 0.15, 1e-9);
  const std::string html = read_text_file(dir_.path() / "report.html");
  EXPECT_NE(html.find("15 of 40 tokens are equal"), std::string::npos);
  EXPECT_NE(html.find(".line, .limit { fill: none"), std::string::npos) << "plots have a style";
}

// sigma = 3 * 0.0175 * 3.5 = 0.18 nats; four are 0.73, for w8 2.2.
TEST_F(DivergeEndpoints, LargerOnesAreDriftAndDefect) {
  EXPECT_EQ(judge(0.5, 0.5, 1)["verdict"], "DRIFT");
  EXPECT_EQ(judge(1.5, 1.5, 1)["verdict"], "DEFECT");
}

// Endpoints that know the original API alone: five log-probabilities, no ids, so that nothing can
// be fed behind a fork; or none at all.
TEST_F(DivergeEndpoints, PlainEndpointsAreAskedWhatTheyKnow) {
  FakeAnswers plain = answers(0.1, 0.05, false);
  plain.original_fields_only = true;
  plain.most_logprobs = 5;
  FakeAnswers other = answers(0.1, 0.05, true);
  other.chat_style_logprobs = false;
  other.original_fields_only = true;
  const FakeEndpoint a(plain);
  const FakeEndpoint b(other);
  const Json json = judge(a, b, 0);
  EXPECT_EQ(a.n_requests(), 3) << "without extensions, then with fewer log-probabilities";
  EXPECT_EQ(json["verdict"], "TIE");
  EXPECT_EQ(json["prompts"][0]["compared"], 16);
  EXPECT_EQ(json["prompts"][0]["forks"][0]["a"], "t19");
}

TEST_F(DivergeEndpoints, TextsAloneAreTheSameOrUndecided) {
  FakeAnswers mute = answers(1.5, 1.5, false);
  mute.most_logprobs = 0;
  const FakeEndpoint a(mute);
  const FakeEndpoint same(answers(1.5, 1.5, false));
  const FakeEndpoint other(answers(1.5, 1.5, true));
  const Json equal = judge(same, a, 0);
  EXPECT_EQ(equal["verdict"], "SAME");
  EXPECT_EQ(equal["reason"], "texts alone were compared");
  const Json parted = judge(a, other, 3);
  EXPECT_EQ(parted["verdict"], "UNDECIDED");
  EXPECT_TRUE(parted["prompts"][0]["text_only"].get<bool>());
  EXPECT_NE(parted["reason"].get<std::string>().find("texts part at byte "), std::string::npos);
  EXPECT_NE(read_text_file(dir_.path() / "report.html").find("bytes of text are equal"),
            std::string::npos);
}

// On a terminal a bar says how far it is; elsewhere stderr stays empty.
TEST_F(DivergeEndpoints, ATerminalIsShownTheProgress) {
  const FakeEndpoint a(answers(0.1, 0.05, false));
  const std::string command = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-diverge " + a.url() + " " +
                              a.url() + " --prompts " + (dir_.path() / "prompts.jsonl").string();
  const ProcessResult piped = run_process({"/bin/sh", "-c", command});
  EXPECT_EQ(piped.exit_code, 0) << piped.stderr_text;
  EXPECT_EQ(piped.stderr_text, "");
  // script(1) gives its command a terminal; it shows nothing without an input of its own.
  const ProcessResult shown =
      run_process({"/bin/sh", "-c", "script -qec \"$0\" /dev/null < /dev/null", command});
  EXPECT_NE(shown.stdout_text.find("1 prompts of 1 prompts"), std::string::npos)
      << shown.stdout_text << shown.stderr_text;
}

TEST_F(DivergeEndpoints, WhatCannotBeAskedIsAnError) {
  const std::string prompts = (dir_.path() / "prompts.jsonl").string();
  const FakeEndpoint a(answers(1, 1, false));
  const ProcessResult gone = diverge({a.url(), "http://127.0.0.1:1", "--prompts", prompts});
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_NE(gone.stderr_text.find("http://127.0.0.1:1/v1/completions: no answer"),
            std::string::npos)
      << gone.stderr_text;
  EXPECT_EQ(Json::parse(gone.stdout_text)["verdict"], "ERROR");
  EXPECT_EQ(diverge({a.url(), a.url() + "/nothing", "--prompts", prompts}).exit_code, 3);
  EXPECT_EQ(diverge({a.url(), "https://127.0.0.1", "--prompts", prompts}).exit_code, 2);
  EXPECT_EQ(diverge({a.url(), "oracle:x", "--prompts", prompts}).exit_code, 3);
  EXPECT_EQ(diverge({a.url(), a.url(), "--prompts", prompts, "--prompt", "q"}).exit_code, 2);
}

const std::string kGolden = LOCKSTEP_GOLDEN_DIR;

ProcessResult golden(const std::string& a, const std::string& b, const std::string& precision,
                     const std::string& local) {
  return diverge({a, b, "--model", kGolden + "/tiny-qwen3_5", "--prompts",
                  kGolden + "/oracle/public", "--prompt", "chat-code", "--prompt", "utf8-mixed",
                  "--max-tokens", "48", "--precision", precision, "--local", local});
}

const std::string kGenerate = std::string(LOCKSTEP_BIN_DIR) + "/lockstep-generate --precision ";

TEST(DivergeEngines, TheEngineAgreesWithTheOracle) {
  const ProcessResult result =
      golden("oracle:" + kGolden + "/oracle/public", kGenerate + "fp32", "fp32", "0");
  EXPECT_EQ(result.exit_code, 0) << result.stdout_text << result.stderr_text;
  EXPECT_EQ(Json::parse(result.stdout_text)["verdict"], "SAME");
}

// The server of this project, asked by token ids: every step, special tokens too, in both
// precisions, and with a fault behind it.
TEST(DivergeEngines, AServerIsJudgedAsAnyEndpoint) {
  const std::string oracle = "oracle:" + kGolden + "/oracle/public";
  const RunningServer exact(LOCKSTEP_BIN_DIR, kGolden, {"--precision=fp32"});
  const ProcessResult same = golden(oracle, exact.url(), "fp32", "0");
  EXPECT_EQ(same.exit_code, 0) << same.stdout_text << same.stderr_text;
  const Json json = Json::parse(same.stdout_text);
  EXPECT_EQ(json["verdict"], "SAME");
  EXPECT_EQ(json["prompts"][0]["compared"], 48);
  EXPECT_LE(json["rms_sigmas"].get<double>(), 1.0);
  const RunningServer faulty(LOCKSTEP_BIN_DIR, kGolden,
                             {"--precision=fp32", "--fault=gdn.head-state-lost-at-prompt-end"});
  const ProcessResult defect = golden(exact.url(), faulty.url(), "fp32", "0");
  EXPECT_EQ(defect.exit_code, 1) << defect.stdout_text << defect.stderr_text;
}

TEST(DivergeEngines, BfloatIsADriftOfFloat) {
  const ProcessResult result = golden(kGenerate + "fp32", kGenerate + "bf16", "fp32", "2");
  const Json json = Json::parse(result.stdout_text);
  EXPECT_EQ(json["verdict"], "DRIFT") << json;
  const ProcessResult declared = golden(kGenerate + "fp32", kGenerate + "bf16", "bf16", "2");
  EXPECT_EQ(declared.exit_code, 0) << declared.stdout_text;
  EXPECT_TRUE(Json::parse(declared.stdout_text)["local"]);
}

TEST(DivergeEngines, AFaultIsADefectWithItsCulprit) {
  const ProcessResult result =
      golden(kGenerate + "bf16", kGenerate + "bf16 --fault mlp.rows-permuted@layer=4", "bf16", "1");
  const Json json = Json::parse(result.stdout_text);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(json["verdict"], "DEFECT");
  EXPECT_EQ(json["culprit"], "layers.4.mlp");
}

}  // namespace
}  // namespace lockstep
