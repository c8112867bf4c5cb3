// Many requests with random ends: cancelled while they wait, read or write, or left by their
// client on one rank alone. Pages are conserved, memory is flat, no descriptor leaks, and what is
// answered is what an unloaded rank answers. LOCKSTEP_SOAK_REQUESTS says how many (the long lane
// asks for more).
#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/base/philox.h"
#include "engine/rank/http/tests/served_ranks.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;
using testing::chat_body;
using testing::RankAnswer;
using testing::ServedRanks;

constexpr int kKinds = 10;
constexpr int kClients = 4;
constexpr int64_t kMiB = int64_t{1} << 20;

std::string request_body(int kind) {
  std::string text = "Write line " + std::to_string(kind) + ". ";
  for (int i = 0; i < kind % 4; ++i) text += std::string(400, 'a' + static_cast<char>(i)) + "\n";
  return chat_body(text, "\"seed\": " + std::to_string(kind) + ", \"max_tokens\": " +
                             std::to_string(6 + 5 * kind) + ", \"ignore_eos\": true" +
                             (kind % 2 == 0 ? "" : ", \"stream\": true"));
}

// What does not depend on numbers or the cache.
std::string essence(const std::string& body) {
  if (body.empty()) return "";
  if (body.front() == '{') return Json::parse(body)["choices"][0].dump();
  std::string text;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("data: {", 0) != 0) continue;
    const Json choice = Json::parse(line.substr(6))["choices"][0];
    text += choice["delta"].value("reasoning_content", "") + choice["delta"].value("content", "");
    if (choice["finish_reason"].is_string()) text += choice["finish_reason"].get<std::string>();
  }
  return text;
}

int64_t resident_bytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int64_t open_descriptors(pid_t pid) {
  return std::distance(std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd"),
                       {});
}

// Leaves rank `rank` after the first bytes, or before any; the other rank is read to its end.
void ask_and_leave(const ServedRanks& ranks, const std::string& body, uint64_t number, int rank) {
  std::thread other(
      [&] { ranks.post("/v1/chat/completions", body, ServedRanks::numbered(number), 1 - rank); });
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.body = body;
  for (const auto& [name, value] : ServedRanks::numbered(number)) {
    request.headers.emplace(name, value);
  }
  request.content_receiver = [](const char*, size_t, uint64_t, uint64_t) { return false; };
  {
    // Its end closes the connection.
    httplib::Client client("127.0.0.1", ranks.port(rank));
    client.set_read_timeout(0, number % 3 == 0 ? 1000 : 200'000);
    client.send(request);
  }
  other.join();
}

struct Soak {
  ServedRanks ranks{2, {"--slots", "2", "--max-context", "2048"}};
  std::vector<std::string> unloaded;
  std::atomic<uint64_t> n_answered{0};
  std::atomic<uint64_t> n_wrong{0};

  void one(uint64_t number) {
    PhiloxStream random(number, 9);
    const int kind = static_cast<int>(random.next_below(kKinds));
    const std::string body = request_body(kind);
    const uint32_t fate = random.next_below(10);
    if (fate == 0) return ask_and_leave(ranks, body, number, static_cast<int>(number % 2));
    std::thread canceller;
    if (fate <= 3) {
      canceller = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(random.next_below(150)));
        ranks.cancel(number, static_cast<int>(number % 2));
      });
    }
    const RankAnswer answer = ranks.ask("/v1/chat/completions", body, number);
    if (canceller.joinable()) canceller.join();
    if (answer.status != 200) return;
    ++n_answered;
    if (essence(answer.body) != unloaded[static_cast<size_t>(kind)]) ++n_wrong;
  }

  // `count` numbers from `first`, from several clients.
  void run(uint64_t first, uint64_t count) {
    std::atomic<uint64_t> next{first};
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&] {
        for (uint64_t number = next++; number < first + count; number = next++) one(number);
      });
    }
    for (std::thread& client : clients) client.join();
  }

  Json idle_status(int rank) {
    for (;;) {
      Json status = Json::parse(ranks.get("/lockstep/status", rank).body);
      if (status["slots"].empty() && status["waiting"] == 0) return status;
      std::this_thread::sleep_for(5ms);
    }
  }
};

TEST(Soak, ConservesPagesMemoryAndAnswers) {
  const char* asked = std::getenv("LOCKSTEP_SOAK_REQUESTS");
  const uint64_t count = asked == nullptr ? 60 : std::strtoull(asked, nullptr, 10);
  Soak soak;
  for (int kind = 0; kind < kKinds; ++kind) {
    const RankAnswer answer =
        soak.ranks.ask("/v1/chat/completions", request_body(kind), soak.ranks.take_number());
    ASSERT_EQ(answer.status, 200) << answer.body;
    soak.unloaded.push_back(essence(answer.body));
  }
  const uint64_t half = count / 2;
  soak.run(kKinds + 1, half);
  int64_t resident[2];
  int64_t descriptors[2];
  for (const int rank : {0, 1}) {
    soak.idle_status(rank);
    resident[rank] = resident_bytes(soak.ranks.pid(rank));
    descriptors[rank] = open_descriptors(soak.ranks.pid(rank));
  }
  soak.run(kKinds + 1 + half, count - half);
  for (const int rank : {0, 1}) {
    const Json status = soak.idle_status(rank);
    const Json& pages = status["pages"];
    EXPECT_EQ(pages["held"], 0);
    EXPECT_EQ(pages["free"].get<int64_t>() + pages["cached"].get<int64_t>(),
              pages["capacity"].get<int64_t>());
    EXPECT_GT(status["requests"]["cancelled"], 0);
    const int64_t grown = resident_bytes(soak.ranks.pid(rank)) - resident[rank];
    EXPECT_LT(grown, 16 * kMiB);
    // Connections that the clients left are closed within moments.
    for (int i = 0; i < 400 && open_descriptors(soak.ranks.pid(rank)) > descriptors[rank]; ++i) {
      std::this_thread::sleep_for(5ms);
    }
    EXPECT_LE(open_descriptors(soak.ranks.pid(rank)), descriptors[rank] + 2);
    std::printf("rank %d: %lld MiB resident, %+lld KiB in the second half, %lld descriptors\n",
                rank, static_cast<long long>(resident_bytes(soak.ranks.pid(rank)) / kMiB),
                static_cast<long long>(grown / 1024),
                static_cast<long long>(open_descriptors(soak.ranks.pid(rank))));
  }
  EXPECT_GT(soak.n_answered, count / 3);
  EXPECT_EQ(soak.n_wrong, 0u);
  EXPECT_EQ(soak.ranks.round_log(0), soak.ranks.round_log(1));
}

}  // namespace
}  // namespace lockstep
