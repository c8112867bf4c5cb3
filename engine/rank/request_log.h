// The request log of I1: jobs with everything that decides their results, and what came out.
// Format: docs/formats/request-log.md.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/rank/run_flags.h"

namespace lockstep {

inline constexpr int kRequestLogVersion = 1;

struct LoggedRequest {
  std::string name;
  std::string job_json;  // the line as it was run
  std::string digest;    // of the generated ids and of the logits that the job asked for
};

struct RequestLog {
  std::string model_digest;  // model_fingerprint
  std::string backend;       // this and kernels: empty in logs that do not say it
  std::string kernels;
  std::string precision;
  std::string kv;
  int64_t prefill_grid = 0;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
  std::vector<LoggedRequest> requests;
};

// The first line of a log: what decides results besides the jobs.
std::string request_log_header(const RunFlags& flags);

// Throws Error, before the run and not behind it, for a job that a log at `path` could not hold and
// for a model without a fingerprint.
void require_recordable(const std::filesystem::path& path, const RunFlags& flags,
                        const std::filesystem::path& jobs);

// Writes the log of a run from its job file and the results.jsonl in `out_dir`.
void write_request_log(const std::filesystem::path& path, const RunFlags& flags,
                       const std::filesystem::path& jobs, const std::filesystem::path& out_dir);

// Throws Error that names file, line and what is wrong; a newer version is refused by name.
RequestLog read_request_log(const std::filesystem::path& path);

// Digests of the results in `out_dir`, in job order.
std::vector<std::string> result_digests(const std::filesystem::path& out_dir);

// Identifies config.json and the tensors without reading all their bytes (checkpoint_fingerprint),
// or the name of a synthetic model.
std::string model_fingerprint(const std::string& model);

}  // namespace lockstep
