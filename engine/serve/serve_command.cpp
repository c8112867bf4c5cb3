#include "engine/serve/serve_command.h"

#include <CLI/CLI.hpp>

#include "engine/base/cli.h"
#include "engine/base/cli_checks.h"
#include "engine/serve/server.h"

namespace lockstep::serve {
namespace {

// Seconds that a flag may say; an end, so that messages can name it.
const CLI::Validator kSeconds = number_in(0.001, 1e6);

void add_address_options(CLI::App& app, ServeFlags& flags) {
  app.add_option("--host", flags.host, "IP address to listen on")->capture_default_str();
  app.add_option("--port", flags.port, "Port to listen on; 0 takes a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--api-key-file", flags.api_key_file,
                 "Keys, one a line; clients must show one (also: LOCKSTEP_API_KEY)");
  app.add_flag("--open-to-anyone", flags.open_to_anyone,
               "Listen on other than loopback addresses without a key");
  app.add_option("--allow-host", flags.allowed_hosts,
                 "Name in Host headers that is ours too, for servers without a key (repeatable)");
}

void add_limit_options(CLI::App& app, ServeFlags& flags) {
  app.add_option("--queue", flags.queue, "Requests that may wait")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout_s, "Seconds that a request may take, queue included")
      ->check(kSeconds)
      ->capture_default_str();
  app.add_option("--max-connections", flags.max_connections, "Open connections")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--max-body", flags.max_body_mib, "MiB of one request's body")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--body-budget", flags.body_budget_mib, "MiB of all requests' bodies together")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--reader-buffer", flags.reader_buffer_kib,
                 "KiB of a stream that its client may leave unread")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--reader-timeout", flags.reader_timeout_s,
                 "Seconds after which a client that reads nothing is cut off")
      ->check(kSeconds)
      ->capture_default_str();
  app.add_option("--header-timeout", flags.header_timeout_s,
                 "Seconds in which a request's header must arrive")
      ->check(kSeconds)
      ->capture_default_str();
}

void add_rank_options(CLI::App& app, ServeFlags& flags) {
  app.add_option("--watchdog", flags.watchdog_s,
                 "Seconds without progress after which the ranks are restarted")
      ->check(kSeconds)
      ->capture_default_str();
  app.add_option("--drain", flags.drain_s, "Seconds that requests get to finish after SIGTERM")
      ->check(number_in(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--start-deadline", flags.start_deadline_s, "Seconds that the ranks may load")
      ->check(kSeconds)
      ->capture_default_str();
  app.add_option("--max-failures", flags.max_failures,
                 "Failures of the ranks in a row after which to give up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--halt-dir", flags.halt_dir,
                 "Folder for records of halts, for 'lockstep postmortem' (default: in the "
                 "system's temporary folder)");
  app.add_option("--rank-program", flags.rank_program,
                 "Program of a rank (default: lockstep-rank beside this one)");
  app.add_option("--model-id", flags.model_id, "Name of the model (default: its folder's)");
  app.add_flag("--strict-model", flags.strict_model, "Refuse requests that name another model");
  app.add_option("--record", flags.record,
                 "Append every request to a log that 'lockstep replay' runs again");
  app.add_flag("--log-prompts", flags.log_prompts, "Log prompts and answers too");
}

}  // namespace

int serve_command(int argc, char** argv) {
  CLI::App app("Serve a model: two ranks in lockstep behind a proxy; OpenAI and Anthropic APIs");
  ServeFlags flags;
  add_run_options(app, flags.run);
  add_address_options(app, flags);
  add_limit_options(app, flags);
  add_rank_options(app, flags);
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  return run_server(flags);
}

}  // namespace lockstep::serve
