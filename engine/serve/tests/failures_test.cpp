// Ranks that die, stall or disagree, in every phase of a request; a proxy that dies.
#include <gtest/gtest-spi.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/serve/tests/proxy_test_support.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

bool process_exists(int pid) {
  return ::kill(pid, 0) == 0;
}

struct Trouble {
  const char* what;    // "do" of the fake rank's fault
  const char* at;      // its phase
  const char* reason;  // what the halt must say
};

void PrintTo(const Trouble& trouble, std::ostream* stream) {
  *stream << trouble.what << " at " << trouble.at;
}

class RankTrouble : public ProxyTest, public ::testing::WithParamInterface<Trouble> {
 protected:
  static std::string body(bool stream) {
    return Json({{"stream", stream},
                 {"n", 6},
                 {"fault", {{"rank", 1}, {"at", GetParam().at}, {"do", GetParam().what}}}})
        .dump();
  }
  void expect_halts(size_t n) {
    ASSERT_TRUE(eventually(
        [&] { return Json::parse(server().get("/lockstep/status"))["halts"].size() == n; }));
    const Json halts = Json::parse(server().get("/lockstep/status"))["halts"];
    EXPECT_NE(halts.back()["reason"].get<std::string>().find(GetParam().reason), std::string::npos)
        << halts.dump();
  }
};

TEST_P(RankTrouble, EndsAStreamWithAnErrorAndRestarts) {
  start({"--watchdog=1"});
  const HttpAnswer broken = server().ask(body(true));
  // Either nothing of the stream had left, or what left is a prefix of it and then the error.
  if (broken.status == 200) {
    const std::vector<std::string> events = broken.events();
    ASSERT_GE(events.size(), 2u);
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      EXPECT_EQ(Json::parse(events[i])["i"], i);
      EXPECT_EQ(Json::parse(events[i])["pad"], "");
    }
    EXPECT_TRUE(Json::parse(events.back()).contains("error")) << events.back();
  } else {
    EXPECT_EQ(broken.status, 503);
    EXPECT_EQ(broken.header("retry-after"), "1");
  }
  EXPECT_EQ(server().ask(R"({"stream":true,"n":2})").events().size(), 3u);
  expect_halts(1);
}

TEST_P(RankTrouble, AnswersWholeRequestsWith503AndRestarts) {
  start({"--watchdog=1"});
  const HttpAnswer broken = server().ask(body(false), "/v1/messages");
  EXPECT_EQ(broken.status, 503);
  EXPECT_TRUE(broken.complete);
  EXPECT_TRUE(broken.body.starts_with(R"({"type":"error")")) << broken.body;
  EXPECT_EQ(server().ask(R"({"n":2})").status, 200);
  expect_halts(1);
}

INSTANTIATE_TEST_SUITE_P(
    All, RankTrouble,
    ::testing::Values(Trouble{"kill", "prefill", "rank 1 was killed by signal 9"},
                      Trouble{"kill", "decode", "rank 1 was killed by signal 9"},
                      Trouble{"exit", "prefill", "TP2 LOCKSTEP FAILURE round=7 field=token_hash"},
                      Trouble{"exit", "decode", "TP2 LOCKSTEP FAILURE round=7 field=token_hash"},
                      Trouble{"exit-slowly", "decode",
                              "(70): TP2 LOCKSTEP FAILURE round=7 field=token_hash"},
                      Trouble{"stop", "prefill", "watchdog: rank 1 does not answer"},
                      Trouble{"stop", "decode", "watchdog: rank 1 does not answer"},
                      Trouble{"hang", "prefill", "watchdog: rank 1 is stuck"},
                      Trouble{"hang", "decode", "watchdog: rank 1 is stuck"},
                      Trouble{"differ", "decode", "TP2 LOCKSTEP FAILURE in the answers"}));

