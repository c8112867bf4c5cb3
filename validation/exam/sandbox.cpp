#include "validation/exam/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sched.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kNobody = 65534;
constexpr const char* kPython = "/usr/bin/python3";

void need(bool ok, const char* what) {
  if (!ok) fail_with(ExitCode::could_not_judge, "sandbox: {}: {}", what, std::strerror(errno));
}

// What an interpreter needs to start, compute and print. Everything else fails with EPERM: sockets,
// processes and threads, files opened for writing, mounts, tracing, signals to others.
constexpr std::array kAllowed = {
    SCMP_SYS(read),
    SCMP_SYS(pread64),
    SCMP_SYS(readv),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(statx),
    SCMP_SYS(lseek),
    SCMP_SYS(mmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(brk),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(ioctl),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getrandom),
    SCMP_SYS(futex),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_yield),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(execve),
    SCMP_SYS(arch_prctl),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(getrlimit),
    SCMP_SYS(getcwd),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(getdents64),
    SCMP_SYS(fcntl),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    SCMP_SYS(poll),
    SCMP_SYS(select),
    SCMP_SYS(pselect6),
    SCMP_SYS(getrusage),
    SCMP_SYS(times),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(restart_syscall),
};

void close_system_calls() {
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
  need(filter != nullptr, "seccomp filter");
  int status = 0;
  for (const int call : kAllowed) {
    status |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
  }
  // Files may be opened for reading alone.
  constexpr int kWrites = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
  status |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, kWrites, 0));
  status |= seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(open), 1,
                             SCMP_A1(SCMP_CMP_MASKED_EQ, kWrites, 0));
  // Limits may be read, not set.
  status |=
      seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, SCMP_A2(SCMP_CMP_EQ, 0));
  errno = EINVAL;
  need(status == 0 && seccomp_load(filter) == 0, "seccomp");
  seccomp_release(filter);
}

void write_proc(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  need(fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()), path);
  ::close(fd);
}

void enter_namespaces() {
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  need(::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                 CLONE_NEWUTS) == 0,
       "this machine refuses user namespaces");
  write_proc("/proc/self/setgroups", "deny");
  write_proc("/proc/self/uid_map", fmt::format("{} {} 1", kNobody, uid));
  write_proc("/proc/self/gid_map", fmt::format("{} {} 1", kNobody, gid));
}

// Flags of a mount that a user namespace may not take away.
unsigned long locked_flags(const fs::path& path) {
  struct statvfs info {};
  need(::statvfs(path.c_str(), &info) == 0, path.c_str());
  unsigned long flags = 0;
  if ((info.f_flag & ST_NOSUID) != 0) flags |= MS_NOSUID;
  if ((info.f_flag & ST_NODEV) != 0) flags |= MS_NODEV;
  if ((info.f_flag & ST_NOEXEC) != 0) flags |= MS_NOEXEC;
  if ((info.f_flag & ST_NOATIME) != 0) flags |= MS_NOATIME;
  if ((info.f_flag & ST_RELATIME) != 0) flags |= MS_RELATIME;
  return flags;
}

void bind_read_only(const fs::path& source, const fs::path& target) {
  need(::mkdir(target.c_str(), 0755) == 0, target.c_str());
  need(::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0,
       "binding /usr");
  need(::mount(nullptr, target.c_str(), nullptr,
               MS_BIND | MS_REMOUNT | MS_RDONLY | locked_flags(target), nullptr) == 0,
       "making /usr read-only");
}

void copy_in(const fs::path& from, const fs::path& to) {
  write_file_atomically(to, read_text_file(from));
}

