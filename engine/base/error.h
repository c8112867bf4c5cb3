// The two kinds of failure that code can meet.
//
// Operating errors (bad file, bad flag, peer gone) are `Error`: one line that names the thing and
// the remedy. They are thrown where they are found and caught once, in `run_main`
// (engine/base/cli.h). Programmer errors are LOCKSTEP_CHECK: they abort with the location, also in
// release builds.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

// Exit codes of every program. 0 to 4 and 77 are for callers, 70 to 76 are for the supervisor of
// ranks.
enum class ExitCode : int {
  pass = 0,
  fail = 1,
  usage = 2,
  could_not_judge = 3,
  mistrusted = 4,
  lockstep_failure = 70,
  device_error = 74,
  peer_lost = 75,
  deadline = 76,
  skipped = 77,
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::fail)
      : std::runtime_error(message), code_(code) {}

  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Throws Error with a formatted message and exit code 1.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_with(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), code);
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace lockstep

#define LOCKSTEP_CHECK(condition)                               \
  do {                                                          \
    if (!(condition)) {                                         \
      ::lockstep::check_failed(#condition, __FILE__, __LINE__); \
    }                                                           \
  } while (false)