// One rank has the request, the other one only half of it: the number is void for both.
class HalfDelivered : public ProxyTest, public ::testing::WithParamInterface<int> {
 protected:
  // Larger than what the sockets between proxy and rank hold.
  HttpAnswer ask_half(const char* how) {
    return server().ask(R"({"stream":true,"n":1000000,"ms":1})" + std::string(24 << 20, ' '),
                        fmt::format("/v1/completions?{}={}", how, GetParam()));
  }
  Json status() { return Json::parse(server().get("/lockstep/status")); }
};

TEST_P(HalfDelivered, ToARankThatRefusesIsVoidOnBoth) {
  start({"--watchdog=5"});
  const HttpAnswer refused = ask_half("refuse");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("did not reach the engine"), std::string::npos) << refused.body;
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(logged(fmt::format("\"event\":\"void\",\"rank\":{},\"sequence\":1", rank)));
  }
  EXPECT_TRUE(eventually([&] { return status()["in_flight"].empty(); }));
  const HttpAnswer next = server().ask(R"({"stream":true,"n":2})");
  EXPECT_EQ(next.events().size(), 3u);
  const Json now = status();
  EXPECT_EQ(now["halts"].size(), 0u) << now["halts"].dump();
  EXPECT_EQ(now["requests"]["failed"], 1);
  EXPECT_EQ(now["requests"]["finished"], 1);
}

TEST_P(HalfDelivered, ToARankThatDiesIsAnswered503) {
  start({"--watchdog=5"});
  EXPECT_EQ(ask_half("die").status, 503);
  EXPECT_EQ(server().ask(R"({"stream":true,"n":2})").events().size(), 3u);
  EXPECT_TRUE(logged(fmt::format("rank {} was killed by signal 9", GetParam())));
  EXPECT_EQ(status()["requests"]["failed"], 1);
}

INSTANTIATE_TEST_SUITE_P(Ranks, HalfDelivered, ::testing::Values(0, 1));

TEST_F(ProxyTest, TheWatchdogNamesPhaseAndRequest) {
  start({"--watchdog=0.5"});
  server().client().request("POST", "/v1/completions",
                            R"({"stream":true,"n":6,"fault":{"rank":0,"at":"decode","do":"stop"}})",
                            {{"X-Request-Id", "the-one"}});
  ASSERT_TRUE(logged("\"event\":\"watchdog\""));
  const std::string line = server().log_lines("\"event\":\"watchdog\"")[0];
  EXPECT_NE(line.find("rank 0 does not answer"), std::string::npos) << line;
  EXPECT_NE(line.find("the-one (decode)"), std::string::npos) << line;
}

TEST_F(ProxyTest, IdleRanksMayBeSlowButNotDie) {
  start({"--watchdog=0.5"});
  ::usleep(1500000);
  EXPECT_EQ(count("\"event\":\"halt\""), 0u) << "nothing to do is no stall";
  ::kill(server().rank_pid(0), SIGKILL);
  EXPECT_TRUE(logged("rank 0 was killed by signal 9"));
  EXPECT_EQ(server().ask(R"({"n":1})").status, 200);
}

// A long prompt is read before it is run: without rounds, but that is no stall.
TEST_F(ProxyTest, ALongPromptMayBeReadForLongerThanTheWatchdog) {
  start({"--watchdog=1"});
  HttpClient leaving = server().client();
  leaving.send(HttpClient::request_text("POST", "/v1/completions", R"({"n":1,"prepare_ms":4000})"));
  ASSERT_TRUE(logged("\"event\":\"got\"", 2));
  HttpClient behind = server().client();
  behind.send(HttpClient::request_text("POST", "/v1/completions", R"({"n":1,"prepare_ms":4000})"));
  ASSERT_TRUE(logged("\"event\":\"got\"", 4));
  leaving.close();
  EXPECT_EQ(behind.receive().status, 200);
  EXPECT_TRUE(logged("\"outcome\":\"client_gone\""));
  const Json status = Json::parse(server().get("/lockstep/status"));
  EXPECT_TRUE(status["halts"].empty()) << status["halts"].dump();
}

