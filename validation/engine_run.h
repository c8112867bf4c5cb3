// Starts the engine under test on a job file and reads back what it wrote. This is all that the
// judgement knows of the engine: a command line, results.jsonl and tap dumps.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "validation/tap_file.h"

namespace lockstep {

struct EngineOptions {
  std::filesystem::path engine;  // empty: lockstep-generate beside this program
  std::filesystem::path model;
  int tp = 1;
  std::string precision = "fp32";
  std::string backend = "cpu";
  std::optional<int> prefill_grid;
  std::string fault;             // NAME[@layer=L,rank=R,round=N]; empty for none
  int mtp = 0;                   // drafts per round
  std::string transport;         // empty: the engine's choice
  std::string kv;                // empty: the engine's default
  std::filesystem::path shards;  // empty: the engine shards on the fly
  std::optional<int> slots;      // requests that run together
  std::optional<int> threads;    // of each rank
  std::string kernels;           // of an older family of cards; empty: the card's
  std::string devices;           // cards; empty: the engine's choice
  bool share_device = false;     // both ranks may run on one card
  std::string cpu_target;        // empty: the engine's choice
  std::optional<int64_t> prefix_cache_bytes;
  std::chrono::seconds timeout{1800};
  std::vector<std::string> argv;  // not empty: this command line instead of the fields above

  // The command line without --jobs and --out, as a user would type it.
  std::vector<std::string> command() const;
};

// Largest logits that a job reports of each step.
inline constexpr int kTopLogits = 16;

struct EngineJob {
  std::string name;  // a file name; the oracle's reader guarantees it
  std::vector<int32_t> ids;
  int max_tokens = 0;
  std::vector<int32_t> force_ids;             // not empty: teacher forcing
  std::vector<std::filesystem::path> images;  // of the pads in ids
  std::vector<std::string> taps;              // names, '*' matches anything
  int64_t tap_positions = 0;                  // last n prompt positions
  std::filesystem::path inject;               // tensors to put in place of taps; empty for none
  int n_logits = kTopLogits;                  // largest logits reported a step
  double temperature = 0;                     // 0: greedy, and the next two do not matter
  double presence_penalty = 0;
  int64_t seed = 0;
};

// The logits that chose one token.
struct StepLogits {
  std::vector<int32_t> ids;  // largest first
  std::vector<double> values;
  double log_sum_exp = 0;  // over the whole vocabulary
};

// Drafts that one round of the engine verified.
struct DraftRound {
  int64_t step = 0;  // index of the last token that was known when the round began
  std::vector<int32_t> drafts;
};

struct EngineResult {
  std::string name;
  std::vector<int32_t> ids;  // generated; under teacher forcing the argmax of each step
  std::string text;          // of ids; empty when the engine has no tokenizer
  std::vector<StepLogits> logits;
  std::optional<int64_t> rope_delta;     // of a prompt with pictures
  std::vector<DraftRound> draft_rounds;  // empty without speculation
  int64_t drafts_accepted = 0;
  int64_t drafted = 0;
  int64_t cache_hit_tokens = 0;  // prompt tokens that came from the prefix cache
  TapDump dump;
};

// Stands among the rank differences for tokens and logits.
inline constexpr const char* kResultsTap = "results";

// The line of a failed program's stderr that says why: a lockstep failure's own line, else the
// first that one of our programs signed (a rank that then loses its peer complains later), else the
// last one.
std::string failure_reason(const std::string& stderr_text);

inline constexpr const char* kResultsFile = "results.jsonl";

// Runs an engine's command line on a job file. Throws Error (exit 3) that says how it ended unless
// it left kResultsFile in `out`.
void run_job_program(std::vector<std::string> argv, std::chrono::seconds timeout,
                     const std::filesystem::path& jobs, const std::filesystem::path& out);

// One result a job, in job order. Throws Error (exit 3) with the engine's own line when it fails,
// with a line of its own when the engine overruns `timeout`, or writes something that cannot be
// read or does not match the jobs.
std::vector<EngineResult> run_engine(const EngineOptions& options,
                                     const std::vector<EngineJob>& jobs);

}  // namespace lockstep
