#include "validation/testing/running_server.h"

namespace lockstep::testing {
namespace {

constexpr std::chrono::seconds kStartBound{120};  // for a test that would otherwise hang

}  // namespace

RunningServer::RunningServer(const std::string& programs, const std::string& golden,
                             const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {programs + "/lockstep-serve",
                                   "--model=" + golden + "/tiny-qwen3_5",
                                   "--tp=1",
                                   "--threads=1",
                                   "--port=0",
                                   "--halt-dir=" + halts_.path().string()};
  argv.insert(argv.end(), flags.begin(), flags.end());
  server_ = std::make_unique<ListeningProcess>(argv, "\"event\":\"ready\"", kStartBound);
}

std::string RunningServer::url() const {
  return "http://127.0.0.1:" + std::to_string(server_->port());
}

}  // namespace lockstep::testing
