// One or two ranks of the golden model as servers, and a client that does to two what the proxy
// does: the same numbered request to both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep::testing {

struct RankAnswer {
  int status = 0;  // 0: no answer
  std::string body;
};

using Headers = std::map<std::string, std::string>;

class ServedRanks {
 public:
  // Starts the ranks with `flags` beside --model, --tp, --rank and --port; waits until they listen.
  explicit ServedRanks(int n_ranks, std::vector<std::string> flags = {},
                       const std::string& program = "lockstep-rank");
  // Ends what still runs; what a sanitizer said of a rank fails the test.
  ~ServedRanks();

  int n_ranks() const { return static_cast<int>(ranks_.size()); }
  int port(int rank = 0) const { return ranks_.at(static_cast<size_t>(rank)).port; }
  int pid(int rank = 0) const { return ranks_.at(static_cast<size_t>(rank)).child->pid(); }
  const std::filesystem::path& folder() const { return folder_.path(); }
  // What a rank has written so far.
  std::string log(int rank = 0) const;
  std::string round_log(int rank = 0) const;
  std::string listening_line(int rank = 0) const;

  int connect(int rank = 0) const;  // a socket, which the caller closes
  // A request to one rank as it is.
  RankAnswer get(const std::string& path, int rank = 0) const;
  RankAnswer post(const std::string& path, const std::string& body, const Headers& headers = {},
                  int rank = 0) const;

  // A numbered request to all ranks at once. Throws Error unless all answer the same bytes.
  RankAnswer ask(const std::string& path, const std::string& body);
  uint64_t take_number() { return next_number_++; }
  RankAnswer ask(const std::string& path, const std::string& body, uint64_t number) const;
  void cancel(uint64_t number, int rank) const;
  static Headers numbered(uint64_t number);

  // SIGTERM, and the exit code that follows.
  int end(int rank);
  // The exit code of a rank that ends by itself.
  int wait(int rank);

 private:
  struct Process {
    std::unique_ptr<ChildProcess> child;
    int output = -1;  // its stdout until it listens
    int port = 0;
    std::string line;
  };
  Process start(int rank, int n_ranks, int mailbox, const std::string& program,
                const std::vector<std::string>& flags) const;

  TempDir folder_;
  std::vector<Process> ranks_;
  uint64_t next_number_ = 1;
};

// A chat-completions body with one user's turn; `more` is added to the object ("\"seed\": 1").
std::string chat_body(const std::string& text, const std::string& more = "");

}  // namespace lockstep::testing
