#include "engine/serve/tests/server_under_test.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/sanitizer_reports.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::json;

}  // namespace

ServerUnderTest::ServerUnderTest(const std::string& program, std::vector<std::string> flags,
                                 bool wait) {
  std::vector<std::string> argv = {program, "--port=0"};
  const bool names_dir = std::any_of(flags.begin(), flags.end(), [](const std::string& flag) {
    return flag.starts_with("--halt-dir=");
  });
  if (!names_dir) argv.push_back("--halt-dir=" + halt_dir());
  argv.insert(argv.end(), flags.begin(), flags.end());
  server_ = std::make_unique<ListeningProcess>(
      argv, wait ? "\"event\":\"ready\"" : "\"event\":\"listening\"", kPatience);
}

ServerUnderTest::~ServerUnderTest() = default;

HttpAnswer ServerUnderTest::ask(const std::string& body, const std::string& target) const {
  return client().request("POST", target, body);
}

std::string ServerUnderTest::get(const std::string& target) const {
  return client().request("GET", target).body;
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
  return lockstep::sanitizer_reports(log());
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
