#include <CLI/CLI.hpp>

#include "engine/apps/weights/commands.h"
#include "engine/base/cli.h"

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-weights", [&] {
    CLI::App app("Look into, cut, check, join, convert and make checkpoints");
    app.name("lockstep weights");
    app.require_subcommand(1);
    lockstep::CommandBody run;
    lockstep::add_inspect_command(app, run);
    lockstep::add_shard_command(app, run);
    lockstep::add_verify_command(app, run);
    lockstep::add_join_command(app, run);
    lockstep::add_convert_command(app, run);
    lockstep::add_synth_command(app, run);
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    return run();
  });
}
