#include "engine/base/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/process.hpp>
#include <future>

#include "engine/base/error.h"

namespace lockstep {
namespace {

namespace bp = boost::process;

bp::environment environment_with(const std::map<std::string, std::string>& extra) {
  bp::native_environment native = boost::this_process::environment();
  bp::environment result(native);
  for (const auto& [name, value] : extra) result[name] = value;
  return result;
}

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

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, std::chrono::milliseconds timeout,
                          const std::map<std::string, std::string>& extra_environment) {
  LOCKSTEP_CHECK(!argv.empty());
  boost::asio::io_context context;
  std::future<std::string> out;
  std::future<std::string> err;
  ProcessResult result;
  try {
    bp::child child(executable_path(argv[0]), bp::args(arguments_of(argv)), bp::std_in.close(),
                    bp::std_out > out, bp::std_err > err, environment_with(extra_environment),
                    context);
    context.run_for(timeout);
    // The pipes may be closed while the child still runs, or the other way round.
    if (!context.stopped() || (child.running() && !child.wait_for(std::chrono::seconds(5)))) {
      result.timed_out = true;
      ::kill(child.id(), SIGKILL);
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
  try {
    state_->child = bp::child(executable_path(argv[0]), bp::args(arguments_of(argv)),
                              environment_with(extra_environment));
  } catch (const bp::process_error& error) {
    fail("cannot start {}: {}", argv[0], error.code().message());
  }
}

ChildProcess::~ChildProcess() {
  if (state_ == nullptr || !state_->child.valid()) return;
  std::error_code ignored;
  if (state_->child.running(ignored)) ::kill(state_->child.id(), SIGKILL);
  state_->child.wait(ignored);
}

ChildProcess::ChildProcess(ChildProcess&&) noexcept = default;
ChildProcess& ChildProcess::operator=(ChildProcess&&) noexcept = default;

int ChildProcess::pid() const { return state_->child.id(); }

bool ChildProcess::running() { return state_->child.running(); }

int ChildProcess::wait() {
  state_->child.wait();
  return shell_exit_code(state_->child);
}

void ChildProcess::send_signal(int signal) { ::kill(state_->child.id(), signal); }

std::filesystem::path sibling_program(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) fail("cannot find the folder of this program: {}", error.message());
  return self.parent_path() / name;
}

}  // namespace lockstep
