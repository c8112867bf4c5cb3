// Explains a lockstep failure from the folder that a halt left: what the ranks disagreed on, and,
// by running the requests again with taps, which replicated tensor differs first.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::serve {

// The first field of the ranks' round records that differs.
struct RecordDifference {
  uint64_t round = 0;
  std::string field;
  std::string rank_0;  // the whole records, as JSON
  std::string rank_1;
};

struct TensorDifference {
  std::string request;
  std::string tensor;
  int64_t row = 0;    // position among the tapped ones
  int64_t index = 0;  // first element of the row that differs
  float rank_0 = 0.0f;
  float rank_1 = 0.0f;
  bool found() const { return !tensor.empty(); }
};

struct Postmortem {
  std::string reason;                     // of the halt
  int n_requests = 0;                     // that were in flight
  std::vector<RecordDifference> records;  // none or one
  int n_replayed = 0;
  std::vector<std::string> not_replayed;  // request and why
  bool halted_again = false;              // the ranks disagreed in the replay too
  TensorDifference first;
  // Ranks that disagreed; otherwise one ended or hung.
  bool lockstep_failure() const {
    return !records.empty() || reason.find("LOCKSTEP FAILURE") != std::string::npos;
  }
  bool reproduced() const { return halted_again || first.found(); }
};

// The first replicated tensor whose bits differ between two tap files of one request: positions in
// order, and within a position the order in which the engine computes.
TensorDifference first_difference(const std::filesystem::path& rank_0,
                                  const std::filesystem::path& rank_1);

// The job (docs/formats/jobs.md) that stands for a line of requests.jsonl. Throws Error when the
// request cannot be run as a job.
std::string job_of_request(const std::string& line, const std::string& name, int64_t n_taps);

// Throws Error when the folder is no record of a halt, or the replay cannot be run.
Postmortem examine_halt(const std::filesystem::path& folder);

}  // namespace lockstep::serve
