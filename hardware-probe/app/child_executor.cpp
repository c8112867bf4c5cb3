#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "engine/base/error.h"
#include "hardware-probe/app/real_run.h"
#include "hardware-probe/observe/json_fields.h"
#include "hardware-probe/real/real_backend.h"

namespace lockstep::probe {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StepSpec, check, gpu, peer, n_gpus, mode, nonce,
                                                deadline_s)

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = size_t{256} << 20;

void write_line(const Json& message) {
  const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDOUT_FILENO, line.data() + done, line.size() - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

Json message_of(const Observations& seen, const std::string& outcome, const std::string& detail) {
  return {{"outcome", outcome}, {"detail", detail}, {"seen", seen}};
}

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  }
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) ::close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() {
    ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2];
};

pid_t start_child(const std::string& specification, const Pipe& pipe) {
  const pid_t child = ::fork();
  if (child < 0) fail("cannot start a child process: {}", std::strerror(errno));
  if (child > 0) return child;
  // Its own group: Ctrl-C stops the plan, not the measurement in flight.
  ::setpgid(0, 0);
  ::dup2(pipe.writer(), STDOUT_FILENO);
  const char* argv[] = {"lockstep-probe", "--step", specification.c_str(), nullptr};
  ::execv("/proc/self/exe", const_cast<char* const*>(argv));
  ::_exit(127);
}

// Everything that the child wrote until it ended, or until the deadline; true when in time.
bool read_until(int reader, double deadline_s, const std::function<bool()>& interrupted,
                std::string& text) {
  const auto end = Clock::now() + std::chrono::duration<double>(deadline_s);
  char buffer[65536];
  while (text.size() < kMostOutput && !interrupted()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd watched{reader, POLLIN, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    const ssize_t n = ::read(reader, buffer, sizeof(buffer));
    if (n == 0) return true;
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
  }
  return false;
}

// A process that waits for a dead card cannot be killed at once; it must not hold up the run.
int reap(pid_t child, bool kill_it) {
  if (kill_it) ::kill(child, SIGKILL);
  int status = 0;
  for (int i = 0; i < 50; ++i) {
    const pid_t done = ::waitpid(child, &status, kill_it ? WNOHANG : 0);
    if (done == child || done < 0) return status;
    ::usleep(100000);
  }
  return -1;
}

std::string last_line(const std::string& text) {
  const size_t end = text.rfind('\n');
  if (end == std::string::npos) return "";
  const size_t start = text.rfind('\n', end == 0 ? 0 : end - 1);
  return start == std::string::npos || start == end ? text.substr(0, end)
                                                    : text.substr(start + 1, end - start - 1);
}

// The cards of this step that the driver has lost.
std::vector<int> lost_cards(Backend& backend, const StepSpec& spec) {
  std::vector<int> involved, lost;
  for (int gpu = 0; gpu < spec.n_gpus; ++gpu) {
    const bool all = spec.gpu < 0;
    if (all || gpu == spec.gpu || gpu == spec.peer) involved.push_back(gpu);
  }
  for (const int gpu : involved) {
    try {
      backend.sample(gpu);
    } catch (const DeviceLost&) {
      lost.push_back(gpu);
    } catch (const Error&) {
      // No answer is no proof of a loss.
    }
  }
  return lost;
}

class ChildExecutor final : public StepExecutor {
 public:
  explicit ChildExecutor(std::function<bool()> interrupted)
      : interrupted_(std::move(interrupted)) {}

  StepOutcome execute(const StepSpec& spec) override {
    const auto start = Clock::now();
    Pipe pipe;
    const pid_t child = start_child(Json(spec).dump(), pipe);
    pipe.close_writer();
    std::string text;
    const bool in_time = read_until(pipe.reader(), spec.deadline_s, interrupted_, text);
    const int status = reap(child, !in_time);
    StepOutcome out = read_result(text);
    if (interrupted_()) {
      out.outcome = "interrupted";
    } else if (!in_time) {
      out.outcome = "deadline";
      out.detail = fmt::format("no end within {:.0f} s", spec.deadline_s);
    } else if (out.outcome.empty() || out.outcome == "running") {
      out.outcome = "failed";
      out.detail = WIFSIGNALED(status)
                       ? fmt::format("the child died of signal {}", WTERMSIG(status))
                       : fmt::format("the child ended with exit code {}", WEXITSTATUS(status));
    }
    out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return out;
  }

 private:
  static StepOutcome read_result(const std::string& text) {
    StepOutcome out;
    const std::string line = last_line(text);
    if (line.empty()) return out;
    try {
      const Json message = Json::parse(line);
      out.outcome = message.at("outcome").get<std::string>();
      out.detail = message.at("detail").get<std::string>();
      out.seen = message.at("seen").get<Observations>();
    } catch (const Json::exception&) {
      out = StepOutcome{};
    }
    return out;
  }

  std::function<bool()> interrupted_;
};

}  // namespace

std::unique_ptr<StepExecutor> child_executor(std::function<bool()> interrupted) {
  return std::make_unique<ChildExecutor>(std::move(interrupted));
}

int run_child_step(const std::string& specification) {
  StepSpec spec;
  try {
    spec = Json::parse(specification).get<StepSpec>();
  } catch (const Json::exception& error) {
    fail_with(ExitCode::usage, "--step: {}", error.what());
  }
  const std::unique_ptr<Backend> backend = open_real(spec);
  Observations partial;
  const auto finish = [&](const std::string& outcome, const std::string& detail) {
    for (const Event& event : backend->events()) partial.events.push_back(event);
    write_line(message_of(partial, outcome, detail));
    // The driver's own exit handlers may wait for kernels that never end.
    ::_exit(0);
  };
  try {
    partial = perform_step(*backend, spec, [&](const Observations& seen) {
      partial = seen;
      write_line(message_of(seen, "running", ""));
    });
    finish("done", "");
  } catch (const DeadlinePassed& error) {
    finish("deadline", error.what());
  } catch (const DeviceLost& error) {
    // Its own call found the loss; a step on several cards asks which one it was.
    std::vector<int> lost = lost_cards(*backend, spec);
    if (lost.empty() && spec.gpu >= 0 && spec.peer < 0) lost.push_back(spec.gpu);
    for (const int gpu : lost) partial.events.push_back({backend->now_s(), gpu, "lost", 0});
    finish("lost", error.what());
  } catch (const Error& error) {
    const std::vector<int> lost = lost_cards(*backend, spec);
    for (const int gpu : lost) partial.events.push_back({backend->now_s(), gpu, "lost", 0});
    finish(lost.empty() ? "failed" : "lost", error.what());
  }
  return 0;
}

}  // namespace lockstep::probe
