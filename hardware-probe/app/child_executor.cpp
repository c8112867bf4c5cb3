#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "hardware-probe/app/real_run.h"
#include "hardware-probe/real/real_backend.h"

namespace lockstep::probe {

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

std::string spec_to_text(const StepSpec& spec) {
  return Json({{"check", spec.check},
               {"gpu", spec.gpu},
               {"peer", spec.peer},
               {"n_gpus", spec.n_gpus},
               {"mode", mode_name(spec.mode)},
               {"nonce", spec.nonce},
               {"deadline_s", spec.deadline_s}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

StepSpec spec_from_text(const std::string& text) {
  try {
    const Json document = Json::parse(text);
    const std::string mode = document.at("mode");
    return {document.at("check"),     document.at("gpu"),   document.at("peer"),
            document.at("n_gpus"),    mode_from_name(mode), document.at("nonce"),
            document.at("deadline_s")};
  } catch (const Json::exception& error) {
    fail_with(ExitCode::usage, "--step: {}", json_problem(error));
  }
}

constexpr size_t kMostOutput = size_t{256} << 20;

// One message a line: outcome, detail and the observations so far.
void write_message(const Observations& seen, const std::string& outcome,
                   const std::string& detail) {
  const std::string header =
      Json({outcome, detail}).dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string line = header + "\t" + observations_to_json(seen) + "\n";
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDOUT_FILENO, line.data() + done, line.size() - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
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
    const pid_t child = start_child(spec_to_text(spec), pipe);
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
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) return out;
    try {
      const Json header = Json::parse(line.substr(0, tab));
      out.outcome = header.at(0).get<std::string>();
      out.detail = header.at(1).get<std::string>();
      out.seen = observations_from_json(line.substr(tab + 1), "child");
    } catch (const Json::exception&) {
      out = StepOutcome{};
    } catch (const Error&) {
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
  const StepSpec spec = spec_from_text(specification);
  const std::unique_ptr<Backend> backend = open_real(spec);
  Observations partial;
  const auto finish = [&](const std::string& outcome, const std::string& detail) {
    for (const Event& event : backend->events()) partial.events.push_back(event);
    write_message(partial, outcome, detail);
    // The driver's own exit handlers may wait for kernels that never end.
    ::_exit(0);
  };
  try {
    partial = perform_step(*backend, spec, [&](const Observations& seen) {
      partial = seen;
      write_message(seen, "running", "");
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
