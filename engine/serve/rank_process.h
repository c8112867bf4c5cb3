// One rank as a child process: its output as lines, its end as an event.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/process.h"
#include "engine/serve/asio.h"

namespace lockstep::serve {

class RankProcess : public std::enable_shared_from_this<RankProcess> {
 public:
  struct Events {
    std::function<void(const std::string& line)> on_stdout;
    std::function<void(const std::string& line)> on_stderr;
    std::function<void(int exit_code)> on_exit;  // 128 + signal when a signal ended it
  };

  // Throws Error when it cannot be started. The rank ends with the calling thread.
  static std::shared_ptr<RankProcess> start(asio::io_context& io,
                                            const std::vector<std::string>& argv,
                                            const std::map<std::string, std::string>& environment,
                                            Events events);

  int pid() const { return child_.pid(); }
  std::optional<int> exit_code() const { return exit_code_; }
  void send_signal(int signal) { child_.send_signal(signal); }
  // Kills it at once when it still runs; no event comes afterwards.
  void end();

 private:
  struct Pipe;
  RankProcess(asio::io_context& io, Events events, ChildProcess child);
  static Task<> read_lines(std::shared_ptr<RankProcess> self, std::shared_ptr<Pipe> pipe,
                           std::function<void(const std::string&)> on_line);
  static Task<> watch_end(std::shared_ptr<RankProcess> self);

  asio::io_context& io_;
  Events events_;
  ChildProcess child_;
  std::shared_ptr<Pipe> stdout_;
  std::shared_ptr<Pipe> stderr_;
  int n_open_pipes_ = 2;
  Signal closed_;
  std::optional<int> exit_code_;
};

}  // namespace lockstep::serve
