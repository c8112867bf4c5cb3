#include "engine/serve/server.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "engine/rank/request_log.h"
#include "engine/serve/dispatcher.h"
#include "engine/serve/event_log.h"
#include "engine/serve/front.h"
#include "engine/serve/halt_folder.h"
#include "engine/serve/own_pages.h"
#include "engine/serve/rank_pair.h"
#include "engine/serve/rank_watch.h"
#include "engine/serve/recorder.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;

Clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

bool is_loopback(const std::string& host) {
  ErrorCode error;
  const auto address = asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

fs::path halt_dir_of(const ServeFlags& flags) {
  if (!flags.halt_dir.empty()) return flags.halt_dir;
  return fs::temp_directory_path() / fmt::format("lockstep-halts-{}", ::getuid());
}

// An existing path from any folder, and where a link led at the time; anything else as it is: a
// synthetic model, a number of vocabulary rows.
std::string from_anywhere(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return path;
  const fs::path whole = fs::weakly_canonical(path, error);
  return error ? path : whole.string();
}

// Those of 'lockstep generate' that run the same engine later, for a postmortem.
std::vector<std::string> engine_arguments(RunFlags flags) {
  const bool rows = flags.draft_vocab.find_first_not_of("0123456789") == std::string::npos;
  flags.model_dir = from_anywhere(flags.model_dir);
  flags.shards_dir = from_anywhere(flags.shards_dir);
  if (!rows) flags.draft_vocab = from_anywhere(flags.draft_vocab);
  return run_arguments(flags);
}

RankPairOptions pair_options(const ServeFlags& flags, Recorder* recorder) {
  RankPairOptions options;
  if (recorder != nullptr) {
    options.log_filter = [recorder](int rank, const std::string& line) {
      return recorder->take(rank, line);
    };
  }
  const char* program = flags.run.fault.empty() ? "lockstep-rank" : "lockstep-rank-faulty";
  options.program =
      flags.rank_program.empty() ? sibling_program(program).string() : flags.rank_program;
  options.engine_arguments = engine_arguments(flags.run);
  options.arguments = run_arguments(flags.run);
  options.arguments.insert(options.arguments.begin(), "serve");
  if (!flags.model_id.empty()) options.arguments.push_back("--model-id=" + flags.model_id);
  if (flags.strict_model) options.arguments.push_back("--strict-model");
  if (recorder != nullptr) options.arguments.push_back("--log-jobs");
  if (flags.log_prompts) options.arguments.push_back("--log-prompts");
  options.arguments.push_back(
      fmt::format("--max-request-bytes={}", int64_t{flags.max_body_mib} << 20));
  options.n_ranks = flags.run.n_ranks;
  options.halt_dir = halt_dir_of(flags);
  options.start_deadline = seconds_of(flags.start_deadline_s);
  options.max_failures = flags.max_failures;
  return options;
}

DispatcherOptions dispatcher_options(const ServeFlags& flags) {
  DispatcherOptions options;
  options.n_ranks = flags.run.n_ranks;
  options.n_slots = flags.run.n_slots;
  options.max_queue = static_cast<size_t>(flags.queue);
  options.timeout = seconds_of(flags.timeout_s);
  options.reader_buffer_bytes = static_cast<size_t>(flags.reader_buffer_kib) << 10;
  options.cancel_deadline = seconds_of(flags.watchdog_s);
  return options;
}

FrontOptions front_options(const ServeFlags& flags) {
  FrontOptions options;
  options.host = flags.host;
  options.port = static_cast<uint16_t>(flags.port);
  options.allowed_hosts = flags.allowed_hosts;
  options.max_connections = static_cast<size_t>(flags.max_connections);
  options.max_body_bytes = static_cast<uint64_t>(flags.max_body_mib) << 20;
  options.body_budget_bytes = static_cast<uint64_t>(flags.body_budget_mib) << 20;
  options.header_timeout = seconds_of(flags.header_timeout_s);
  options.reader_timeout = seconds_of(flags.reader_timeout_s);
  return options;
}

class Server {
 public:
  Server(const ServeFlags& flags, ApiKeys keys)
      : flags_(flags),
        keys_(std::move(keys)),
        recorder_(flags.record.empty()
                      ? nullptr
                      : std::make_unique<Recorder>(flags.record, request_log_header(flags.run))),
        dispatcher_(io_, dispatcher_options(flags), dispatcher_events()),
        pair_(io_, pair_options(flags, recorder_.get()), pair_events()),
        watch_(io_, dispatcher_, seconds_of(flags.watchdog_s), flags.run.n_ranks,
               [this](int rank, std::string reason) {
                 log_event("watchdog", {{"rank", int64_t{rank}}, {"reason", reason}});
                 pair_.suspect(rank, std::move(reason), false);
               }),
        pages_(io_, flags, dispatcher_, pair_, watch_),
        front_(io_, front_options(flags), keys_, dispatcher_, pages_.pages()),
        signals_(io_, SIGTERM, SIGINT),
        idle_(io_) {
    pages_.set_front(front_);
  }

  int run() {
    const uint16_t port = front_.open();
    announce("listening", port);
    spawn(io_, keep_ranks());
    spawn(io_, obey_signals());
    io_.run();
    const auto& last = pair_.last_word();
    if (!last) return 0;
    const std::string reason =
        pair_.n_starts() == 1
            ? last->reason
            : fmt::format("gave up after {} failures of the ranks in a row; the last one: {}",
                          flags_.max_failures, last->reason);
    throw Error(reason, last->exit_code > 0 && last->exit_code < 128
                            ? static_cast<ExitCode>(last->exit_code)
                            : ExitCode::fail);
  }

 private:
  Dispatcher::Events dispatcher_events() {
    Dispatcher::Events events;
    events.on_trouble = [this](int rank, std::string reason, bool may_be_ending) {
      pair_.suspect(rank, std::move(reason), may_be_ending);
    };
    events.on_work_done = [this] { pair_.work_done(); };
    events.on_idle = [this] { idle_.notify(); };
    return events;
  }

  RankPair::Events pair_events() {
    RankPair::Events events;
    events.on_ready = [this](std::shared_ptr<const RankEndpoints> endpoints) {
      if (pair_.n_starts() == 1) announce("ready", 0);
      dispatcher_.ranks_ready(std::move(endpoints));
      watch_.watch();
    };
    events.on_failure = [this](const std::string& reason, const fs::path& folder) {
      std::vector<HaltedRequest> halted;
      for (const auto& exchange : dispatcher_.in_flight()) {
        halted.push_back({exchange->id, exchange->sequence, exchange->phase, exchange->seed,
                          exchange->unix_time_s, exchange->request});
      }
      write_halt_requests(folder, halted);
      return dispatcher_.ranks_failed(reason);
    };
    return events;
  }

  // For whoever started us: a line of JSON, or of words on a terminal.
  void announce(const char* event, uint16_t port) {
    if (port != 0) port_ = port;
    if (::isatty(STDOUT_FILENO) == 0) {
      fmt::print("{{\"event\":\"{}\",\"host\":\"{}\",\"port\":{}}}\n", event, flags_.host, port_);
    } else if (port != 0) {
      fmt::print("Loading {}; page and API at http://{}:{}/\n", flags_.run.model_dir, flags_.host,
                 port_);
    } else {
      fmt::print("Ready.\n");
    }
    std::fflush(stdout);
  }

  Task<> keep_ranks() {
    co_await pair_.run();
    front_.close();
    if (pair_.last_word()) {
      dispatcher_.refuse_queued("the engine cannot be kept running");
      co_await sleep_for(io_, std::chrono::milliseconds(200));
    }
    io_.stop();
  }

  // The first signal lets those who are here finish, the second does not.
  Task<> obey_signals() {
    ErrorCode error;
    const int signal = co_await signals_.async_wait(into(error));
    log_event("drain", {{"signal", int64_t{signal}},
                        {"queued", static_cast<int64_t>(dispatcher_.queued().size())},
                        {"in_flight", static_cast<int64_t>(dispatcher_.in_flight().size())}});
    dispatcher_.close();
    front_.close();
    signals_.async_wait([this](ErrorCode again, int) {
      if (!again) hurry_ = true;
      idle_.notify();
    });
    const Clock::time_point deadline = Clock::now() + seconds_of(flags_.drain_s);
    const auto done = [this] {
      return dispatcher_.in_flight().empty() && dispatcher_.queued().empty() &&
             front_.n_sessions() == 0;
    };
    while (!done() && !hurry_ && Clock::now() < deadline) {
      const Clock::time_point look = Clock::now() + std::chrono::milliseconds(20);
      co_await idle_.wait_until(std::min(deadline, look));
    }
    log_event("stop", {{"drained", done()}});
    pair_.stop();
  }

  const ServeFlags flags_;
  const ApiKeys keys_;
  const std::unique_ptr<Recorder> recorder_;  // null without --record
  asio::io_context io_{1};
  Dispatcher dispatcher_;
  RankPair pair_;
  RankWatch watch_;
  OwnPages pages_;
  Front front_;
  asio::signal_set signals_;
  Signal idle_;
  bool hurry_ = false;
  uint16_t port_ = 0;
};

}  // namespace

int run_server(const ServeFlags& flags) {
  refuse_request_flags(flags.run);
  ApiKeys keys = ApiKeys::load(flags.api_key_file);
  ::unsetenv("LOCKSTEP_API_KEY");  // no business of the ranks
  if (!is_loopback(flags.host) && !keys.required()) {
    if (!flags.open_to_anyone) {
      fail_with(ExitCode::usage,
                "--host {}: other machines could use this server without a key; give "
                "--api-key-file FILE, or --open-to-anyone if that is meant",
                flags.host);
    }
    log_event("warning", {{"text", std::string("no API key: everyone who reaches this address may "
                                               "use the server")}});
  }
  reclaim_halt_folders(halt_dir_of(flags));
  return Server(flags, std::move(keys)).run();
}

}  // namespace lockstep::serve
