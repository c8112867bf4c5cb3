// Many requests, clients that leave at random: nothing is lost, nothing grows, nothing changes.
#include <fmt/core.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "engine/serve/tests/serving_test_support.h"

namespace lockstep::serve {
namespace {

constexpr int kKinds = 24;  // different requests

int64_t resident_kib(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

int open_files(int pid) {
  const std::filesystem::directory_iterator files(fmt::format("/proc/{}/fd", pid));
  return static_cast<int>(std::distance(begin(files), end(files)));
}

struct Resources {
  int64_t kib = 0;
  int files = 0;
};

class Soak : public Serving {
 protected:
  std::vector<Resources> resources() {
    std::vector<Resources> all;
    for (const int pid : {server().pid(), server().rank_pid(0), server().rank_pid(1)}) {
      all.push_back({resident_kib(pid), open_files(pid)});
    }
    return all;
  }

  Json status() { return Json::parse(server().get("/lockstep/status")); }

  // One request; every third client leaves somewhere on the way.
  void one(uint64_t number) {
    const int kind = static_cast<int>(number * 7 % kKinds);
    const bool stream = number % 2 == 0;
    Json body = request(kind, 8 + kind % 9);
    if (number % 3 != 0) {
      EXPECT_EQ(text_of(ask(body, stream), stream), expected_[static_cast<size_t>(kind)]) << kind;
      return;
    }
    ++n_leaving_;
    body["stream"] = stream;
    body["max_tokens"] = 200;
    HttpClient client("127.0.0.1", server().port());
    client.send(HttpClient::request_text("POST", "/v1/completions", body.dump()));
    const uint64_t chance = number * 2654435761u % 1000;
    if (stream && chance < 500) {
      client.wait_for("data: ");
    } else {
      ::usleep(static_cast<useconds_t>(chance * 40));
    }
  }

  std::vector<std::string> expected_;
  std::atomic<int> n_leaving_{0};
};

TEST_F(Soak, NothingIsLostNothingGrowsNothingChanges) {
  const int n = requests_from_environment(60);
  start({"--queue=16"});
  for (int kind = 0; kind < kKinds; ++kind) {
    expected_.push_back(text_of(ask(request(kind, 8 + kind % 9), false), false));
  }
  std::vector<Resources> before;
  for (int done = 0; done < n;) {
    // 1 to 4 clients in turn; measured after a tenth, when caches and pools have their size.
    for (int n_clients = 1; n_clients <= 4 && done < n; ++n_clients) {
      const int batch = std::min(n - done, std::max(4, n / 40));
      std::atomic<int> next{done};
      std::vector<std::thread> clients;
      for (int c = 0; c < n_clients; ++c) {
        clients.emplace_back([&, end = done + batch] {
          for (int i; (i = next++) < end;) one(static_cast<uint64_t>(i));
        });
      }
      for (std::thread& client : clients) client.join();
      done += batch;
      if (before.empty() && done * 10 >= n) before = resources();
    }
  }
  ASSERT_TRUE(eventually([&] { return status()["in_flight"].empty(); }));
  const Json end = status();
  const Json& counts = end["requests"];
  EXPECT_EQ(counts["taken"].get<int>(), kKinds + n);
  EXPECT_EQ(counts["taken"].get<int>(),
            counts["finished"].get<int>() + counts["cancelled"].get<int>());
  EXPECT_GT(counts["cancelled"].get<int>(), 0);
  EXPECT_LE(counts["cancelled"].get<int>(), n_leaving_);
  EXPECT_TRUE(end["halts"].empty()) << end["halts"].dump();
  ASSERT_TRUE(eventually([&] {
    const Json now = status();
    return now["ranks"][0]["round"] == now["ranks"][1]["round"] && now["ranks"][0]["slots"].empty();
  }));
  const Json idle = status();
  for (const Json& rank : idle["ranks"]) {
    const Json& pages = rank["pages"];
    EXPECT_EQ(pages["capacity"].get<int>(),
              pages["free"].get<int>() + pages["held"].get<int>() + pages["cached"].get<int>());
    EXPECT_EQ(pages["held"], 0) << "no request is left, none may hold a page";
  }
  const std::vector<Resources> after = resources();
  const char* names[] = {"proxy", "rank 0", "rank 1"};
  for (size_t i = 0; i < after.size(); ++i) {
    fmt::print("{}: {} -> {} KiB, {} -> {} files\n", names[i], before[i].kib, after[i].kib,
               before[i].files, after[i].files);
    EXPECT_LE(after[i].files, before[i].files + 2) << names[i];
    EXPECT_LE(after[i].kib, before[i].kib + before[i].kib / 5 + 8192) << names[i];
  }
}

}  // namespace
}  // namespace lockstep::serve
