#include "engine/serve/tests/server_under_test.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::json;

int open_for_writing(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) fail("cannot write {}", path.string());
  return fd;
}

}  // namespace

ServerUnderTest::ServerUnderTest(const std::string& program, std::vector<std::string> flags,
                                 bool wait) {
  std::vector<std::string> argv = {program, "--port=0"};
  const bool names_dir = std::any_of(flags.begin(), flags.end(), [](const std::string& flag) {
    return flag.starts_with("--halt-dir=");
  });
  if (!names_dir) argv.push_back("--halt-dir=" + halt_dir());
  argv.insert(argv.end(), flags.begin(), flags.end());
  const int out = open_for_writing(folder_.path() / "stdout");
  const int err = open_for_writing(folder_.path() / "stderr");
  process_ = std::make_unique<ChildProcess>(argv, std::map<std::string, std::string>(),
                                            ChildProcess::Outputs{out, err});
  ::close(out);
  ::close(err);
  const std::string awaited = wait ? "\"event\":\"ready\"" : "\"event\":\"listening\"";
  std::string said;
  const bool came = eventually([&] {
    said = read_text_file(folder_.path() / "stdout");
    return said.find(awaited) != std::string::npos || !process_->running();
  });
  if (!came || said.find(awaited) == std::string::npos) {
    fail("{} does not come up: {}", program, log());
  }
  port_ = Json::parse(said.substr(0, said.find('\n')))["port"].get<uint16_t>();
}

ServerUnderTest::~ServerUnderTest() = default;

HttpAnswer ServerUnderTest::ask(const std::string& body, const std::string& target) const {
  return client().request("POST", target, body);
}

std::string ServerUnderTest::get(const std::string& target) const {
  return client().request("GET", target).body;
}

std::string ServerUnderTest::log() const {
  return read_text_file(folder_.path() / "stderr", size_t{1} << 30);
}

std::vector<std::string> ServerUnderTest::log_lines(const std::string& with) const {
  std::vector<std::string> lines;
  std::istringstream text(log());
  for (std::string line; std::getline(text, line);) {
    if (line.find(with) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> ServerUnderTest::sanitizer_reports() const {
  std::vector<std::string> reports = log_lines("Sanitizer");
  const std::vector<std::string> undefined = log_lines(": runtime error: ");
  reports.insert(reports.end(), undefined.begin(), undefined.end());
  return reports;
}

int ServerUnderTest::rank_pid(int rank) const {
  int pid = 0;
  for (const std::string& line : log_lines("\"event\":\"rank_started\"")) {
    const Json json = Json::parse(line);
    if (json["rank"] == rank) pid = json["pid"].get<int>();
  }
  return pid;
}

}  // namespace lockstep::serve
