// The whole server on the golden model: the same text as generate, and faults that reach no client.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/serve/tests/serving_test_support.h"

namespace lockstep::serve {
namespace {

using Clock = std::chrono::steady_clock;

// What generate says to the same requests, by position.
std::vector<std::string> generated_texts(const std::vector<Json>& requests) {
  const TempDir folder;
  std::string jobs;
  for (size_t i = 0; i < requests.size(); ++i) {
    Json job = requests[i];
    job["name"] = fmt::format("r{}", i);
    jobs += job.dump() + "\n";
  }
  write_file_atomically(folder.path() / "jobs.jsonl", jobs);
  std::vector<std::string> argv = {kBin + "/lockstep-generate", "--tp=1",
                                   "--jobs=" + (folder.path() / "jobs.jsonl").string(),
                                   "--out=" + (folder.path() / "out").string()};
  argv.insert(argv.end(), kEngine.begin(), kEngine.end());
  const ProcessResult run = run_process(argv);
  if (run.exit_code != 0) fail("generate: {}", run.stderr_text);
  std::vector<std::string> texts;
  std::istringstream lines(read_text_file(folder.path() / "out" / "results.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    texts.push_back(Json::parse(line)["text"].get<std::string>());
  }
  return texts;
}

// What the ranks' logs say of each request, by its number.
std::map<uint64_t, std::string> rank_log(const ServerUnderTest& server, int rank) {
  std::map<uint64_t, std::string> log;
  for (const std::string& line : server.log_lines("\"digest\"")) {
    const Json json = Json::parse(line);
    if (json["rank"] != rank || !json.contains("sequence")) continue;
    log[json["sequence"].get<uint64_t>()] =
        fmt::format("{} {} {}", json["digest"].dump(), json["completion_tokens"].dump(),
                    json["finish_reason"].dump());
  }
  return log;
}

TEST_F(Serving, TextEqualsGenerateByteForByte) {
  const int n = requests_from_environment(24);
  std::vector<Json> requests;
  for (int i = 0; i < n; ++i) requests.push_back(request(i, 8 + i % 9));
  const std::vector<std::string> expected = generated_texts(requests);
  ASSERT_EQ(expected.size(), requests.size());
  for (const int slots : {1, 2}) {
    start({fmt::format("--slots={}", slots)});
    std::atomic<size_t> next{0};
    std::atomic<int> n_same{0};
    const auto client = [&] {
      for (size_t i; (i = next++) < requests.size();) {
        const bool stream = i % 2 == 1;
        const std::string text = text_of(ask(requests[i], stream), stream);
        EXPECT_EQ(text, expected[i]) << "request " << i << ", slots " << slots;
        n_same += text == expected[i] ? 1 : 0;
      }
    };
    std::thread other(client);
    client();
    other.join();
    EXPECT_EQ(n_same, n);
    ASSERT_TRUE(eventually([&] { return rank_log(server(), 1).size() == static_cast<size_t>(n); }));
    EXPECT_EQ(rank_log(server(), 0), rank_log(server(), 1));
  }
}

// A signal to one rank, with the request in each phase.
struct Hit {
  int signal;
  const char* phase;
};

void PrintTo(const Hit& hit, std::ostream* stream) {
  *stream << "signal " << hit.signal << " in " << hit.phase;
}

class RankHit : public Serving, public ::testing::WithParamInterface<Hit> {};

TEST_P(RankHit, ReachesNoClientAndEndsSoon) {
  start({"--slots=1", "--watchdog=1"});
  const std::string phase = GetParam().phase;
  Json body = request(1, phase == "decode" || phase == "queued" ? 4000 : 8);
  if (phase == "prefill") {
    std::string prompt;
    for (int k = 0; k < 3000; ++k) prompt += fmt::format("{} ", k);
    body["prompt"] = prompt;
  }
  const Json next = request(2, 12);
  const std::string expected = text_of(ask(next, true), true);
  const auto running = begin(body);
  if (phase == "prefill") {
    ASSERT_TRUE(wait_for_phase("prefill"));
  } else {
    ASSERT_TRUE(running->wait_for("data: "));
  }
  std::unique_ptr<HttpClient> queued;
  if (phase == "queued") {
    queued = begin(next);
    ASSERT_TRUE(
        eventually([&] { return Json::parse(server().get("/lockstep/status"))["queued"] == 1; }));
  }
  const int pid = server().rank_pid(1);
  const auto hit = Clock::now();
  ::kill(pid, GetParam().signal);
  const HttpAnswer after = queued ? queued->receive() : ask(next, true);
  const double seconds = std::chrono::duration<double>(Clock::now() - hit).count();
  EXPECT_EQ(text_of(after, true), expected);
  RecordProperty("seconds_to_next_answer", fmt::format("{:.2f}", seconds));
  fmt::print("signal {} in {}: next answer after {:.2f} s\n", GetParam().signal, phase, seconds);
  EXPECT_LT(seconds, 20.0) << "ten times the stated 2 s";
  const HttpAnswer broken = running->receive();
  if (broken.status == 200) {
    EXPECT_TRUE(Json::parse(broken.events().back()).contains("error")) << broken.events().back();
    // What came before the error is the beginning of the right answer.
    Json whole = body;
    const std::string prefix = text_of(broken, true);
    whole["max_tokens"] = static_cast<int>(broken.events().size()) * 5 + 8;
    EXPECT_TRUE(text_of(ask(whole, false), false).starts_with(prefix)) << prefix;
  } else {
    EXPECT_EQ(broken.status, 503);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RankHit,
                         ::testing::Values(Hit{SIGKILL, "queued"}, Hit{SIGKILL, "prefill"},
                                           Hit{SIGKILL, "decode"}, Hit{SIGSTOP, "queued"},
                                           Hit{SIGSTOP, "prefill"}, Hit{SIGSTOP, "decode"}));

// One bit in one rank: both halt in that round, and what was sent before is right.
struct BitFlip {
  const char* fault;
  const char* tensor;  // or place that a postmortem must name
};

void PrintTo(const BitFlip& flip, std::ostream* stream) {
  *stream << flip.fault;
}

class Flip : public Serving, public ::testing::WithParamInterface<BitFlip> {};

TEST_P(Flip, HaltsInThatRound) {
  const Json body = request(1, 64);
  const std::string expected = generated_texts({body})[0];
  start({"--slots=1", "--mtp=0", fmt::format("--fault={}@rank=1,round=20", GetParam().fault)});
  const auto running = begin(body);
  ASSERT_TRUE(running->wait_for("data: "));
  const auto queued = begin(request(2, 4));
  const HttpAnswer broken = running->receive();
  ASSERT_EQ(broken.status, 200);
  EXPECT_TRUE(Json::parse(broken.events().back()).contains("error")) << broken.events().back();
  const std::string prefix = text_of(broken, true);
  EXPECT_FALSE(prefix.empty());
  EXPECT_TRUE(expected.starts_with(prefix)) << prefix << "\n instead of\n" << expected;
  EXPECT_EQ(text_of(queued->receive(), true), generated_texts({request(2, 4)})[0]);
  const Json halt = Json::parse(server().get("/lockstep/status"))["halts"][0];
  EXPECT_EQ(halt["exit_code"], 70);
  const std::string reason = halt["reason"];
  EXPECT_NE(reason.find("TP2 LOCKSTEP FAILURE"), std::string::npos) << reason;
  EXPECT_NE(reason.find("round 20 "), std::string::npos) << reason;
  const ProcessResult postmortem =
      run_process({kBin + "/lockstep-postmortem", halt["folder"].get<std::string>()});
  EXPECT_EQ(postmortem.exit_code, 0) << postmortem.stdout_text << postmortem.stderr_text;
  EXPECT_NE(postmortem.stdout_text.find("records of round 20 differ in"), std::string::npos)
      << postmortem.stdout_text;
  EXPECT_NE(postmortem.stdout_text.find(GetParam().tensor), std::string::npos)
      << postmortem.stdout_text;
}

// What does not come back cannot be named; then the hardware is suspect.
TEST_F(Serving, APostmortemSaysWhenNothingDiffers) {
  start({"--slots=1"});
  const auto running = begin(request(1, 4000));
  ASSERT_TRUE(running->wait_for("data: "));
  ::kill(server().rank_pid(1), SIGKILL);
  running->receive();
  ASSERT_TRUE(eventually([&] { return !server().log_lines("\"event\":\"halt\"").empty(); }));
  const std::string folder = fmt::format("{}/{}-1", server().halt_dir(), server().pid());
  const ProcessResult postmortem = run_process({kBin + "/lockstep-postmortem", folder});
  EXPECT_EQ(postmortem.exit_code, 3) << postmortem.stdout_text << postmortem.stderr_text;
  EXPECT_NE(postmortem.stdout_text.find("not reproduced"), std::string::npos);
  EXPECT_NE(postmortem.stdout_text.find("C15"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, Flip,
                         ::testing::Values(BitFlip{"replicated.bit-flipped", "decode/final_norm"},
                                           BitFlip{"sampling.token-bit-flipped",
                                                   "behind the final norm"}));

TEST_F(Serving, AKilledProxyLeavesNoRankAndNoWholeAnswer) {
  start({"--slots=1"});
  const Json body = request(1, 4000);
  const auto running = begin(body);
  ASSERT_TRUE(running->wait_for("data: "));
  const std::vector<int> pids = {server().rank_pid(0), server().rank_pid(1)};
  server().signal(SIGKILL);
  server().wait_for_exit();
  for (const int pid : pids) {
    EXPECT_TRUE(eventually([&] { return ::kill(pid, 0) != 0; })) << "rank " << pid << " survived";
  }
  const HttpAnswer broken = running->receive();
  EXPECT_FALSE(broken.complete);
  const std::string prefix = text_of(broken, true);
  start({"--slots=1"});
  Json again = body;
  again["max_tokens"] = 400;
  EXPECT_TRUE(text_of(ask(again, false), false).starts_with(prefix.substr(0, 100)));
}

TEST_F(Serving, WhatWasRecordedRunsAgain) {
  const TempDir folder;
  const std::string log = folder.path() / "log.jsonl";
  start({"--record=" + log});
  for (int i = 0; i < 6; ++i) ask(request(i, 6 + i), i % 2 == 0);
  {
    const auto leaving = begin(request(1, 4000));
    ASSERT_TRUE(leaving->wait_for("data: "));
  }
  ASSERT_TRUE(eventually([&] { return server().log_lines("\"digest\"").size() == 14; }));
  EXPECT_TRUE(server().log_lines("\"job\"").empty()) << "prompts are not logged";
  const ProcessResult replay =
      run_process({kBin + "/lockstep-replay", log, "--model", kModel, "--tp", "1", "--mtp", "0"});
  EXPECT_EQ(replay.exit_code, 0) << replay.stdout_text << replay.stderr_text;
  EXPECT_NE(replay.stdout_text.find("PASS"), std::string::npos);
}

TEST_F(Serving, SmokePasses) {
  start({});
  const ProcessResult smoke =
      run_process({kBin + "/lockstep-smoke", fmt::format("http://127.0.0.1:{}", server().port())});
  EXPECT_EQ(smoke.exit_code, 0) << smoke.stdout_text << smoke.stderr_text;
  EXPECT_NE(smoke.stdout_text.find("PASS"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::serve
