#include "engine/base/listening_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

int open_for_writing(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) fail("cannot write {}", path.string());
  return fd;
}

// The number behind "port": in a line of JSON; 0 without one.
uint16_t port_in(std::string_view line) {
  constexpr std::string_view kKey = "\"port\":";
  const size_t at = line.find(kKey);
  if (at == std::string_view::npos) return 0;
  const std::string_view digits = line.substr(at + kKey.size());
  uint16_t port = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return port;
}

}  // namespace

ListeningProcess::ListeningProcess(const std::vector<std::string>& argv, std::string_view awaited,
                                   std::chrono::milliseconds bound) {
  const int out = open_for_writing(folder_.path() / "stdout");
  const int err = open_for_writing(folder_.path() / "stderr");
  process_ = std::make_unique<ChildProcess>(argv, std::map<std::string, std::string>(),
                                            ChildProcess::Outputs{out, err});
  ::close(out);
  ::close(err);
  const Clock::time_point end = Clock::now() + bound;
  while (said().find(awaited) == std::string::npos) {
    if (!process_->running() || Clock::now() > end) {
      fail_with(ExitCode::could_not_judge, "{} does not come up: {}", argv.at(0), log());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::string lines = said();
  port_ = port_in(std::string_view(lines).substr(0, lines.find('\n')));
  if (port_ == 0) {
    fail_with(ExitCode::could_not_judge, "{} says no port: {}", argv.at(0), lines);
  }
}

std::string ListeningProcess::said() const {
  std::string text = read_text_file(folder_.path() / "stdout");
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  return text;
}

std::string ListeningProcess::log() const {
  return read_text_file(folder_.path() / "stderr", size_t{1} << 30);
}

}  // namespace lockstep
