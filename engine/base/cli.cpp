#include "engine/base/cli.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"

namespace lockstep {

namespace {

// A write that failed on the way has left its mark, whatever became of the bytes behind it.
void finish_stdout() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return;
  fail("standard output: {}", errno != 0 ? std::strerror(errno) : "could not be written");
}

}  // namespace

int run_main(const char* program, const std::function<int()>& body) {
  ::signal(SIGPIPE, SIG_IGN);
  try {
    const int code = body();
    if (code == 0) finish_stdout();
    return code;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: out of memory: use a smaller --max-context or fewer --slots\n",
               program);
    return static_cast<int>(ExitCode::fail);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, json_problem(error));
    return static_cast<int>(ExitCode::fail);
  }
}

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  // One line, with the program's name in it whoever it was started by.
  app.failure_message([argv](const CLI::App*, const CLI::Error& error) {
    const std::string program = std::filesystem::path(argv[0]).filename();
    return fmt::format("{}: {}; see {} --help\n", program, error.what(), program);
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  return std::nullopt;
}

bool stdout_has_colour() {
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string(term) == "dumb";
  return ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr && !dumb;
}

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) != 0;
}

}  // namespace lockstep
