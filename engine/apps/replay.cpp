// lockstep replay: runs a request log again, with any number of ranks, slots and drafts, and
// compares the digests of what comes out.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/apps/rank_runner.h"
#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/table.h"
#include "engine/base/temp_dir.h"
#include "engine/rank/request_log.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// What decides results comes from the log; how they are computed (ranks, slots, k, threads, which
// card) from flags.
void take_over(const RequestLog& log, RunFlags& run) {
  if (!log.backend.empty()) run.backend = log.backend;
  if (!log.kernels.empty()) run.kernels = log.kernels;
  run.precision = log.precision;
  run.kv = log.kv;
  run.prefill_grid = log.prefill_grid;
  run.max_tokens = log.max_tokens;
  run.temperature = log.temperature;
  run.seed = log.seed;
  run.ignore_eos = log.ignore_eos;
}

int replay(RunFlags run, const std::string& log_path, bool as_json) {
  const RequestLog log = read_request_log(log_path);
  if (log.model_digest != model_fingerprint(run.model_dir)) {
    fail_with(ExitCode::could_not_judge, "{}: was recorded with another checkpoint than {}",
              log_path, run.model_dir);
  }
  take_over(log, run);
  const TempDir folder;
  std::string jobs;
  for (const LoggedRequest& request : log.requests) jobs += request.job_json + "\n";
  write_file_atomically(folder.path() / "jobs.jsonl", jobs);
  if (const int code = run_ranks(run, folder.path() / "jobs.jsonl", folder.path()); code != 0) {
    return code;
  }
  const std::vector<std::string> digests = result_digests(folder.path());
  Table table({{"verdict"}, {"request"}, {"recorded"}, {"now"}});
  Json json = Json::array();
  bool same = true;
  for (size_t i = 0; i < log.requests.size(); ++i) {
    const LoggedRequest& request = log.requests[i];
    const bool equal = request.digest == digests[i];
    same = same && equal;
    table.add_row({equal ? "PASS" : "FAIL", request.name, request.digest, digests[i]});
    json.push_back({{"name", request.name},
                    {"same", equal},
                    {"recorded", request.digest},
                    {"now", digests[i]}});
  }
  if (as_json) {
    fmt::print("{}\n", json.dump(1));
  } else {
    table.print();
  }
  return static_cast<int>(same ? ExitCode::pass : ExitCode::fail);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-replay", [&] {
    CLI::App app("Run a request log again and compare what comes out");
    lockstep::RunFlags flags;
    std::string log;
    bool json = false;
    app.add_option("log", log, "Request log, from --record")->required();
    lockstep::add_run_options(app, flags);
    app.add_flag("--json", json, "Print JSON");
    if (const auto ended = lockstep::parse_command_line(app, argc, argv)) return *ended;
    return lockstep::replay(flags, log, json);
  });
}
