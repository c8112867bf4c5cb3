#include "engine/serve/recorder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/serve/event_log.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

// One write a line: a killed server leaves whole lines.
bool append(int fd, const std::string& line) {
  const std::string text = line + "\n";
  return ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

Recorder::Recorder(const std::string& path, const std::string& header) {
  std::ifstream before(path);
  std::string first;
  for (std::string line; std::getline(before, line); ++n_lines_) {
    if (n_lines_ == 0) first = line;
  }
  if (n_lines_ > 0 && first != header) {
    fail("--record {}: is the log of another model or of other flags; give another file", path);
  }
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd_ < 0 || (n_lines_ == 0 && !append(fd_, header))) {
    fail("--record {}: {}", path, std::strerror(errno));
  }
  if (n_lines_ == 0) n_lines_ = 1;
}

Recorder::~Recorder() {
  ::close(fd_);
}

std::string Recorder::take(int rank, const std::string& line) {
  if (line.find("\"job\"") == std::string::npos) return line;
  Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("job") || !json.contains("digest")) return line;
  Json job = json["job"];
  if (job.is_string()) job = Json::parse(job.get<std::string>(), nullptr, false);
  json.erase("job");
  if (rank == 0 && job.is_object()) {
    job["name"] = fmt::format("{}-{}", ++n_lines_, job.value("name", ""));
    if (!append(fd_, Json({{"job", job}, {"digest", json["digest"]}}).dump())) {
      log_event("not_recorded", {{"reason", std::string(std::strerror(errno))}});
    }
  }
  return json.dump();
}

}  // namespace lockstep::serve
