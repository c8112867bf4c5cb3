#include "engine/base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace lockstep {
namespace {

// As run_main does for every program: a write to a child that has ended is an error, not a death.
const bool kIgnoresSigpipe = ::signal(SIGPIPE, SIG_IGN) != SIG_ERR;

using std::chrono::milliseconds;

constexpr milliseconds kLong{60000};  // never reached unless something hangs

ProcessResult shell(const std::string& script, milliseconds timeout = kLong,
                    const std::map<std::string, std::string>& environment = {}) {
  return run_process({"sh", "-c", script}, timeout, environment);
}

bool process_exists(int pid) {
  if (::kill(pid, 0) != 0) return false;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  return text.find(") Z ") == std::string::npos;  // a zombie runs no more
}

TEST(RunProcess, ReportsExitCodesAndOutputs) {
  const ProcessResult good = shell("echo out; echo err >&2");
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_FALSE(good.timed_out);
  EXPECT_EQ(good.stdout_text, "out\n");
  EXPECT_EQ(good.stderr_text, "err\n");
  for (const int code : {1, 2, 70, 77, 255}) {
    EXPECT_EQ(shell("exit " + std::to_string(code)).exit_code, code);
  }
}

TEST(RunProcess, ReportsSignalsAsShellsDo) {
  EXPECT_EQ(shell("kill -TERM $$").exit_code, 128 + SIGTERM);
  EXPECT_EQ(shell("kill -KILL $$").exit_code, 128 + SIGKILL);
  EXPECT_EQ(shell("kill -SEGV $$").exit_code, 128 + SIGSEGV);
}

TEST(RunProcess, ArgumentsArriveAsTheyAre) {
  const ProcessResult result =
      run_process({"printf", "%s|", "", "a b", "$HOME", "'quoted\"", "*", "line\nline"});
  EXPECT_EQ(result.stdout_text, "|a b|$HOME|'quoted\"|*|line\nline|");
}

TEST(RunProcess, TakesLargeOutputOnBothPipesAtOnce) {
  const ProcessResult result = shell(
      "head -c 1048576 /dev/zero | tr '\\0' o; head -c 1048576 /dev/zero | tr '\\0' e >&2; "
      "head -c 1048576 /dev/zero | tr '\\0' o");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.stdout_text, std::string(2097152, 'o'));
  EXPECT_EQ(result.stderr_text, std::string(1048576, 'e'));
}

TEST(RunProcess, TimeOutEndsTheChildAndKeepsWhatItWrote) {
  const ProcessResult result =
      run_process({"sh", "-c", "echo early; exec sleep 1000"}, milliseconds(300));
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_EQ(result.stdout_text, "early\n");
}

