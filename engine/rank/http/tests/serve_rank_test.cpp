// A rank as a server: control, cancels, errors, idleness, halts.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/rank/http/tests/served_ranks.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;
using testing::chat_body;
using testing::RankAnswer;
using testing::ServedRanks;

Json status_of(const ServedRanks& ranks, int rank = 0) {
  return Json::parse(ranks.get("/lockstep/status", rank).body);
}

// Waits until `wanted(status)`; a wait without end is the test's own time-out.
template <typename Wanted>
Json wait_for_status(const ServedRanks& ranks, Wanted wanted) {
  for (;;) {
    Json status = status_of(ranks);
    if (wanted(status)) return status;
    std::this_thread::sleep_for(2ms);
  }
}

const std::string kLong = chat_body(
    "count", R"("max_tokens": 20000, "ignore_eos": true, "temperature": 0, "stream": true)");

void expect_conserved(const Json& status) {
  const Json& pages = status["pages"];
  EXPECT_EQ(
      pages["capacity"].get<int64_t>(),
      pages["free"].get<int64_t>() + pages["held"].get<int64_t>() + pages["cached"].get<int64_t>());
}

TEST(ServeRank, SaysWhatItIs) {
  ServedRanks ranks(1, {"--max-context", "4096"});
  const Json line = Json::parse(ranks.listening_line());
  EXPECT_EQ(line["event"], "listening");
  EXPECT_EQ(line["max_context"], 4096);
  EXPECT_EQ(ranks.get("/health").status, 200);
  EXPECT_EQ(ranks.get("/ready").status, 200) << "a probe makes a token";
  const Json models = Json::parse(ranks.get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "tiny-qwen3_5");
  EXPECT_EQ(models["data"][0]["lockstep"]["checkpoint"], line["checkpoint"]);
  EXPECT_EQ(ranks.get("/v1/models/tiny-qwen3_5").status, 200);
  EXPECT_EQ(ranks.get("/v1/models/other").status, 404);
  EXPECT_NE(ranks.get("/metrics").body.find("lockstep_generated_tokens_total 1\n"),
            std::string::npos);
  EXPECT_EQ(ranks.get("/nothing").status, 404);
  const RankAnswer tokens = ranks.post("/tokenize", R"({"prompt": "def f(x):"})");
  const Json ids = Json::parse(tokens.body)["tokens"];
  const RankAnswer text = ranks.post("/detokenize", Json{{"tokens", ids}}.dump());
  EXPECT_EQ(Json::parse(text.body)["content"], "def f(x):");
  EXPECT_EQ(
      ranks
          .post("/v1/messages/count_tokens", R"({"messages": [{"role": "user", "content": "hi"}]})")
          .status,
      200);
}

TEST(ServeRank, RefusesMorePositionsThanTheModelHas) {
  const ProcessResult refused =
      run_process({LOCKSTEP_BIN_DIR "/lockstep-rank", "serve", "--tp", "1", "--model",
                   LOCKSTEP_GOLDEN_DIR "/tiny-qwen3_5", "--max-context", "32769"},
                  std::chrono::seconds(60));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.stderr_text.find("--max-context 32769: the model has 32768 positions"),
            std::string::npos)
      << refused.stderr_text;
}

TEST(ServeRank, ErrorsNameTheField) {
  ServedRanks ranks(1, {"--max-context", "256", "--strict-model", "--max-request-bytes", "100000"});
  const auto error = [&](const std::string& body) {
    const RankAnswer answer = ranks.post("/v1/chat/completions", body);
    return std::pair<int, Json>{answer.status, Json::parse(answer.body)["error"]};
  };
  const std::string model = R"("model": "tiny-qwen3_5")";
  EXPECT_EQ(error(chat_body("hi", model + R"(, "temperature": 9)")).second["param"], "temperature");
  EXPECT_EQ(error(chat_body("hi", R"("model": "other")")).first, 404);
  const Json biased = error(chat_body("hi", model + R"(, "logit_bias": {"99999999": 5})")).second;
  EXPECT_EQ(biased["param"], "logit_bias");
  EXPECT_NE(biased["message"].dump().find("names token 99999999; this model's tokens are 0 to "),
            std::string::npos)
      << biased;
  const auto [status, full] = error(chat_body(std::string(4000, 'x'), model));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(full["code"], "context_length_exceeded");
  EXPECT_EQ(error(chat_body("hi", model + R"(, "max_tokens": 250)")).second["code"],
            "context_length_exceeded");
  EXPECT_EQ(error(chat_body(std::string(200000, 'x'), model)).first, 413);
  EXPECT_EQ(error(std::string(100'000'000, '[')).first, 413);
  EXPECT_EQ(error("{\"messages\": \"\xff\"}").first, 400);
  EXPECT_EQ(error(R"({"model": "tiny-qwen3_5", "messages": [{"role": "user", "content":
      [{"type": "image_url", "image_url": {"url": "http://example.org/x.png"}}]}]})")
                .second["param"],
            "messages");
  EXPECT_EQ(ranks.get("/health").status, 200);
}

