#include "engine/serve/rank_pair.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include "engine/base/error.h"
#include "engine/comm/mailbox.h"
#include "engine/serve/event_log.h"
#include "engine/serve/rank_lines.h"
#include "engine/serve/secrets.h"

namespace lockstep::serve {
namespace {

using std::chrono::milliseconds;

constexpr size_t kKeptLines = 20;
constexpr size_t kKeptHalts = 32;
constexpr milliseconds kGrace{300};           // for a rank that halts by itself to do so
constexpr milliseconds kRecordTime{1000};     // for one that is asked for its record
constexpr std::chrono::seconds kEndTime{10};  // of a process whose end has begun
constexpr std::chrono::seconds kGoodLife{60};

std::string exit_text(int code) {
  if (code > 128) return fmt::format("was killed by signal {}", code - 128);
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::lockstep_failure:
      return "halted: lockstep failure (70)";
    case ExitCode::device_error:
      return "ended with a device error (74)";
    case ExitCode::peer_lost:
      return "lost its peer (75)";
    case ExitCode::deadline:
      return "ran into its deadline (76)";
    default:
      return fmt::format("ended with exit code {}", code);
  }
}

// Which of two exits says more about the cause.
int weight(int code) {
  if (code == static_cast<int>(ExitCode::lockstep_failure)) return 4;
  if (code > 128) return 3;
  return code == static_cast<int>(ExitCode::peer_lost) ? 1 : 2;
}

}  // namespace

const char* state_name(RankPair::State state) {
  switch (state) {
    case RankPair::State::starting:
      return "starting";
    case RankPair::State::ready:
      return "ready";
    case RankPair::State::restarting:
      return "restarting";
    case RankPair::State::stopped:
      return "stopped";
  }
  return "";
}

RankPair::RankPair(asio::io_context& io, RankPairOptions options, Events events)
    : io_(io), options_(std::move(options)), events_(std::move(events)), changed_(io) {}

const std::string& RankPair::listening_line(int rank) const {
  static const std::string kNone;
  return static_cast<size_t>(rank) < ranks_.size()
             ? ranks_[static_cast<size_t>(rank)].listening_line
             : kNone;
}

void RankPair::start_ranks() {
  ++n_starts_;
  suspicion_.reset();
  patience_ = kGrace;
  if (mailbox_fd_ >= 0) ::close(mailbox_fd_);
  mailbox_fd_ = options_.n_ranks > 1 ? create_mailbox_file() : -1;
  folder_ = make_halt_folder(options_.halt_dir, n_starts_);
  key_ = random_hex(16);
  ranks_.assign(static_cast<size_t>(options_.n_ranks), {});
  for (int rank = 0; rank < options_.n_ranks; ++rank) {
    std::vector<std::string> argv = {options_.program};
    argv.insert(argv.end(), options_.arguments.begin(), options_.arguments.end());
    argv.insert(argv.end(),
                {fmt::format("--rank={}", rank), fmt::format("--proxy-pid={}", ::getpid()),
                 "--port=0", "--halt-dir=" + folder_.string()});
    if (mailbox_fd_ >= 0) {
      argv.push_back(fmt::format("--mailbox=/proc/{}/fd/{}", ::getpid(), mailbox_fd_));
    }
    Rank& entry = ranks_[static_cast<size_t>(rank)];
    const int start = n_starts_;
    RankProcess::Events events;
    events.on_stdout = [this, rank, start](const std::string& line) {
      if (start == n_starts_) take_stdout(rank, line);
    };
    events.on_stderr = [this, rank, start](const std::string& line) {
      log_rank_line(rank, options_.log_filter ? options_.log_filter(rank, line) : line);
      if (start != n_starts_) return;
      std::deque<std::string>& lines = ranks_[static_cast<size_t>(rank)].last_lines;
      lines.push_back(line);
      if (lines.size() > kKeptLines) lines.pop_front();
    };
    events.on_exit = [this, rank, start](int code) {
      if (start != n_starts_) return;
      ranks_[static_cast<size_t>(rank)].exit_code = code;
      changed_.notify();
    };
    entry.process = RankProcess::start(io_, argv, {{"LOCKSTEP_RANK_KEY", key_}}, events);
    log_event("rank_started", {{"rank", int64_t{rank}},
                               {"pid", int64_t{entry.process->pid()}},
                               {"start", int64_t{n_starts_}}});
  }
}

void RankPair::take_stdout(int rank, const std::string& line) {
  Rank& entry = ranks_[static_cast<size_t>(rank)];
  log_rank_line(rank, line);  // with the digests of what it serves
  const std::optional<uint16_t> port = listening_port(line);
  if (!port) return;
  entry.last_lines.clear();  // what it planned explains no end
  entry.port = port;
  entry.listening_line = line;
  changed_.notify();
}

bool RankPair::any_ended() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.exit_code.has_value(); });
}

bool RankPair::all_ended(int but) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (static_cast<int>(i) != but && ranks_[i].process && !ranks_[i].exit_code) return false;
  }
  return true;
}

bool RankPair::all_listen() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.port.has_value(); });
}

void RankPair::suspect(int rank, std::string reason, bool may_be_ending) {
  if (state_ != State::ready || suspicion_) return;
  suspicion_.emplace();
  suspicion_->rank = rank;
  suspicion_->reason = std::move(reason);
  patience_ = may_be_ending ? kGrace : Clock::duration::zero();
  changed_.notify();
}

