// Child processes (Boost.Process behind it).
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct ProcessResult {
  int exit_code = 0;       // 128 + signal when a signal ended it, as shells report it
  bool timed_out = false;  // killed at the deadline, with every descendant of its process group
  std::string stdout_text;
  std::string stderr_text;
};

// Runs `argv` (argv[0] is a path or a name on PATH) to its end and captures both outputs.
// Throws Error when it cannot be started.
ProcessResult run_process(const std::vector<std::string>& argv,
                          std::chrono::milliseconds timeout = std::chrono::minutes(10),
                          const std::map<std::string, std::string>& extra_environment = {});

// A child whose stdin, stdout and stderr are this process's own; it inherits no other file and ends
// with the thread that started it.
class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& argv,
                        const std::map<std::string, std::string>& extra_environment = {});

  // The same, but reads nothing from stdin, writes to these open descriptors (the caller closes its
  // own) and leads a process group of its own: a terminal's Ctrl-C does not reach it.
  struct Outputs {
    int stdout_fd;
    int stderr_fd;
  };
  ChildProcess(const std::vector<std::string>& argv,
               const std::map<std::string, std::string>& extra_environment, Outputs outputs);
  ~ChildProcess();  // kills (SIGKILL) and reaps what still runs
  ChildProcess(ChildProcess&&) noexcept;
  ChildProcess& operator=(ChildProcess&&) noexcept;

  int pid() const;
  bool running();
  // Exit code as in ProcessResult; blocks.
  int wait();
  void send_signal(int signal);  // nothing when the child has ended

 private:
  void end() noexcept;

  struct State;
  std::unique_ptr<State> state_;
};

// The program `name` that lies beside the running executable.
std::filesystem::path sibling_program(const std::string& name);

}  // namespace lockstep