TEST(ServeRank, AKeyClosesItToOthers) {
  ::setenv("LOCKSTEP_RANK_KEY", "secret", 1);
  ServedRanks ranks(1);
  ::unsetenv("LOCKSTEP_RANK_KEY");
  EXPECT_EQ(ranks.get("/health").status, 403);
  const std::string body = chat_body("hi", R"("max_tokens": 2)");
  EXPECT_EQ(ranks.post("/v1/chat/completions", body, {{"Lockstep-Key", "secres"}}).status, 403);
  EXPECT_EQ(ranks.post("/v1/chat/completions", body, {{"Lockstep-Key", "secret"}}).status, 200);
}

TEST(ServeRank, AnswersDoNotDependOnTheOrderOfArrival) {
  std::vector<RankAnswer> answers[2];
  for (const bool reversed : {false, true}) {
    ServedRanks ranks(2);
    std::vector<RankAnswer>& mine = answers[reversed ? 1 : 0];
    mine.resize(4);
    std::vector<std::thread> clients;
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t number = reversed ? 4 - i : i + 1;
      clients.emplace_back([&, number] {
        const std::string body = chat_body("say " + std::to_string(number), R"("max_tokens": 12)");
        mine[number - 1] = ranks.ask("/v1/chat/completions", body, number);
      });
      std::this_thread::sleep_for(20ms);
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(ranks.round_log(0), ranks.round_log(1));
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answers[0][i].status, 200);
    EXPECT_EQ(answers[0][i].body, answers[1][i].body);
  }
}

TEST(ServeRank, ACancelOnOneRankEndsBothInTheSameRound) {
  ServedRanks ranks(2, {"--slots", "1"});
  const uint64_t running = ranks.take_number();
  const uint64_t queued = ranks.take_number();
  std::vector<RankAnswer> answers(2);
  std::thread first([&] { answers[0] = ranks.ask("/v1/chat/completions", kLong, running); });
  wait_for_status(ranks, [](const Json& s) { return !s["slots"].empty(); });
  std::thread second([&] { answers[1] = ranks.ask("/v1/chat/completions", kLong, queued); });
  wait_for_status(ranks, [](const Json& s) { return s["waiting"] == 1; });
  ranks.cancel(queued, 1);
  second.join();
  EXPECT_EQ(answers[1].status, 499);
  ranks.cancel(running, 0);
  first.join();
  EXPECT_EQ(answers[0].status, 0) << "a stream that has begun ends without a proper ending";
  EXPECT_EQ(ranks.ask("/v1/chat/completions", chat_body("hi", R"("max_tokens": 3)")).status, 200);
  EXPECT_EQ(ranks.round_log(0), ranks.round_log(1));
  for (const int rank : {0, 1}) {
    const Json status = status_of(ranks, rank);
    EXPECT_EQ(status["requests"]["cancelled"], 2);
    expect_conserved(status);
  }
}

TEST(ServeRank, ARequestThatReachesOneRankAloneIsVoidOnBoth) {
  ServedRanks ranks(2);
  const uint64_t lost = ranks.take_number();
  RankAnswer alone;
  std::thread one(
      [&] { alone = ranks.post("/v1/chat/completions", kLong, ServedRanks::numbered(lost), 1); });
  RankAnswer next;
  std::thread two(
      [&] { next = ranks.ask("/v1/chat/completions", chat_body("hi", R"("max_tokens": 3)")); });
  std::this_thread::sleep_for(50ms);
  const std::string body = Json{{"sequence", lost}}.dump();
  EXPECT_EQ(ranks.post("/lockstep/void", body, {}, 0).status, 200);
  EXPECT_EQ(ranks.post("/lockstep/void", body, {}, 1).status, 200);
  one.join();
  two.join();
  EXPECT_EQ(alone.status, 499);
  EXPECT_EQ(next.status, 200);
  EXPECT_EQ(ranks.round_log(0), ranks.round_log(1));
}

TEST(ServeRank, ARefusedRequestGivesItsNumberUpOnBothRanks) {
  ServedRanks ranks(2);
  EXPECT_EQ(ranks.ask("/v1/chat/completions", chat_body("hi", R"("temperature": 9)")).status, 400);
  EXPECT_EQ(ranks.ask("/nothing", "{}").status, 404);
  EXPECT_EQ(ranks.ask("/v1/chat/completions", "\xff").status, 400);
  EXPECT_EQ(ranks.ask("/tokenize", R"({"prompt": "x"})").status, 200);
  EXPECT_EQ(ranks.ask("/v1/chat/completions", chat_body("hi", R"("max_tokens": 3)")).status, 200);
  EXPECT_EQ(ranks.post("/v1/chat/completions", chat_body("hi")).status, 400)
      << "a rank of two takes numbered requests alone";
  EXPECT_EQ(ranks.get("/ready").status, 200);
}

