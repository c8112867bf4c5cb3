// The proxy between clients and scripted ranks: relays, queues, cancels.
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "engine/serve/tests/proxy_test_support.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

const char* const kEndless = R"({"stream":true,"n":1000000,"ms":2})";
const char* const kEndlessBody = R"({"n":1000000,"ms":2})";
const char* const kLongPrefill = R"({"stream":true,"prefill_ms":1000000})";

std::string generate_text(const char* body) {
  return HttpClient::request_text("POST", "/v1/completions", body);
}

TEST_F(ProxyTest, RelaysStreamsAndBodies) {
  start();
  const HttpAnswer stream = server().ask(R"({"stream":true,"n":4})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.complete);
  EXPECT_EQ(stream.header("content-type"), "text/event-stream");
  ASSERT_EQ(stream.events().size(), 5u);
  EXPECT_EQ(stream.events().back(), "[DONE]");
  EXPECT_EQ(Json::parse(stream.events()[0])["id"], stream.header("x-request-id"));
  const HttpAnswer whole = server().ask(R"({"n":4})");
  EXPECT_EQ(whole.status, 200);
  EXPECT_TRUE(whole.complete);
  EXPECT_EQ(Json::parse(whole.body)["sequence"], 2);
}

TEST_F(ProxyTest, ErrorsOfTheRanksAreRelayed) {
  start();
  const HttpAnswer answer = server().ask("no JSON \xff");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.body, R"({"error":{"message":"body is no JSON object"}})");
}

TEST_F(ProxyTest, OneRankHasTheSameProxy) {
  start({"--tp=1"});
  EXPECT_EQ(server().ask(R"({"stream":true,"n":4})").events().size(), 5u);
}

TEST_F(ProxyTest, AConnectionServesManyRequests) {
  start();
  HttpClient client = server().client();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.request("POST", "/v1/completions", R"({"stream":true,"n":2})").events().size(),
              3u);
    EXPECT_EQ(client.request("GET", "/health").status, 200);
  }
  // The second request is sent before the first is answered.
  client.send(generate_text(R"({"n":1})") + generate_text(R"({"n":2})"));
  const HttpAnswer first = client.receive();
  const HttpAnswer second = client.receive();
  EXPECT_EQ(Json::parse(first.body)["sequence"], 4);
  EXPECT_EQ(Json::parse(second.body)["sequence"], 5);
}

// For how long the connections of the last request had been there when it came, by rank.
class AheadTest : public ProxyTest {
 protected:
  std::vector<int64_t> waited_ms_after(std::chrono::milliseconds pause) {
    std::this_thread::sleep_for(pause);
    const size_t before = count("\"event\":\"got\"");
    EXPECT_EQ(server().ask(R"({"stream":true,"n":1})").status, 200);
    EXPECT_TRUE(logged("\"event\":\"got\"", before + 2));
    std::vector<int64_t> waited;
    const std::vector<std::string> lines = server().log_lines("\"event\":\"got\"");
    for (size_t i = before; i < lines.size(); ++i) {
      waited.push_back(Json::parse(lines[i])["waited_ms"].get<int64_t>());
    }
    return waited;
  }
};

TEST_F(AheadTest, ConnectionsWaitForRequests) {
  start();
  for (int i = 0; i < 3; ++i) {
    for (const int64_t ms : waited_ms_after(500ms)) EXPECT_GE(ms, 250);
  }
}

TEST_F(AheadTest, OldConnectionsAreNotTrusted) {
  start();
  for (const int64_t ms : waited_ms_after(4500ms)) EXPECT_LT(ms, 4000);
}

TEST_F(AheadTest, ClosedConnectionsAreMadeAnew) {
  start({}, true, "impatient");
  for (int i = 0; i < 3; ++i) {
    for (const int64_t ms : waited_ms_after(500ms)) EXPECT_LT(ms, 250);
  }
  EXPECT_EQ(count("\"event\":\"rank_started\""), 2u);
}

TEST_F(ProxyTest, SideCallsAreNotNumbered) {
  start();
  EXPECT_EQ(Json::parse(server().ask("{\"text\":\"x\"}", "/tokenize").body)["target"], "/tokenize");
  EXPECT_EQ(Json::parse(server().ask(R"({"n":1})").body)["sequence"], 1);
}

