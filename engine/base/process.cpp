#include "engine/base/process.h"

#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/process.hpp>
#include <boost/process/extend.hpp>
#include <boost/process/posix.hpp>
#include <future>
#include <string_view>
#include <thread>

#include "engine/base/error.h"

namespace lockstep {
namespace {

namespace bp = boost::process;
using Clock = std::chrono::steady_clock;

// What a child sees: this process's environment, with `extra` in place of what has the same name.
// Not Boost's: its search for a name reads past the end of shorter entries.
class ChildEnvironment {
 public:
  explicit ChildEnvironment(const std::map<std::string, std::string>& extra) {
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      if (extra.count(std::string(text.substr(0, text.find('=')))) == 0)
        entries_.emplace_back(text);
    }
    for (const auto& [name, value] : extra) entries_.push_back(name + "=" + value);
    for (std::string& entry : entries_) pointers_.push_back(entry.data());
    pointers_.push_back(nullptr);
  }
  ChildEnvironment(const ChildEnvironment&) = delete;
  ChildEnvironment& operator=(const ChildEnvironment&) = delete;

  // For a child that starts while this object lives.
  auto setup() {
    return bp::extend::on_setup([this](auto& executor) { executor.env = pointers_.data(); });
  }

 private:
  std::vector<std::string> entries_;
  std::vector<char*> pointers_;  // into entries_
};

std::string executable_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const auto found = bp::search_path(program);
  if (found.empty()) fail("cannot start {}: not found on PATH", program);
  return found.string();
}

std::vector<std::string> arguments_of(const std::vector<std::string>& argv) {
  return {argv.begin() + 1, argv.end()};
}

int shell_exit_code(bp::child& child) {
  const int status = child.native_exit_code();
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : status;
}

// Runs in the child between fork and exec. run_main ignores SIGPIPE and exec would hand that on.
// Open files stay behind: a long-lived child that held the pipe of another one would keep it from
// ending.
const auto kCleanStart = bp::extend::on_exec_setup([](auto&) {
  ::signal(SIGPIPE, SIG_DFL);
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
});

// A captured child leads a group of its own, so that a time-out ends its descendants too; it dies
// with the thread that waits for it, because the terminal's Ctrl-C no longer reaches it.
const auto kOwnGroup = bp::extend::on_exec_setup([](auto&) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
});

// A rank without the program that started it has nobody to answer to.
const auto kEndsWithParent =
    bp::extend::on_exec_setup([](auto&) { ::prctl(PR_SET_PDEATHSIG, SIGKILL); });

// Boost's own wait with a time limit takes over SIGCHLD of the whole process: poll instead.
bool ended_before(bp::child& child, Clock::time_point deadline) {
  while (child.running()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                          const std::map<std::string, std::string>& extra_environment) {
  LOCKSTEP_CHECK(!argv.empty());
  const Clock::time_point deadline = Clock::now() + timeout;
  boost::asio::io_context context;
  std::future<std::string> out;
  std::future<std::string> err;
  ProcessResult result;
  ChildEnvironment environment(extra_environment);
  try {
    bp::child child(executable_path(argv[0]), bp::args(arguments_of(argv)), bp::std_in.close(),
                    bp::std_out > out, bp::std_err > err, environment.setup(), kCleanStart,
                    kOwnGroup, context);
    context.run_until(deadline);
    // The pipes may be closed while the child still runs, or the other way round.
    if (!context.stopped() || !ended_before(child, deadline)) {
      result.timed_out = true;
      ::kill(-child.id(), SIGKILL);
      context.run_for(std::chrono::seconds(5));
    }
    child.wait();
    result.exit_code = shell_exit_code(child);
  } catch (const bp::process_error& error) {
    fail("cannot start {}: {}", argv[0], error.code().message());
  }
  const auto text_of = [](std::future<std::string>& text) {
    const bool ready = text.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    return ready ? text.get() : std::string();
  };
  result.stdout_text = text_of(out);
  result.stderr_text = text_of(err);
  return result;
}

struct ChildProcess::State {
  bp::child child;
};

ChildProcess::ChildProcess(const std::vector<std::string>& argv,
                           const std::map<std::string, std::string>& extra_environment)
    : state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(!argv.empty());
  ChildEnvironment environment(extra_environment);
  try {
    state_->child = bp::child(executable_path(argv[0]), bp::args(arguments_of(argv)),
                              environment.setup(), kCleanStart, kEndsWithParent);
  } catch (const bp::process_error& error) {
    fail("cannot start {}: {}", argv[0], error.code().message());
  }
}

ChildProcess::ChildProcess(const std::vector<std::string>& argv,
                           const std::map<std::string, std::string>& extra_environment,
                           Outputs outputs)
    : state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(!argv.empty());
  ChildEnvironment environment(extra_environment);
  try {
    state_->child = bp::child(executable_path(argv[0]), bp::args(arguments_of(argv)),
                              bp::std_in < bp::null, bp::posix::fd.bind(1, outputs.stdout_fd),
                              bp::posix::fd.bind(2, outputs.stderr_fd), environment.setup(),
                              kCleanStart, kOwnGroup);
  } catch (const bp::process_error& error) {
    fail("cannot start {}: {}", argv[0], error.code().message());
  }
}

ChildProcess::~ChildProcess() {
  end();
}

ChildProcess::ChildProcess(ChildProcess&&) noexcept = default;

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  end();
  state_ = std::move(other.state_);
  return *this;
}

void ChildProcess::end() noexcept {
  if (state_ == nullptr || !state_->child.valid()) return;
  std::error_code ignored;
  if (state_->child.running(ignored)) ::kill(state_->child.id(), SIGKILL);
  state_->child.wait(ignored);
}

int ChildProcess::pid() const {
  return state_->child.id();
}

bool ChildProcess::running() {
  return state_->child.running();
}

int ChildProcess::wait() {
  state_->child.wait();
  return shell_exit_code(state_->child);
}

void ChildProcess::send_signal(int signal) {
  // A child that was reaped has given its id back to the system.
  if (state_->child.running()) ::kill(state_->child.id(), signal);
}

std::filesystem::path sibling_program(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) fail("cannot find the folder of this program: {}", error.message());
  return self.parent_path() / name;
}

}  // namespace lockstep