// So that a proxy knows why no round comes.
TEST(ServeRank, SaysWhichRequestsItStillReads) {
  ServedRanks ranks(2);
  const std::string body = Json{{"prompt", std::string(size_t{4} << 20, 'a')}}.dump();
  const uint64_t number = ranks.take_number();
  RankAnswer answer;
  std::thread client([&] { answer = ranks.ask("/v1/completions", body, number); });
  wait_for_status(ranks, [&](const Json& s) { return s["preparing"] == Json{number}; });
  client.join();
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("context_length_exceeded"), std::string::npos) << answer.body;
  EXPECT_TRUE(status_of(ranks)["preparing"].empty());
}

TEST(ServeRank, IdleRanksRunNoRounds) {
  ServedRanks ranks(2);
  EXPECT_EQ(ranks.ask("/v1/chat/completions", chat_body("hi", R"("max_tokens": 3)")).status, 200);
  // The answer leaves before its last round is in the status.
  const Json before = wait_for_status(ranks, [](const Json& s) { return s["slots"].empty(); });
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(status_of(ranks)["round"], before["round"]);
  EXPECT_EQ(ranks.ask("/v1/chat/completions", chat_body("hi", R"("max_tokens": 3)")).status, 200);
}

// A flipped bit in one rank's sampled token: both halt in that round, and no byte of it is written.
TEST(ServeRank, ADifferenceHaltsBothAndLeavesTheLastRounds) {
  ServedRanks ranks(2, {"--mtp=0", "--fault=sampling.token-bit-flipped@rank=1,round=9"},
                    "lockstep-rank-faulty");
  const std::string body = chat_body("count", R"("max_tokens": 200, "ignore_eos": true)");
  const RankAnswer answer = ranks.ask("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 0) << "a halted rank answers nothing";
  for (const int rank : {0, 1}) {
    const pid_t pid = ranks.pid(rank);
    EXPECT_EQ(ranks.wait(rank), 70);
    EXPECT_NE(ranks.log(rank).find("TP2 LOCKSTEP FAILURE round 9 field token_hash"),
              std::string::npos)
        << ranks.log(rank);
    const Json halt =
        Json::parse(read_text_file(ranks.folder() / fmt::format("halt-{}-{}.json", rank, pid)));
    EXPECT_EQ(halt["exit_code"], 70);
    ASSERT_EQ(halt["rounds"].size(), 10u);
    const Json& last = halt["rounds"][9];
    EXPECT_EQ(last[0]["rows_digest"], last[1]["rows_digest"]);
    EXPECT_NE(last[0]["token_hash"], last[1]["token_hash"]);
    EXPECT_EQ(ranks.round_log(rank).find("round=9"), std::string::npos);
  }
}

// The lane that runs this under a sanitizer can go red: what is in a rank's log reaches the test.
TEST(ServeRank, AFindingInARankIsReported) {
  auto ranks = std::make_unique<ServedRanks>(1);
  EXPECT_EQ(ranks->get("/AddressSanitizer").status, 404);  // which the rank logs
  EXPECT_NONFATAL_FAILURE(ranks.reset(), "AddressSanitizer");
}

// The first requests of a process make what the HTTP library keeps for all.
TEST(ServeRank, ReadsItsFirstRequestsAtOnce) {
  const ServedRanks ranks(1);
  std::vector<int> sockets(6);
  for (int& fd : sockets) fd = ranks.connect();
  for (const char* part : {"GET /health HTTP/1.1\r\n", "Connection: close\r\n\r\n"}) {
    for (const int fd : sockets) ::send(fd, part, std::strlen(part), MSG_NOSIGNAL);
    std::this_thread::sleep_for(100ms);
  }
  for (const int fd : sockets) {
    std::string status(12, ' ');
    EXPECT_EQ(::recv(fd, status.data(), status.size(), MSG_WAITALL), 12);
    EXPECT_EQ(status, "HTTP/1.1 200");
    ::close(fd);
  }
}

TEST(ServeRank, AnOrphanDoesNotServe) {
  ServedRanks orphan(1, {fmt::format("--proxy-pid={}", ::getppid())});
  EXPECT_EQ(orphan.wait(0), 75);
  EXPECT_NE(orphan.log(0).find("has gone"), std::string::npos) << orphan.log(0);
  ServedRanks child(1, {fmt::format("--proxy-pid={}", ::getpid())});
  EXPECT_EQ(child.get("/health").status, 200);
}

}  // namespace
}  // namespace lockstep
