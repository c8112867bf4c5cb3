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
  int n_records = 0;
  const std::string folder = fmt::format("{}/{}-1", server().halt_dir(), server().pid());
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("halt-0-")) continue;
    ++n_records;
    EXPECT_FALSE(Json::parse(read_text_file(entry.path()))["rounds"].empty());
  }
  EXPECT_EQ(n_records, 1) << "the other rank leaves its last rounds";
  if (GetParam().signal == SIGKILL) {
    const Json halt = Json::parse(server().get("/lockstep/status"))["halts"][0];
    EXPECT_EQ(halt["reason"], "rank 1 was killed by signal 9");
  }
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
                                           Hit{SIGSTOP, "prefill"}, Hit{SIGSTOP, "decode"},
                                           Hit{SIGTERM, "queued"}, Hit{SIGTERM, "prefill"},
                                           Hit{SIGTERM, "decode"}));

// One bit in one rank: both halt in that round, and what was sent before is right. Of a request in
// the queue no byte has been sent; it is answered by the ranks' next start.
struct BitFlip {
  const char* fault;
  const char* where;   // of the fault, beside rank and round
  const char* phase;   // of the request that is hit; with "queued", of the one behind it
  int round;           // later than those of the request behind it, which meets the fault too
  const char* tensor;  // or place that a postmortem must name
};

void PrintTo(const BitFlip& flip, std::ostream* stream) {
  *stream << flip.fault << " in " << flip.phase;
}

class Flip : public Serving, public ::testing::WithParamInterface<BitFlip> {
 protected:
  // Alive in the flip's round.
  static Json hit_request() {
    const std::string phase = GetParam().phase;
    Json body = request(1, phase == "queued" ? 300 : 64);
    if (phase == "prefill") {
      std::string prompt;  // 490 tokens: eight chunks, one a round
      for (int k = 0; k < 150; ++k) prompt += fmt::format("{} ", k);
      body["prompt"] = prompt;
    }
    return body;
  }

  void expect_named() {
    const Json halt = Json::parse(server().get("/lockstep/status"))["halts"][0];
    EXPECT_EQ(halt["exit_code"], 70);
    const std::string reason = halt["reason"];
    EXPECT_NE(reason.find("TP2 LOCKSTEP FAILURE"), std::string::npos) << reason;
    EXPECT_NE(reason.find(fmt::format("round {} ", GetParam().round)), std::string::npos) << reason;
    const ProcessResult postmortem =
        run_process({kBin + "/lockstep-postmortem", halt["folder"].get<std::string>()});
    EXPECT_EQ(postmortem.exit_code, 0) << postmortem.stdout_text << postmortem.stderr_text;
    const std::string& said = postmortem.stdout_text;
    const std::string round = fmt::format("records of round {} differ in", GetParam().round);
    EXPECT_NE(said.find(round), std::string::npos) << said;
    EXPECT_NE(said.find(GetParam().tensor), std::string::npos) << said;
  }
};

TEST_P(Flip, HaltsInThatRound) {
  const Json body = hit_request();
  const std::string expected = generated_texts({body})[0];
  start({"--slots=1", "--mtp=0",
         fmt::format("--fault={}@{}rank=1,round={}", GetParam().fault, GetParam().where,
                     GetParam().round)});
  const auto running = begin(body);
  const std::string phase = GetParam().phase;
  if (phase != "prefill") {
    ASSERT_TRUE(running->wait_for("data: "));
  }
  const auto queued = begin(request(2, 4));
  if (phase == "queued") {
    const auto status = [&] { return Json::parse(server().get("/lockstep/status")); };
    ASSERT_TRUE(eventually([&] { return status()["queued"] == 1 || !status()["halts"].empty(); }));
    ASSERT_TRUE(status()["halts"].empty()) << "the flip came before the request";
  }
  const HttpAnswer broken = running->receive();
  const auto halted = Clock::now();
  if (phase == "prefill") {
    EXPECT_EQ(broken.status, 503) << broken.body;
  } else {
    ASSERT_EQ(broken.status, 200);
    EXPECT_TRUE(Json::parse(broken.events().back()).contains("error")) << broken.events().back();
    const std::string prefix = text_of(broken, true);
    EXPECT_FALSE(prefix.empty());
    EXPECT_TRUE(expected.starts_with(prefix)) << prefix << "\n instead of\n" << expected;
  }
  EXPECT_EQ(text_of(queued->receive(), true), generated_texts({request(2, 4)})[0]);
  EXPECT_EQ(server().log_lines("\"sequence\":2").size(), 0u) << "it waited in the queue";
  fmt::print("{} in {}: next answer after {:.2f} s\n", GetParam().fault, phase,
             std::chrono::duration<double>(Clock::now() - halted).count());
  expect_named();
}

