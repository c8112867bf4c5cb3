// The subcommands of lockstep weights. Each adds itself to the program and leaves its work in
// `run`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

using CommandBody = std::function<int()>;  // returns the exit code

void add_convert_command(CLI::App& app, CommandBody& run);
void add_inspect_command(CLI::App& app, CommandBody& run);
void add_join_command(CLI::App& app, CommandBody& run);
void add_shard_command(CLI::App& app, CommandBody& run);
void add_synth_command(CLI::App& app, CommandBody& run);
void add_verify_command(CLI::App& app, CommandBody& run);

}  // namespace lockstep
