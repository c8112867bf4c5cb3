#include "engine/rank/http/serve_rank.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/rank/http/halt_dump.h"
#include "engine/rank/http/outside.h"
#include "engine/rank/http/rank_service.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct ServeFlags {
  RunFlags run;
  std::string mailbox;
  std::string host = "127.0.0.1";
  std::string model_id;
  std::string halt_dir;
  std::string round_log;
  int rank = 0;
  int proxy_pid = 0;  // 0: whoever starts it
  int port = 0;
  int64_t max_body_bytes = int64_t{64} << 20;
  bool strict_model = false;
  bool log_prompts = false;
  bool log_jobs = false;
};

void add_options(CLI::App& app, ServeFlags& flags) {
  add_run_options(app, flags.run);
  app.add_option("--rank", flags.rank, "This rank")->check(CLI::Range(0, 1));
  app.add_option("--mailbox", flags.mailbox, "Mailbox file that joins two ranks");
  app.add_option("--proxy-pid", flags.proxy_pid, "Process that must be this rank's parent")
      ->check(CLI::PositiveNumber);
  app.add_option("--host", flags.host, "Address to listen on")->capture_default_str();
  app.add_option("--port", flags.port, "Port to listen on; 0 takes a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--model-id", flags.model_id, "Name of the model (default: its folder's)");
  app.add_flag("--strict-model", flags.strict_model, "Refuse requests that name another model");
  app.add_option("--max-request-bytes", flags.max_body_bytes, "Largest body of a request")
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--halt-dir", flags.halt_dir, "Folder for the last rounds when this rank halts");
  app.add_option("--round-log", flags.round_log, "File that gets a line a round");
  app.add_flag("--log-prompts", flags.log_prompts, "Log prompts and answers too");
  app.add_flag("--log-jobs", flags.log_jobs, "Log the job that runs each request again");
}

// A rank of a proxy ends with it. An orphan has another parent, which need not be process 1: and
// the proxy may be that, in a container.
void end_with_parent(int proxy_pid) {
  const pid_t parent = proxy_pid > 0 ? proxy_pid : ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    fail_with(ExitCode::peer_lost, "the process that started this rank has gone");
  }
}

std::string folder_name(const std::string& model_dir) {
  fs::path path = fs::path(model_dir).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const std::string name = path.filename().string();
  return name.empty() || name == "." ? fs::absolute(path).parent_path().filename().string() : name;
}

std::string model_name(const ServeFlags& flags) {
  return flags.model_id.empty() ? folder_name(flags.run.model_dir) : flags.model_id;
}

// Flags that decide which requests are refused, and what answers hold.
std::vector<std::pair<std::string, std::string>> serving_facts(const ServeFlags& flags) {
  return {{"--model-id", model_name(flags)},
          {"--strict-model", flags.strict_model ? "on" : "off"},
          {"--max-request-bytes", std::to_string(flags.max_body_bytes)}};
}

ServedModel describe(const ServeFlags& flags, const LoadedRank& loaded, const RankEngine& engine) {
  ServedModel model;
  model.id = model_name(flags);
  model.strict = flags.strict_model;
  model.rank = flags.rank;
  model.n_ranks = flags.run.n_ranks;
  model.max_context = engine.max_context();
  model.n_slots = flags.run.n_slots;
  model.created_unix_s = unix_time_now_s();
  model.build_digest = loaded.build_digest;
  model.checkpoint_digest = loaded.checkpoint_digest;
  model.shard_digests = loaded.agreed.shard_digests;
  if (loaded.transport != nullptr) model.transport = loaded.transport->name();
  return model;
}

void announce(const ServedModel& model, int port) {
  nlohmann::ordered_json line = {{"event", "listening"},
                                 {"port", port},
                                 {"rank", model.rank},
                                 {"ranks", model.n_ranks},
                                 {"model", model.id},
                                 {"build", model.build_digest},
                                 {"checkpoint", model.checkpoint_digest},
                                 {"shard", model.shard_digests.at(static_cast<size_t>(model.rank))},
                                 {"max_context", model.max_context},
                                 {"slots", model.n_slots}};
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  std::fflush(stdout);
}

// Signals that end the program go to one thread, which stops the server in order.
sigset_t block_end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGQUIT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int serve(const char* program, const ServeFlags& flags) {
  refuse_request_flags(flags.run);
  const sigset_t end_signals = block_end_signals();
  const char* key = std::getenv("LOCKSTEP_RANK_KEY");
  const bool has_proxy = key != nullptr || !flags.mailbox.empty() || flags.proxy_pid > 0;
  if (has_proxy) end_with_parent(flags.proxy_pid);
  LoadedRank loaded(flags.run, flags.rank, flags.mailbox, serving_facts(flags));
  RankEngine engine(loaded.source.config, loaded.weights, loaded.engine_options(), *loaded.comm,
                    loaded.pool);
  const ServedModel model = describe(flags, loaded, engine);
  EventLog log(flags.rank, flags.log_prompts, flags.log_jobs);
  const HaltDump halt{program, flags.halt_dir, flags.rank};
  Scheduler scheduler(
      engine, *loaded.comm,
      [&halt](const Error& error, const std::deque<RecordedRound>& rounds) {
        halt.end_process(error, rounds);
      },
      flags.round_log);
  const RankService service(loaded, engine, scheduler, model, log, key == nullptr ? "" : key);
  HttpLimits limits;
  limits.max_body_bytes = static_cast<size_t>(flags.max_body_bytes);
  HttpServer server(limits, [&service](const HttpRequest& request, int status) {
    return service.handle(request, status);
  });
  const int port = server.bind(flags.host, flags.port);
  std::thread rounds([&scheduler] { scheduler.run(); });
  std::thread ender([&] {
    int signal = 0;
    ::sigwait(&end_signals, &signal);
    if (signal == SIGQUIT) {  // also from a proxy to a rank whose rounds have stopped
      halt.end_process(Error("ended by SIGQUIT", ExitCode::deadline), scheduler.last_rounds());
    }
    if (has_proxy) ::_exit(0);  // the proxy has drained it
    server.stop();
  });
  announce(model, port);
  server.serve();
  scheduler.stop();
  rounds.join();
  ender.join();
  return 0;
}

}  // namespace

int serve_rank_main(const char* program, int argc, char** argv) {
  return run_main(program, [&] {
    CLI::App app("One rank as an HTTP server; with --tp 1 a complete server");
    ServeFlags flags;
    flags.run.n_ranks = 1;
    add_options(app, flags);
    if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
    return serve(program, flags);
  });
}

}  // namespace lockstep
