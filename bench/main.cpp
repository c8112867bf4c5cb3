// lockstep bench: how fast things are, always beside what the same machine could do in the same
// run.
#include <CLI/CLI.hpp>

#include "bench/commands.h"
#include "engine/base/cli.h"

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-bench", [&] {
    CLI::App app("Benchmarks");
    app.require_subcommand(1);
    int exit_code = 0;
    lockstep::add_cpu_command(app, exit_code);
    lockstep::add_gate_command(app, exit_code);
#ifdef LOCKSTEP_CUDA
    lockstep::add_ops_command(app, exit_code);
    lockstep::add_round_command(app, exit_code);
    lockstep::add_transports_command(app, exit_code);
#endif
    lockstep::add_proxy_command(app, exit_code);
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    return exit_code;
  });
}
