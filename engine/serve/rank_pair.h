// Starts the ranks (two, or one with --tp 1), restarts them when one fails, and gives up when that
// does not help.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/serve/asio.h"
#include "engine/serve/halt_folder.h"
#include "engine/serve/rank_http.h"
#include "engine/serve/rank_process.h"

namespace lockstep::serve {

struct RankPairOptions {
  std::string program;                        // of a rank
  std::vector<std::string> arguments;         // of every rank, from `serve` on
  std::vector<std::string> engine_arguments;  // for 'lockstep generate', from any folder
  int n_ranks = 2;
  std::filesystem::path halt_dir;  // each start gets a folder in it
  // Sees each line of a rank's log and returns what of it the server's own log gets.
  std::function<std::string(int rank, const std::string& line)> log_filter;
  Clock::duration start_deadline = std::chrono::minutes(10);
  int max_failures = 6;  // in a row, without one finished request between them
};

class RankPair {
 public:
  enum class State : uint8_t { starting, ready, restarting, stopped };

  struct Events {
    std::function<void(std::shared_ptr<const RankEndpoints>)> on_ready;
    // The ranks of this start are lost; the reason is one line. Returns the requests that were in
    // flight.
    std::function<std::string(const std::string& reason, const std::filesystem::path& folder)>
        on_failure;
  };

  RankPair(asio::io_context& io, RankPairOptions options, Events events);

  // Until stop() or until it gives up; the ranks have ended then.
  Task<> run();
  void stop();

  // Something is wrong with the running ranks, as seen from outside. `rank` (-1: unknown) is named
  // unless one of them ends by itself and so explains it; it gets a moment to do so when
  // `may_be_ending`.
  void suspect(int rank, std::string reason, bool may_be_ending);
  // A request ended properly: the ranks of this start work.
  void work_done() { n_failures_ = 0; }

  State state() const { return state_; }
  int n_starts() const { return n_starts_; }
  const std::deque<Halt>& halts() const { return halts_; }
  const std::string& listening_line(int rank) const;
  // Why it gave up; nothing after stop().
  const std::optional<Halt>& last_word() const { return last_word_; }

 private:
  struct Rank {
    std::shared_ptr<RankProcess> process;
    std::optional<uint16_t> port;
    std::string listening_line;
    std::optional<int> exit_code;
    bool was_ended = false;              // by us: its exit code explains nothing
    std::deque<std::string> last_lines;  // of stderr
  };

  void start_ranks();
  void take_stdout(int rank, const std::string& line);
  bool any_ended() const;
  bool any_says_why_it_ends() const;
  bool all_listen() const;
  bool all_ended(int but) const;
  Task<> live();
  Task<> wait_for_ends(Clock::duration patience, int but);
  void signal_ranks(int signal);
  void kill_ranks();
  Task<> halt_ranks();
  Halt explain() const;
  Task<> back_off();

  asio::io_context& io_;
  const RankPairOptions options_;
  const Events events_;
  Signal changed_;
  State state_ = State::starting;
  bool stopping_ = false;
  std::vector<Rank> ranks_;
  std::filesystem::path folder_;  // of this start's halt records
  std::string key_;
  std::optional<Halt> suspicion_;
  Clock::duration patience_{};  // with ranks that may end by themselves
  int mailbox_fd_ = -1;
  int n_starts_ = 0;
  int n_failures_ = 0;
  bool was_ready_ = false;
  std::deque<Halt> halts_;
  std::optional<Halt> last_word_;
};

const char* state_name(RankPair::State state);

}  // namespace lockstep::serve