// A root of its own: /usr read-only, the code, its input, nothing else.
void change_root(const fs::path& folder) {
  const fs::path root = folder / "root";
  need(::mkdir(root.c_str(), 0755) == 0, root.c_str());
  need(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private mounts");
  need(::mount("tmpfs", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755") == 0,
       "tmpfs");
  for (const char* name : {"usr", "lib", "lib64", "bin"}) {
    const fs::path source = fs::path("/") / name;
    if (fs::is_symlink(source)) {
      fs::create_symlink(fs::read_symlink(source), root / name);
    } else if (fs::is_directory(source)) {
      bind_read_only(source, root / name);
    }
  }
  copy_in(folder / "code", root / "code");
  copy_in(folder / "input", root / "input");
  need(::chdir(root.c_str()) == 0, "chdir");
  need(::syscall(SYS_pivot_root, ".", ".") == 0, "pivot_root");
  need(::umount2(".", MNT_DETACH) == 0, "leaving the old root");
  need(::chdir("/") == 0, "chdir");
  need(::mount(nullptr, "/", nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV,
               nullptr) == 0,
       "read-only root");
}

template <typename Resource>
void limit(Resource resource, int64_t value) {
  const rlimit both{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  need(::setrlimit(resource, &both) == 0, "setrlimit");
}

void set_limits(const SandboxLimits& limits) {
  limit(RLIMIT_AS, limits.memory_bytes);
  limit(RLIMIT_CPU, limits.cpu_s);
  limit(RLIMIT_FSIZE, limits.output_bytes);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, 32);
  limit(RLIMIT_NPROC, 1);
  limit(RLIMIT_STACK, int64_t{8} << 20);
  limit(RLIMIT_MEMLOCK, 0);
  limit(RLIMIT_MSGQUEUE, 0);
}

// The first process of its namespace: when it ends, everything in there does.
[[noreturn]] void inner_process(const fs::path& folder, const SandboxLimits& limits, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  change_root(folder);
  set_limits(limits);
  need(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  need(::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(output, STDERR_FILENO) >= 0, "dup2");
  // The program gets no other file; `errors` stays open until it starts.
  constexpr unsigned kCloseOnExec = 4;
  need(::syscall(SYS_close_range, 3U, ~0U, kCloseOnExec) == 0, "close_range");
  const std::array<const char*, 6> argv = {kPython, "-I", "-S", "-B", "/code", nullptr};
  const std::array<const char*, 3> environment = {"PATH=/usr/bin", "LANG=C.UTF-8", nullptr};
  close_system_calls();
  ::execve(kPython, const_cast<char* const*>(argv.data()),
           const_cast<char* const*>(environment.data()));
  ::_exit(kNoWalls);
}

[[noreturn]] void inner_or_message(const fs::path& folder, const SandboxLimits& limits,
                                   int output) {
  const int errors = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  try {
    inner_process(folder, limits, output);
  } catch (const std::exception& error) {
    const std::string line = std::string(error.what()) + "\n";
    const ssize_t written = ::write(errors, line.data(), line.size());
    ::_exit(written < 0 ? kNoWalls + 1 : kNoWalls);
  }
}

}  // namespace

int run_contained(const fs::path& folder, const SandboxLimits& limits) {
  try {
    // First of all, so that no other file takes the place of a standard one that is closed.
    const int nothing = ::open("/dev/null", O_RDONLY);
    need(nothing >= 0 && ::dup2(nothing, STDIN_FILENO) >= 0, "/dev/null");
    const int output =
        ::open((folder / "output").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    need(output >= 0, "output file");
    enter_namespaces();
    const pid_t child = ::fork();
    need(child >= 0, "fork");
    if (child == 0) inner_or_message(folder, limits, output);
    int status = 0;
    need(::waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return kNoWalls;
  }
}

Sandbox::Sandbox(fs::path program, SandboxLimits limits)
    : program_(std::move(program)), limits_(limits) {}

std::string Sandbox::unavailable() const {
  try {
    const SandboxResult result = run_python("print(6 * 7)", "");
    if (result.output == "42\n") return {};
    return fmt::format("sandbox: {} does not run inside it (exit {}): {}", kPython,
                       result.exit_code, result.output);
  } catch (const Error& error) {
    return error.what();
  }
}

SandboxResult Sandbox::run_python(const std::string& code, const std::string& input) const {
  const TempDir folder;
  write_file_atomically(folder.path() / "code", code + "\n");
  write_file_atomically(folder.path() / "input", input + "\n");
  const ProcessResult process = run_process(
      {program_.string(), "--contained", folder.path().string(), "--cpu-seconds",
       std::to_string(limits_.cpu_s), "--memory-bytes", std::to_string(limits_.memory_bytes),
       "--output-bytes", std::to_string(limits_.output_bytes)},
      limits_.wall);
  SandboxResult result;
  result.exit_code = process.exit_code;
  if (process.exit_code == kNoWalls && !process.timed_out) {
    fail_with(ExitCode::could_not_judge, "{}",
              process.stderr_text.empty() ? "sandbox: the interpreter cannot be started"
                                          : process.stderr_text.substr(0, 300));
  }
  const fs::path output = folder.path() / "output";
  if (fs::exists(output) && fs::file_size(output) > 0) {
    result.output = read_text_file(output, static_cast<size_t>(limits_.output_bytes));
  }
  const bool cpu = process.exit_code == 128 + SIGXCPU || process.exit_code == 128 + SIGKILL;
  if (process.timed_out || cpu) {
    result.end = SandboxEnd::out_of_time;
  } else if (process.exit_code > 128) {
    result.end = SandboxEnd::killed;
  } else if (process.exit_code != 0) {
    result.end = SandboxEnd::failed;
  }
  return result;
}

}  // namespace lockstep