INSTANTIATE_TEST_SUITE_P(
    All, Flip,
    ::testing::Values(
        BitFlip{"replicated.bit-flipped", "", "decode", 20, "decode/final_norm"},
        BitFlip{"replicated.hidden-bit-flipped", "layer=5,", "decode", 20, "decode/layers.5.out"},
        BitFlip{"sampling.token-bit-flipped", "", "decode", 20, "behind the final norm"},
        BitFlip{"replicated.bit-flipped", "", "queued", 200, "decode/final_norm"},
        BitFlip{"sampling.token-bit-flipped", "", "queued", 200, "behind the final norm"},
        BitFlip{"replicated.bit-flipped", "", "prefill", 6, "final_norm"},
        BitFlip{"replicated.hidden-bit-flipped", "layer=5,", "prefill", 6, "layers.5.out"}));

// In the round that ends its prompt. Which number that has depends on when the ranks heard of it.
TEST_F(Serving, AFlippedFirstTokenReachesNoClient) {
  start({"--slots=1", "--mtp=0", "--fault=sampling.token-bit-flipped@rank=1"});
  EXPECT_EQ(ask(request(1, 8), true).status, 503);
  ASSERT_TRUE(eventually([&] { return !server().log_lines("\"event\":\"halt\"").empty(); }));
  const std::string halt = server().log_lines("\"event\":\"halt\"")[0];
  EXPECT_NE(halt.find("TP2 LOCKSTEP FAILURE"), std::string::npos) << halt;
  EXPECT_NE(halt.find("field token_hash"), std::string::npos) << halt;
  EXPECT_NE(halt.find("n_tokens=1 "), std::string::npos) << halt;
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
  EXPECT_NE(postmortem.stdout_text.find("the end of a rank"), std::string::npos);
  Json halt = Json::parse(read_text_file(folder + "/halt.json"));
  halt["reason"] = "TP2 LOCKSTEP FAILURE in round 9";
  write_file_atomically(folder + "/halt.json", halt.dump());
  const ProcessResult once_more = run_process({kBin + "/lockstep-postmortem", folder});
  EXPECT_EQ(once_more.exit_code, 3) << once_more.stdout_text << once_more.stderr_text;
  EXPECT_NE(once_more.stdout_text.find("not reproduced"), std::string::npos);
  EXPECT_NE(once_more.stdout_text.find("C15"), std::string::npos);
}

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

// As the first process of a container, where the parent of the ranks has the id of init.
TEST_F(Serving, RunsAsProcessOne) {
  const std::vector<std::string> unshare = {"unshare", "--pid", "--fork", "--mount-proc",
                                            "--kill-child"};
  std::vector<std::string> probe = unshare;
  probe.push_back("true");
  if (run_process(probe).exit_code != 0) GTEST_SKIP() << "no new process namespace here";
  const TempDir folder;
  const std::string program = folder.path() / "entrypoint";
  std::string script = "#!/bin/sh\nexec";
  for (const std::string& word : unshare) script += " " + word;
  write_file_atomically(program, script + " " + kBin + "/lockstep-serve \"$@\"\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  server_ = std::make_unique<ServerUnderTest>(program, kEngine);
  EXPECT_EQ(ask(request(2, 8), true).events().back(), "[DONE]");
  EXPECT_LT(server().rank_pid(1), 100) << "numbered in a namespace of its own";
}

TEST_F(Serving, TheContextIsTheModelsOrTheFlags) {
  const auto context = [&] {
    const Json rank = Json::parse(server().get("/lockstep/status"))["ranks"][0];
    return rank.is_object() ? rank.value("max_context", 0) : 0;
  };
  start({"--max-context=auto"});
  EXPECT_TRUE(eventually([&] { return context() == 32768; }));
  start({"--max-context=256"});
  EXPECT_TRUE(eventually([&] { return context() == 256; }));
  const HttpAnswer refused = ask(request(1, 300), false);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("context_length_exceeded"), std::string::npos) << refused.body;
}

