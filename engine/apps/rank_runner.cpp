#include "engine/apps/rank_runner.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "engine/comm/mailbox.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> rank_command(const RunFlags& flags, const fs::path& jobs,
                                      const fs::path& out_dir, int rank, int mailbox_fd) {
  const char* program = flags.fault.empty() ? "lockstep-rank" : "lockstep-rank-faulty";
  std::vector<std::string> argv = {sibling_program(program).string(), "--jobs=" + jobs.string(),
                                   "--out=" + out_dir.string(), "--rank=" + std::to_string(rank)};
  for (std::string& argument : run_arguments(flags)) argv.push_back(std::move(argument));
  if (mailbox_fd >= 0)
    argv.push_back(fmt::format("--mailbox=/proc/{}/fd/{}", ::getpid(), mailbox_fd));
  return argv;
}

// What to do about a rank that ended so.
const char* remedy_for(int signal) {
  if (signal == SIGKILL) {
    return "the system does that when memory is short (see dmesg): use a smaller --max-context or "
           "fewer --slots";
  }
  const bool asked = signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
  return asked ? "somebody ended it: run it again"
               : "run it again, and report it with what stands above when it comes back";
}

// A rank that a signal ended left no word of its own.
[[noreturn]] void fail_for_killed_rank(size_t rank, int signal) {
  fail_with(ExitCode::peer_lost, "rank {} was killed by signal {} ({}): {}", rank, signal,
            ::strsignal(signal), remedy_for(signal));
}

// Waits for all ranks. When one fails, the others get a moment to say why and are then killed; the
// exit code is that of the first that failed.
int wait_for_ranks(std::vector<ChildProcess>& ranks) {
  using Clock = std::chrono::steady_clock;
  constexpr int kFirstSignalCode = 128;  // see ProcessResult::exit_code
  std::vector<bool> done(ranks.size(), false);
  int exit_code = 0;
  std::optional<std::pair<size_t, int>> killed;  // a rank and its signal
  Clock::time_point give_up = Clock::time_point::max();
  for (size_t n_done = 0; n_done < ranks.size();) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (done[i] || ranks[i].running()) continue;
      done[i] = true;
      ++n_done;
      const int code = ranks[i].wait();
      if (code > kFirstSignalCode && !killed) killed.emplace(i, code - kFirstSignalCode);
      if (code != 0 && exit_code == 0) {
        exit_code = code;
        give_up = Clock::now() + std::chrono::seconds(2);
      }
    }
    if (Clock::now() > give_up) {
      ranks.clear();  // kills what still runs
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  // The other one may have been seen first, with no more to say than that its peer is gone.
  if (killed) fail_for_killed_rank(killed->first, killed->second);
  return exit_code;
}

}  // namespace

int run_ranks(const RunFlags& flags, const fs::path& jobs, const fs::path& out_dir) {
  const int mailbox_fd = flags.n_ranks > 1 ? create_mailbox_file() : -1;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < flags.n_ranks; ++rank) {
    ranks.emplace_back(rank_command(flags, jobs, out_dir, rank, mailbox_fd));
  }
  return wait_for_ranks(ranks);
}

}  // namespace lockstep