// One start, until a rank ends, is suspected, or the server stops.
Task<> RankPair::live() {
  start_ranks();
  const Clock::time_point deadline = Clock::now() + options_.start_deadline;
  while (!stopping_ && !any_ended() && !all_listen() && Clock::now() < deadline) {
    co_await changed_.wait_until(deadline);
  }
  if (stopping_ || any_ended()) co_return;
  if (!all_listen()) {
    suspicion_.emplace();
    suspicion_->reason = "the ranks did not come up before the start deadline";
    co_return;
  }
  auto endpoints = std::make_shared<RankEndpoints>();
  for (const Rank& rank : ranks_) endpoints->ports.push_back(*rank.port);
  endpoints->key = key_;
  state_ = State::ready;
  was_ready_ = true;
  log_event("ready", {{"start", int64_t{n_starts_}}});
  events_.on_ready(endpoints);
  while (!stopping_ && !any_ended() && !suspicion_) co_await changed_.wait();
}

// Waits until the ranks have ended; not for rank `but`, nor longer than `patience`.
Task<> RankPair::wait_for_ends(Clock::duration patience, int but) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (!all_ended(but) && Clock::now() < deadline) co_await changed_.wait_until(deadline);
}

void RankPair::signal_ranks(int signal) {
  for (Rank& rank : ranks_) {
    if (!rank.process || rank.exit_code) continue;
    rank.was_ended = true;
    rank.process->send_signal(signal);
  }
}

void RankPair::kill_ranks() {
  for (Rank& rank : ranks_) {
    if (rank.process && !rank.exit_code) rank.process->end();
  }
}

bool RankPair::any_says_why_it_ends() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.process && !rank.exit_code &&
           !telling_line({rank.last_lines.begin(), rank.last_lines.end()}).empty();
  });
}

// Ranks that end by themselves have the first word; the others are asked for their last rounds. The
// one that is suspected may not hear that. A process with a card takes its time to end, long after
// its connections have gone, and only then the card's memory is free for the next start.
Task<> RankPair::halt_ranks() {
  co_await wait_for_ends(patience_, -1);
  const Clock::time_point deadline = Clock::now() + kEndTime;
  while (any_says_why_it_ends() && Clock::now() < deadline) co_await changed_.wait_until(deadline);
  signal_ranks(SIGQUIT);
  co_await wait_for_ends(kRecordTime, suspicion_ ? suspicion_->rank : -1);
  signal_ranks(SIGKILL);
  co_await wait_for_ends(kEndTime, -1);
  kill_ranks();
}

Halt RankPair::explain() const {
  Halt halt;
  if (suspicion_) halt = *suspicion_;
  halt.unix_time_s = static_cast<int64_t>(std::time(nullptr));
  halt.folder = folder_;
  int heaviest = 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.exit_code || rank.was_ended || weight(*rank.exit_code) <= heaviest) continue;
    heaviest = weight(*rank.exit_code);
    halt.rank = static_cast<int>(i);
    halt.exit_code = *rank.exit_code;
    const std::string said = telling_line({rank.last_lines.begin(), rank.last_lines.end()});
    halt.reason = fmt::format("rank {} {}{}{}", i, exit_text(*rank.exit_code),
                              said.empty() ? "" : ": ", said);
  }
  return halt;
}

Task<> RankPair::back_off() {
  if (n_failures_ < 2) co_return;
  const milliseconds delay =
      std::min(milliseconds(250) * (1 << std::min(n_failures_ - 2, 10)), milliseconds(10000));
  log_event("back_off", {{"failures", int64_t{n_failures_}}, {"ms", int64_t{delay.count()}}});
  const Clock::time_point end = Clock::now() + delay;
  while (!stopping_ && Clock::now() < end) co_await changed_.wait_until(end);
}

Task<> RankPair::run() {
  while (!stopping_) {
    const Clock::time_point begin = Clock::now();
    co_await live();
    if (stopping_) break;
    state_ = State::restarting;
    if (Clock::now() - begin > kGoodLife && was_ready_) n_failures_ = 0;
    ++n_failures_;
    const std::string requests = events_.on_failure(explain().reason, folder_);
    co_await halt_ranks();
    Halt halt = explain();
    halt.requests = requests;
    halts_.push_back(halt);
    if (halts_.size() > kKeptHalts) halts_.pop_front();
    write_halt_summary(halt, options_.engine_arguments);
    log_event("halt", {{"start", int64_t{n_starts_}},
                       {"rank", int64_t{halt.rank}},
                       {"exit_code", int64_t{halt.exit_code}},
                       {"reason", halt.reason},
                       {"requests", halt.requests},
                       {"folder", halt.folder.string()}});
    if (!was_ready_ || n_failures_ >= options_.max_failures) {
      last_word_ = halt;
      break;
    }
    co_await back_off();
  }
  signal_ranks(SIGTERM);
  co_await wait_for_ends(std::chrono::seconds(2), -1);
  kill_ranks();
  remove_if_empty(folder_);
  state_ = State::stopped;
}

void RankPair::stop() {
  stopping_ = true;
  changed_.notify();
}

}  // namespace lockstep::serve
