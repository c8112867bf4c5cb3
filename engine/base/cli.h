// What every program's main does around its own work.
#pragma once

#include <functional>
#include <optional>

namespace CLI {
class App;
}

namespace lockstep {

// Runs `body` and turns an Error into one line on stderr ("PROGRAM: message") and its exit code;
// any other exception becomes exit 1 the same way. So does a success whose standard output could
// not be written. Ignores SIGPIPE: a closed pipe is an error, not a death.
int run_main(const char* program, const std::function<int()>& body);

// Reads the command line into `app`. An exit code when the program ends here: 0 after --help, usage
// after one line on what is wrong.
std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv);

// True when stdout is a terminal that takes colours (and NO_COLOR is not set).
bool stdout_has_colour();
bool stderr_is_terminal();

}  // namespace lockstep
