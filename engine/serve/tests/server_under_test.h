// A server that a test runs: lockstep-serve with fake ranks, or with real ones.
#pragma once

#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/listening_process.h"
#include "engine/serve/http_client.h"

namespace lockstep::serve {

// Waits until `condition` holds. The bound is for a test that would otherwise hang.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds bound = kPatience) {
  const auto end = std::chrono::steady_clock::now() + bound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::usleep(2000);
  }
  return true;
}

class ServerUnderTest {
 public:
  // Starts it; with `wait` returns once it is ready, else once it listens. Throws Error with its
  // log when it ends instead.
  ServerUnderTest(const std::string& program, std::vector<std::string> flags, bool wait = true);
  ~ServerUnderTest();

  uint16_t port() const { return server_->port(); }
  HttpClient client() const { return HttpClient("127.0.0.1", port()); }
  HttpAnswer ask(const std::string& body, const std::string& target = "/v1/completions") const;
  std::string get(const std::string& target) const;  // the body

  std::string log() const { return server_->log(); }  // stderr so far
  std::vector<std::string> log_lines(const std::string& with) const;
  int rank_pid(int rank) const;  // of the last start
  // Of the proxy or of a rank.
  std::vector<std::string> sanitizer_reports() const;
  int pid() const { return server_->process().pid(); }
  bool running() const { return server_->process().running(); }
  void signal(int signal) const { server_->process().send_signal(signal); }
  int wait_for_exit() const { return server_->process().wait(); }
  std::string halt_dir() const { return (folder_.path() / "halts").string(); }

 private:
  TempDir folder_;
  std::unique_ptr<ListeningProcess> server_;
};

}  // namespace lockstep::serve