TEST_F(ProxyTest, ClientsCannotSpeakToRanks) {
  start();
  EXPECT_EQ(server().ask("{\"sequence\":1}", "/lockstep/cancel").status, 404);
  // Numbers and seeds are the proxy's own, whatever a client sends.
  const std::string request = HttpClient::request_text(
      "POST", "/v1/completions", R"({"stream":true,"n":1})",
      {{"Lockstep-Sequence", "77"}, {"Lockstep-Seed", "5"}, {"X-Request-Id", "mine-1"}});
  HttpClient client = server().client();
  client.send(request);
  const HttpAnswer answer = client.receive();
  EXPECT_TRUE(logged("\"event\":\"got\",\"rank\":1,\"sequence\":1"));
  EXPECT_NE(Json::parse(answer.events().at(0))["seed"], "5");
  EXPECT_EQ(answer.header("x-request-id"), "mine-1");
}

TEST_F(ProxyTest, TheQueueKeepsOrderAndHasAnEnd) {
  start({"--slots=1", "--queue=2"});
  HttpClient first = server().client();
  first.send(generate_text(R"({"stream":true,"n":400,"ms":2})"));
  ASSERT_TRUE(first.wait_for("\"i\":0"));
  HttpClient second = server().client();
  second.send(generate_text(R"({"n":1})"));
  ASSERT_TRUE(
      eventually([&] { return Json::parse(server().get("/lockstep/status"))["queued"] == 1; }));
  HttpClient third = server().client();
  third.send(generate_text(R"({"n":1})"));
  ASSERT_TRUE(
      eventually([&] { return Json::parse(server().get("/lockstep/status"))["queued"] == 2; }));
  const HttpAnswer refused = server().ask(R"({"n":1})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_NE(refused.body.find("queue is full"), std::string::npos);
  EXPECT_TRUE(first.receive().complete);
  EXPECT_EQ(Json::parse(second.receive().body)["sequence"], 2);
  EXPECT_EQ(Json::parse(third.receive().body)["sequence"], 3);
}

// A client that leaves is noticed wherever its request is, and cancelled on both ranks.
class Leaving : public ProxyTest, public ::testing::WithParamInterface<const char*> {};

// The proxy asks the ranks in turn: what it shows of two of them is of two moments.
TEST_F(ProxyTest, TheStatusSaysHowOldTheStateOfEachRankIs) {
  start();
  Json status;
  ASSERT_TRUE(eventually([&] {
    status = Json::parse(server().get("/lockstep/status"));
    return status["ranks"][0].is_object() && status["ranks"][1].is_object();
  }));
  for (const Json& rank : status["ranks"]) {
    EXPECT_GE(rank["age_s"].get<double>(), 0.0);
    EXPECT_LE(rank["age_s"].get<double>(), status["uptime_s"].get<double>() + 1);
  }
}

TEST_P(Leaving, IsNoticedWithTheRanks) {
  start();
  {
    HttpClient client = server().client();
    client.send(generate_text(GetParam()));
    ASSERT_TRUE(logged("\"event\":\"got\"", 2));
  }
  EXPECT_TRUE(logged("\"event\":\"cancelled\"", 2));
  EXPECT_TRUE(logged("\"outcome\":\"client_gone\""));
  EXPECT_EQ(server().ask(R"({"n":1})").status, 200);
  const Json counts = Json::parse(server().get("/lockstep/status"))["requests"];
  EXPECT_EQ(counts["taken"], 2);
  EXPECT_EQ(counts["finished"], 1);
  EXPECT_EQ(counts["cancelled"], 1);
}

INSTANTIATE_TEST_SUITE_P(Phases, Leaving, ::testing::Values(kEndless, kEndlessBody, kLongPrefill));

TEST_F(ProxyTest, LeavingTheQueueReachesNoRank) {
  start({"--slots=1"});
  HttpClient busy = server().client();
  busy.send(generate_text(kEndless));
  ASSERT_TRUE(busy.wait_for("\"i\":0"));
  {
    HttpClient client = server().client();
    client.send(generate_text(R"({"n":1})"));
    ASSERT_TRUE(
        eventually([&] { return Json::parse(server().get("/lockstep/status"))["queued"] == 1; }));
  }
  EXPECT_TRUE(logged("\"outcome\":\"client_gone\""));
  EXPECT_EQ(Json::parse(server().get("/lockstep/status"))["queued"], 0);
  EXPECT_EQ(count("\"event\":\"got\""), 2u);
}

TEST_F(ProxyTest, TimeOutsEndARequestWithAnAnswer) {
  start({"--timeout=0.3"});
  const HttpAnswer whole = server().ask(kEndlessBody);
  EXPECT_EQ(whole.status, 504);
  EXPECT_NE(whole.body.find("timeout_error"), std::string::npos);
  const HttpAnswer stream = server().ask(kEndless);
  EXPECT_EQ(stream.status, 200);
  ASSERT_GT(stream.events().size(), 1u);
  EXPECT_NE(stream.events().back().find("timeout_error"), std::string::npos);
  EXPECT_TRUE(logged("\"event\":\"cancelled\"", 4));
}

TEST_F(ProxyTest, ASlowReaderIsCancelled) {
  start({"--reader-buffer=64"});
  HttpClient client = server().client();
  client.shrink_receive_buffer();
  client.send(generate_text(R"({"stream":true,"n":1000000,"ms":0,"pad":4096})"));
  EXPECT_TRUE(logged("\"outcome\":\"slow_reader\""));
  EXPECT_TRUE(logged("\"event\":\"cancelled\"", 2));
}

TEST_F(ProxyTest, AReaderThatReadsNothingIsCutOff) {
  start({"--reader-buffer=1048576", "--reader-timeout=0.5"});
  HttpClient client = server().client();
  client.shrink_receive_buffer();
  client.send(generate_text(R"({"stream":true,"n":1000000,"ms":1,"pad":16384})"));
  EXPECT_TRUE(logged("\"outcome\":\"slow_reader\""));
  EXPECT_TRUE(logged("\"event\":\"cancelled\"", 2));
}

TEST_F(ProxyTest, SigtermLetsThoseWhoAreHereFinish) {
  start({"--slots=1"});
  HttpClient running = server().client();
  running.send(generate_text(R"({"stream":true,"n":200,"ms":2})"));
  ASSERT_TRUE(running.wait_for("\"i\":0"));
  HttpClient queued = server().client();
  queued.send(generate_text(R"({"n":3})"));
  ASSERT_TRUE(
      eventually([&] { return Json::parse(server().get("/lockstep/status"))["queued"] == 1; }));
  HttpClient idle = server().client();
  idle.request("GET", "/health");
  server().signal(SIGTERM);
  EXPECT_TRUE(idle.wait_for_close());
  EXPECT_EQ(running.receive().events().back(), "[DONE]");
  EXPECT_EQ(queued.receive().status, 200);
  EXPECT_EQ(server().wait_for_exit(), 0);
}

TEST_F(ProxyTest, ASecondSignalDoesNotWait) {
  start();
  HttpClient running = server().client();
  running.send(generate_text(kEndless));
  ASSERT_TRUE(running.wait_for("\"i\":0"));
  server().signal(SIGTERM);
  ASSERT_TRUE(logged("\"event\":\"drain\""));
  server().signal(SIGTERM);
  EXPECT_EQ(server().wait_for_exit(), 0);
  EXPECT_FALSE(running.receive().complete);
}

TEST_F(ProxyTest, ReadyMeansThatATokenComes) {
  start();
  const HttpAnswer ready = server().client().request("GET", "/ready");
  EXPECT_EQ(ready.status, 200) << ready.body;
  EXPECT_EQ(count("\"event\":\"got\""), 2u) << "the probe went to both ranks";
  EXPECT_EQ(server().client().request("GET", "/ready").status, 200);
  EXPECT_EQ(count("\"event\":\"got\""), 2u) << "a fresh answer needs no second probe";
}

TEST_F(ProxyTest, RequestsWaitForRanksThatAreStillLoading) {
  start({}, false);
  EXPECT_EQ(server().ask(R"({"n":1})").status, 200);
}

TEST_F(ProxyTest, ServesThePageAndMetrics) {
  start();
  EXPECT_NE(server().get("/").find("<title>Lockstep</title>"), std::string::npos);
  EXPECT_NE(server().get("/app.js").find("'use strict'"), std::string::npos);
  const HttpAnswer head = server().client().request("HEAD", "/", "", {{"Connection", "close"}});
  EXPECT_EQ(head.header("content-length"), std::to_string(server().get("/").size()));
  EXPECT_NE(server().get("/metrics").find("lockstep_proxy_ready 1\n"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::serve
