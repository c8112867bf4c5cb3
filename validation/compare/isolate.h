// Which operation is wrong, and which only pass an error on: the engine runs once more with the
// oracle's tensors put in behind every branch and layer, so that each computes on the oracle's
// input and its error is its own.
#pragma once

#include <string>
#include <vector>

#include "validation/compare/report.h"
#include "validation/compare/tap_judge.h"
#include "validation/engine_run.h"
#include "validation/oracle.h"

namespace lockstep {

struct IsolatedTap {
  std::string tap;
  double propagated = 0;  // relative L2 against the oracle in the plain run
  double local = 0;       // the same on the oracle's input
  double limit = 0;
  Verdict verdict = Verdict::pass;  // of the local error
  bool victim = false;              // beyond the limit in the plain run alone
};

struct IsolatedPrompt {
  std::string name;
  std::string culprit;  // first tap in TapOrder whose local error is beyond its limit
  std::string reason;   // why the culprit, or why the prompt could not be trusted
  std::vector<IsolatedTap> taps;
  Verdict verdict = Verdict::pass;
};

struct IsolationReport {
  Verdict verdict = Verdict::pass;
  std::vector<IsolatedPrompt> prompts;
};

// Taps of the oracle that a job can put in (docs/formats/jobs.md): embed, layers.*, final_norm, and
// those of decode.
bool can_inject(const std::string& tap);

// Two jobs a prompt, plain and isolated, both fed the oracle's tokens. Earlier positions than the
// oracle recorded keep the engine's own history: behind a culprit, layers may be blamed for what
// they read of it there; the first one is certain.
struct IsolationJobs {
  std::vector<EngineJob> jobs;  // plain and isolated in turn
};
IsolationJobs isolation_jobs(const Oracle& oracle, const std::filesystem::path& folder);

IsolatedPrompt judge_isolation(const OraclePrompt& oracle, const EngineResult& plain,
                               const EngineResult& isolated, Precision precision);

// Starts the engine; throws Error (exit 3) when it cannot be judged.
IsolationReport isolate(Oracle oracle, const EngineOptions& options);

std::string isolation_text(const IsolationReport& report, bool colour, bool verbose);
std::string isolation_json(const IsolationReport& report);

}  // namespace lockstep
