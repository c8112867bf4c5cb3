#include "validation/testing/running_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep::testing {
namespace {

constexpr std::chrono::seconds kStartBound{120};  // for a test that would otherwise hang

int open_for_writing(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) fail("cannot write {}", path.string());
  return fd;
}

}  // namespace

RunningServer::RunningServer(const std::string& programs, const std::string& golden,
                             const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {programs + "/lockstep-serve",
                                   "--model=" + golden + "/tiny-qwen3_5",
                                   "--tp=1",
                                   "--threads=1",
                                   "--port=0",
                                   "--halt-dir=" + (folder_.path() / "halts").string()};
  argv.insert(argv.end(), flags.begin(), flags.end());
  const int out = open_for_writing(folder_.path() / "stdout");
  const int err = open_for_writing(folder_.path() / "stderr");
  process_ = std::make_unique<ChildProcess>(argv, std::map<std::string, std::string>(),
                                            ChildProcess::Outputs{out, err});
  ::close(out);
  ::close(err);
  const auto end = std::chrono::steady_clock::now() + kStartBound;
  std::string said;
  while (said.find("\"event\":\"ready\"") == std::string::npos) {
    if (!process_->running() || std::chrono::steady_clock::now() > end) {
      fail("lockstep-serve does not come up: {}", read_text_file(folder_.path() / "stderr"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    said = read_text_file(folder_.path() / "stdout");
  }
  const auto port = nlohmann::json::parse(said.substr(0, said.find('\n')))["port"].get<int>();
  url_ = "http://127.0.0.1:" + std::to_string(port);
}

}  // namespace lockstep::testing
