#include "engine/serve/halt_folder.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/serve/event_log.h"

namespace lockstep::serve {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path make_halt_folder(const fs::path& dir, int start) {
  const fs::path folder = dir / fmt::format("{}-{}", ::getpid(), start);
  std::error_code error;
  if (!fs::exists(dir)) {
    fs::create_directories(dir, error);
    if (!error) fs::permissions(dir, fs::perms::owner_all, error);
  }
  if (!error) fs::create_directory(folder, error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) {
    fail("--halt-dir {}: cannot make {}: {}", dir.string(), folder.filename().string(),
         error.message());
  }
  return folder;
}

void remove_if_empty(const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_empty(folder, ignored)) fs::remove(folder, ignored);
}

void reclaim_halt_folders(const fs::path& dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    const long pid = std::strtol(name.c_str(), nullptr, 10);
    if (pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0) remove_if_empty(entry.path());
  }
}

namespace {

// A halt that cannot be recorded must not keep the service down.
void write_or_log(const fs::path& path, const std::string& text) {
  try {
    write_file_atomically(path, text);
  } catch (const Error& error) {
    log_event("halt_not_recorded", {{"reason", std::string(error.what())}});
  }
}

}  // namespace

void write_halt_requests(const fs::path& folder, const std::vector<HaltedRequest>& requests) {
  std::string lines;
  for (const HaltedRequest& halted : requests) {
    const Json json = {{"id", halted.id},
                       {"sequence", halted.sequence},
                       {"phase", phase_name(halted.phase)},
                       {"seed", halted.seed},
                       {"unix_time", halted.unix_time_s},
                       {"method", halted.request.method},
                       {"target", halted.request.target},
                       {"body", halted.request.body}};
    lines += json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  if (!lines.empty()) write_or_log(folder / "requests.jsonl", lines);
}

void write_halt_summary(const Halt& halt, const std::vector<std::string>& engine_arguments) {
  const Json json = {{"version", 1},
                     {"unix_time", halt.unix_time_s},
                     {"rank", halt.rank},
                     {"exit_code", halt.exit_code},
                     {"reason", halt.reason},
                     {"requests", halt.requests},
                     {"engine_arguments", engine_arguments}};
  write_or_log(halt.folder / "halt.json", json.dump(1) + "\n");
}

}  // namespace lockstep::serve
