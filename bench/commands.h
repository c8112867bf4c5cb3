// The subcommands of lockstep-bench.
#pragma once

namespace CLI {
class App;
}

namespace lockstep {

// Each adds its command to `app`; when it is chosen, it runs during parsing and sets `exit_code`.
void add_cpu_command(CLI::App& app, int& exit_code);
void add_gate_command(CLI::App& app, int& exit_code);
void add_ops_command(CLI::App& app, int& exit_code);    // builds with LOCKSTEP_CUDA
void add_round_command(CLI::App& app, int& exit_code);  // the same
void add_proxy_command(CLI::App& app, int& exit_code);
void add_transports_command(CLI::App& app, int& exit_code);  // builds with LOCKSTEP_CUDA

}  // namespace lockstep
