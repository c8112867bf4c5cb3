// The engine runs that the gate's steps share: each is made once, when a step first asks for it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/temp_dir.h"
#include "validation/compare/compare.h"
#include "validation/gate/gate.h"
#include "validation/oracle.h"

namespace lockstep {

struct RunSpec {
  std::string label;  // in receipts: "tp2-bf16"
  int tp = 1;
  Precision precision = Precision::fp32;
  std::optional<int> prefill_grid = {};
  std::optional<int> slots = {};
  std::string fault = {};
  int mtp = 0;
  std::optional<int64_t> prefix_cache_bytes = {};
  int max_tokens = 0;          // 0: as many as the oracle holds
  bool short_prompts = false;  // only the oracle's few shortest text prompts
  bool use_shards = false;     // weights from the shard files, not from the checkpoint
};

class GateRuns {
 public:
  explicit GateRuns(const GateOptions& options) : options_(options) {}

  const Oracle& oracle();
  // The oracle cut down to its shortest text prompts that still make a meaningful run.
  const Oracle& short_oracle();
  // Results of the run; throws what run_engine throws, every time it is asked.
  const std::vector<EngineResult>& results(const RunSpec& spec);
  // The same for jobs of a check's own; `spec.label` must belong to these jobs alone.
  const std::vector<EngineResult>& results(const RunSpec& spec, const std::vector<EngineJob>& jobs);
  EngineOptions engine_options(const RunSpec& spec);
  // Starts the engine, keeping nothing. A fault planted by the user that this run never reaches
  // leaves an honest run, and is noted.
  std::vector<EngineResult> start(EngineOptions options, const std::vector<EngineJob>& jobs);
  // A fault was planted in every run so far and reached none.
  bool fault_never_fired() const { return n_unreached_ > 0 && n_reached_ == 0; }
  // The policy's, but for what only the CPU has: precision fp32 and planted faults.
  std::string backend_of(const RunSpec& spec) const;
  // Why nothing can run on the policy's backend; empty when it can.
  const std::string& backend_missing();
  // Folder of the shard files; made by the first call.
  const std::filesystem::path& shards();
  // Folder of the integer-exact transformer; made by the first call.
  const std::filesystem::path& exact_model();
  // The checkpoint tool beside this program.
  std::string weights_program() const;
  const std::vector<std::pair<std::string, std::string>>& digests() const { return digests_; }

 private:
  const GateOptions& options_;
  TempDir folder_;
  std::optional<Oracle> oracle_;
  std::optional<Oracle> short_oracle_;
  std::filesystem::path shards_;
  std::filesystem::path exact_model_;
  std::map<std::string, std::vector<EngineResult>> results_;
  std::map<std::string, std::string> errors_;
  std::optional<std::string> backend_missing_;
  int n_reached_ = 0;  // runs that the planted fault changed, or might have
  int n_unreached_ = 0;
  std::vector<std::pair<std::string, std::string>> digests_;
};

// The engine cannot run on the policy's backend here: a skip, not an error.
class BackendMissing : public Error {
 public:
  explicit BackendMissing(const std::string& why) : Error(why, ExitCode::skipped) {}
};

// Runs a program of ours. Throws Error with its own words: exit 1 when it ended with 1 (it judged
// and refused), else 3.
void run_tool(const std::vector<std::string>& argv);

}  // namespace lockstep