// A large picture goes through the vision tower in one round, also when its client has gone.
TEST_F(ProxyTest, APictureMayTakeLongerThanTheWatchdog) {
  start({"--watchdog=1"});
  HttpClient leaving = server().client();
  leaving.send(HttpClient::request_text("POST", "/v1/completions", R"({"n":1,"encode_ms":3000})"));
  ASSERT_TRUE(logged("\"event\":\"got\"", 2));
  leaving.close();
  EXPECT_TRUE(logged("\"event\":\"cancelled\"", 2));
  EXPECT_EQ(server().ask(R"({"n":1,"encode_ms":3000})").status, 200);
  const Json status = Json::parse(server().get("/lockstep/status"));
  EXPECT_TRUE(status["halts"].empty()) << status["halts"].dump();
}

// But not for ever: then the request times out, and the ranks are started again.
TEST_F(ProxyTest, ReadingThatDoesNotEndIsAFailure) {
  start({"--watchdog=0.5", "--timeout=2"});
  EXPECT_EQ(server().ask(R"({"n":1,"prepare_ms":1000000})").status, 504);
  EXPECT_TRUE(logged("do not end the cancelled request"));
  EXPECT_EQ(server().ask(R"({"n":1})").status, 200);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The lane that runs under a sanitizer can go red: what it finds in a rank reaches the test.
TEST_F(ProxyTest, AFindingInARankIsReported) {
#ifdef __SANITIZE_ADDRESS__
  const char* const fault = "overflow";
  const std::string report = "AddressSanitizer: heap-buffer-overflow";
#else
  const char* const fault = "race";
  const std::string report = "ThreadSanitizer: data race";
#endif
  start();
  server().ask(Json({{"n", 6}, {"fault", {{"rank", 1}, {"at", "decode"}, {"do", fault}}}}).dump());
  ASSERT_TRUE(eventually([&] { return !server().sanitizer_reports().empty(); })) << server().log();
  EXPECT_NONFATAL_FAILURE(expect_no_report(), report);
  server_.reset();  // planted
}
#endif

TEST_F(ProxyTest, QueuedRequestsSurviveARestart) {
  start({"--slots=1"});
  HttpClient running = server().client();
  running.send(
      HttpClient::request_text("POST", "/v1/completions", R"({"stream":true,"n":1000000,"ms":2})"));
  ASSERT_TRUE(running.wait_for("\"i\":0"));
  HttpClient queued = server().client();
  queued.send(HttpClient::request_text("POST", "/v1/completions", R"({"stream":true,"n":2})"));
  ASSERT_TRUE(
      eventually([&] { return Json::parse(server().get("/lockstep/status"))["queued"] == 1; }));
  ::kill(server().rank_pid(1), SIGKILL);
  EXPECT_EQ(queued.receive().events().size(), 3u);
  const HttpAnswer broken = running.receive();
  EXPECT_TRUE(Json::parse(broken.events().back()).contains("error"));
  const Json counts = Json::parse(server().get("/lockstep/status"))["requests"];
  EXPECT_EQ(counts["taken"], 2);
  EXPECT_EQ(counts["finished"], 1);
  EXPECT_EQ(counts["failed"], 1);
}

TEST_F(ProxyTest, AHaltLeavesWhatAPostmortemNeeds) {
  start({"--shards=.", "--draft-vocab=7"}, true, ".");
  server().ask(R"({"n":6,"fault":{"rank":1,"at":"decode","do":"exit"}})");
  ASSERT_TRUE(logged("\"event\":\"halt\""));
  const fs::path folder = fs::path(server().halt_dir()) / fmt::format("{}-1", server().pid());
  const Json halt = Json::parse(read_text_file(folder / "halt.json"));
  EXPECT_EQ(halt["exit_code"], 70);
  // From whatever folder the postmortem is started.
  const std::string here = fs::canonical(".").string();
  const auto arguments = halt["engine_arguments"].get<std::vector<std::string>>();
  for (const std::string& argument :
       {"--model=" + here, "--shards=" + here, std::string("--draft-vocab=7")}) {
    EXPECT_NE(std::ranges::find(arguments, argument), arguments.end()) << argument;
  }
  const Json request = Json::parse(read_text_file(folder / "requests.jsonl"));
  EXPECT_EQ(request["sequence"], 1);
  EXPECT_EQ(Json::parse(request["body"].get<std::string>())["n"], 6);
  EXPECT_EQ(fs::status(folder).permissions() & fs::perms::all, fs::perms::owner_all);
}

TEST_F(ProxyTest, ACrashLoopEndsWithAReason) {
  start({"--max-failures=3"});
  for (int i = 0; i < 3; ++i) {
    server().ask(R"({"n":6,"fault":{"rank":1,"at":"decode","do":"exit"}})");
  }
  EXPECT_EQ(server().wait_for_exit(), 70);
  EXPECT_EQ(count("\"event\":\"halt\""), 3u);
  EXPECT_GE(count("\"event\":\"back_off\""), 1u);
  EXPECT_NE(server().log().find("lockstep-serve: gave up after 3 failures"), std::string::npos)
      << server().log();
}

TEST_F(ProxyTest, RanksThatNeverCameUpAreNotTriedAgain) {
  std::string log;
  try {
    start({}, true, "dies");
  } catch (const Error& error) {
    log = error.what();
  }
  EXPECT_NE(log.find("fake_rank: model dies: no such model"), std::string::npos) << log;
  EXPECT_EQ(log.find("\"start\":2"), std::string::npos) << log;
}

TEST_F(ProxyTest, RanksThatHangWhileLoadingAreGivenUp) {
  EXPECT_THROW(start({"--start-deadline=0.5"}, true, "hangs"), Error);
}

TEST_F(ProxyTest, RanksDoNotSurviveAKilledProxy) {
  start();
  HttpClient client = server().client();
  client.send(
      HttpClient::request_text("POST", "/v1/completions", R"({"stream":true,"n":1000000,"ms":2})"));
  ASSERT_TRUE(client.wait_for("\"i\":3"));
  const std::vector<int> pids = {server().rank_pid(0), server().rank_pid(1)};
  server().signal(SIGKILL);
  server().wait_for_exit();
  for (const int pid : pids) EXPECT_TRUE(eventually([&] { return !process_exists(pid); }));
  const HttpAnswer broken = client.receive();
  EXPECT_FALSE(broken.complete) << "a stream that was cut must not look whole";
  std::vector<std::string> events = broken.events();
  for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_EQ(Json::parse(events[i])["i"], i);
}

TEST_F(ProxyTest, TwoServersShareAHostAndSweepBehindAKilledOne) {
  const fs::path shared = fs::temp_directory_path() / fmt::format("lockstep-test-{}", ::getpid());
  const std::string flag = "--halt-dir=" + shared.string();
  start({flag});
  {
    ServerUnderTest other(program_, {"--model=fake", "--rank-program=" + fake_rank_, flag});
    EXPECT_EQ(other.ask(R"({"n":1})").status, 200);
    EXPECT_EQ(server().ask(R"({"n":1})").status, 200);
    other.signal(SIGKILL);
    other.wait_for_exit();
  }
  const auto folders = [&] {
    return std::distance(fs::directory_iterator(shared), fs::directory_iterator());
  };
  EXPECT_EQ(folders(), 2);
  ServerUnderTest third(program_, {"--model=fake", "--rank-program=" + fake_rank_, flag});
  EXPECT_EQ(folders(), 2) << "the killed server's empty folder is gone";
  third.signal(SIGTERM);
  EXPECT_EQ(third.wait_for_exit(), 0);
  EXPECT_EQ(folders(), 1);
  server_.reset();
  fs::remove_all(shared);
}

TEST_F(ProxyTest, ATakenPortIsNamed) {
  start();
  const ProcessResult second =
      run_process({program_, "--model=fake", "--rank-program=" + fake_rank_,
                   "--port=" + std::to_string(server().port())});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_NE(second.stderr_text.find("choose another --port"), std::string::npos)
      << second.stderr_text;
}

}  // namespace
}  // namespace lockstep::serve