TEST(RunProcess, TimeOutEndsDescendantsToo) {
  const ProcessResult result = shell("sleep 1000 & echo $!; wait", milliseconds(300));
  EXPECT_TRUE(result.timed_out);
  const int grandchild = std::stoi(result.stdout_text);
  for (int i = 0; i < 2000 && process_exists(grandchild); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(process_exists(grandchild));
}

TEST(RunProcess, TimeOutHoldsAfterThePipesWereClosed) {
  const ProcessResult result = shell("exec >&- 2>&-; exec sleep 1000", milliseconds(300));
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
}

TEST(RunProcess, EnvironmentIsExtended) {
  const ProcessResult result =
      shell("echo \"$LOCKSTEP_TEST_A-$LOCKSTEP_TEST_B-${PATH:+path}\"", kLong,
            {{"LOCKSTEP_TEST_A", "one two"}, {"LOCKSTEP_TEST_B", ""}});
  EXPECT_EQ(result.stdout_text, "one two--path\n");
  EXPECT_EQ(::getenv("LOCKSTEP_TEST_A"), nullptr);
  const ProcessResult replaced =
      shell("env | grep ^HOME=", kLong, {{"HOME", "elsewhere"}, {"HOM", "x"}});
  EXPECT_EQ(replaced.stdout_text, "HOME=elsewhere\n");
}

TEST(RunProcess, StdinIsClosed) {
  EXPECT_EQ(shell("cat; true").stdout_text, "");
}

// run_main ignores SIGPIPE; a child that inherited that would print "broken pipe" errors.
TEST(RunProcess, ChildrenHaveTheDefaultSigpipe) {
  auto* const old = ::signal(SIGPIPE, SIG_IGN);
  const ProcessResult result = shell("yes | head -n 1");
  ::signal(SIGPIPE, old);
  EXPECT_EQ(result.stdout_text, "y\n");
  EXPECT_EQ(result.stderr_text, "");
}

TEST(RunProcess, NamesAProgramThatCannotStart) {
  const auto message = [](const std::string& program) {
    try {
      run_process({program});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("lockstep-no-such-program"),
            "cannot start lockstep-no-such-program: not found on PATH");
  EXPECT_EQ(message("/no/such/program"),
            "cannot start /no/such/program: No such file or directory");
  EXPECT_EQ(message("/etc/passwd"), "cannot start /etc/passwd: Permission denied");
  EXPECT_EQ(message("/"), "cannot start /: Permission denied");
}

TEST(RunProcess, ManyInARowLeakNoFiles) {
  const auto n_open = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(files, {});
  };
  shell("true");
  const auto before = n_open();
  for (int i = 0; i < 30; ++i) EXPECT_EQ(shell("exit 3").exit_code, 3);
  EXPECT_THROW(run_process({"/no/such/program"}), Error);
  EXPECT_EQ(n_open(), before);
}

TEST(RunProcess, ThreadsMayRunProcessesSideBySide) {
  // A long-lived child that inherited the others' pipes would hold them open until the time-out.
  ChildProcess bystander({"sleep", "1000"});
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&good, t] {
      for (int i = 0; i < 10; ++i) {
        const ProcessResult result = shell("echo " + std::to_string(t));
        if (result.stdout_text == std::to_string(t) + "\n" && !result.timed_out) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 40);
}

TEST(ChildProcess, RunsUntilItEnds) {
  ChildProcess child({"sh", "-c", "exit 5"});
  EXPECT_GT(child.pid(), 0);
  EXPECT_EQ(child.wait(), 5);
  EXPECT_FALSE(child.running());
  EXPECT_EQ(child.wait(), 5);
}

TEST(ChildProcess, TakesSignals) {
  ChildProcess child({"sleep", "1000"});
  EXPECT_TRUE(child.running());
  child.send_signal(SIGTERM);
  EXPECT_EQ(child.wait(), 128 + SIGTERM);
  child.send_signal(SIGTERM);  // to nobody
}

TEST(ChildProcess, DestructorKillsAndReaps) {
  int pid = 0;
  {
    const ChildProcess child({"sleep", "1000"});
    pid = child.pid();
    EXPECT_TRUE(process_exists(pid));
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChildProcess, MovesKeepOneOwner) {
  ChildProcess first({"sleep", "1000"});
  const int first_pid = first.pid();
  ChildProcess moved(std::move(first));
  EXPECT_EQ(moved.pid(), first_pid);
  ChildProcess second({"sleep", "1000"});
  const int second_pid = second.pid();
  moved = std::move(second);
  EXPECT_EQ(moved.pid(), second_pid);
  EXPECT_NE(::kill(first_pid, 0), 0) << "the overwritten child must be gone";
  EXPECT_TRUE(moved.running());
}

TEST(ChildProcess, InheritsNoOtherFile) {
  const int file = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC, as libraries open files
  ASSERT_GE(file, 3);
  ChildProcess child({"sh", "-c", "test ! -e /proc/self/fd/" + std::to_string(file)});
  EXPECT_EQ(child.wait(), 0);
  ::close(file);
}

TEST(ChildProcess, NamesAProgramThatCannotStart) {
  EXPECT_THROW(ChildProcess({"lockstep-no-such-program"}), Error);
  EXPECT_THROW(ChildProcess({"/no/such/program"}), Error);
}

TEST(SiblingProgram, LiesBesideThisOne) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(sibling_program("x"), self.parent_path() / "x");
  EXPECT_EQ(sibling_program(self.filename().string()), self);
}

}  // namespace
}  // namespace lockstep
