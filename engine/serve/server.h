// The whole server: front, queue, ranks, watchdog.
#pragma once

#include <string>

#include "engine/rank/run_flags.h"

namespace lockstep::serve {

struct ServeFlags {
  RunFlags run;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> allowed_hosts;
  bool open_to_anyone = false;
  std::string api_key_file;
  int queue = 64;
  double timeout_s = 600.0;
  double watchdog_s = 30.0;
  double drain_s = 60.0;
  double start_deadline_s = 600.0;
  int max_failures = 6;
  int max_connections = 500;
  int max_body_mib = 32;
  int body_budget_mib = 512;
  int reader_buffer_kib = 1024;
  double reader_timeout_s = 30.0;
  double header_timeout_s = 10.0;
  std::string halt_dir;
  std::string rank_program;  // empty: lockstep-rank beside this program
  std::string model_id;
  bool strict_model = false;
  bool log_prompts = false;
  std::string record;  // request log
};

// Serves until SIGTERM or SIGINT, or until the ranks cannot be kept running. Returns the exit code.
// Throws Error when the flags or the address cannot be used.
int run_server(const ServeFlags& flags);

}  // namespace lockstep::serve