TEST_F(Serving, NamesOfTheModelAndOfWhatIsNotKept) {
  start({"--strict-model", "--model-id=the-one", "--tp=1"});
  Json body = request(2, 2);
  EXPECT_EQ(ask(body, false).status, 200);
  body["model"] = "the-one";
  EXPECT_EQ(ask(body, false).status, 200);
  body["model"] = "another";
  const HttpAnswer refused = ask(body, false);
  EXPECT_EQ(refused.status, 404);
  EXPECT_NE(refused.body.find("model_not_found"), std::string::npos) << refused.body;
  const Json models = Json::parse(server().get("/v1/models"))["data"][0];
  EXPECT_EQ(models["id"], "the-one");
  const std::string metrics = server().get("/metrics");
  for (const char* digest : {"build", "checkpoint"}) {
    const std::string value = models["lockstep"][digest];
    EXPECT_EQ(value.size(), 32u);
    EXPECT_NE(metrics.find(fmt::format("{}=\"{}\"", digest, value)), std::string::npos) << metrics;
    EXPECT_FALSE(server().log_lines(value).empty()) << "in the log";
  }
  EXPECT_NE(server().get("/v1/responses/resp_1").find("keeps no responses"), std::string::npos);
}

// What a machine without a card, or a build without the backend, says.
TEST_F(Serving, CardsAreRefusedClearly) {
  if (ranks_run_on_card()) GTEST_SKIP() << "there is a card";
  const auto said = [&](const std::vector<std::string>& flags, int exit_code) {
    std::vector<std::string> argv = {kBin + "/lockstep-serve", "--port=0"};
    argv.insert(argv.end(), kEngine.begin(), kEngine.end());
    argv.insert(argv.end(), flags.begin(), flags.end());
    const ProcessResult run = run_process(argv);
    EXPECT_EQ(run.exit_code, exit_code) << run.stderr_text;
    return run.stderr_text;
  };
  for (const char* flag : {"--devices=0,1", "--share-device", "--kernels=sm70"}) {
    const std::string text = said({flag}, 2);
    EXPECT_NE(text.find("--backend cpu uses none; leave them out"), std::string::npos) << text;
  }
  const std::string text = said({"--transport=nccl"}, 2);
  EXPECT_NE(text.find("--transport nccl joins two cards"), std::string::npos) << text;
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
  server_.reset();
  const std::vector<std::vector<std::string>> others = {
      {"--tp=1", "--mtp=0", "--slots=1"}, {"--tp=2", "--mtp=5", "--slots=4"}, {"--tp=1"}};
  for (const std::vector<std::string>& flags : others) {
    std::vector<std::string> argv = {kBin + "/lockstep-replay", log, "--model", kModel};
    argv.insert(argv.end(), flags.begin(), flags.end());
    for (const std::string& flag : device_flags()) argv.push_back(flag);
    const ProcessResult replay = run_process(argv);
    EXPECT_EQ(replay.exit_code, 0) << flags[0] << replay.stdout_text << replay.stderr_text;
    EXPECT_NE(replay.stdout_text.find("PASS"), std::string::npos);
  }
  // Of a log with another seed the texts are other ones.
  std::string text = read_text_file(log);
  const size_t seed = text.find("\"seed\":101");
  ASSERT_NE(seed, std::string::npos) << text;
  text.replace(seed, 10, "\"seed\":999");
  write_file_atomically(log, text);
  std::vector<std::string> argv = {kBin + "/lockstep-replay", log, "--model", kModel};
  for (const std::string& flag : device_flags()) argv.push_back(flag);
  const ProcessResult other = run_process(argv);
  EXPECT_EQ(other.exit_code, 1) << other.stdout_text;
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
