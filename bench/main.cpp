// lockstep bench: how fast things are, always beside what the same machine could do in the same
// run.
#include <CLI/CLI.hpp>

#include "bench/commands.h"
#include "engine/base/cli.h"
#include "engine/base/error.h"

#ifndef LOCKSTEP_CUDA
namespace lockstep {
namespace {

// Says what a command that times cards lacks, whatever its flags.
void add_without_kernels(CLI::App& app, const std::string& name) {
  CLI::App* command = app.add_subcommand(name, "Times cards; this build has no kernels for them");
  command->allow_extras();
  command->callback([name] {
    fail_with(ExitCode::skipped,
              "{}: this build has no CUDA kernels: build with 'cmake --preset cuda'", name);
  });
}

}  // namespace
}  // namespace lockstep
#endif

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-bench", [&] {
    CLI::App app("How fast ops, engine and proxy are, beside what this machine could do",
                 "lockstep bench");
    app.require_subcommand(1);
    int exit_code = 0;
    lockstep::add_cpu_command(app, exit_code);
    lockstep::add_gate_command(app, exit_code);
#ifdef LOCKSTEP_CUDA
    lockstep::add_ops_command(app, exit_code);
    lockstep::add_round_command(app, exit_code);
    lockstep::add_transports_command(app, exit_code);
#else
    for (const char* name : {"ops", "round", "transports"}) {
      lockstep::add_without_kernels(app, name);
    }
#endif
    lockstep::add_proxy_command(app, exit_code);
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    return exit_code;
  });
}
