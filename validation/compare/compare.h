// One comparison of an engine with an oracle: run, judge, sum up.
#pragma once

#include "validation/compare/report.h"
#include "validation/compare/tap_judge.h"
#include "validation/engine_run.h"
#include "validation/oracle.h"

namespace lockstep {

inline constexpr const char* kImageOutOfScope =
    "image prompts are out of scope: the checkpoint has no vision tower";

// "fp32" or "bf16"; throws Error (usage) otherwise.
Precision parse_precision(const std::string& text);

// The jobs that the prompts in scope make: free greedy runs in fp32, forced ones in bf16.
std::vector<EngineJob> oracle_jobs(const Oracle& oracle, Precision precision);

// Judges `results`, one for each job of oracle_jobs, in order. `model` is read for lm_head (bf16).
CompareReport judge_run(const Oracle& oracle, const std::vector<EngineResult>& results,
                        Precision precision, const std::filesystem::path& model);

// Starts the engine and judges it; image prompts are left out when the model cannot see. Throws
// Error (exit 3) when it cannot be judged at all.
CompareReport compare_with_oracle(Oracle oracle, const EngineOptions& options);

}  // namespace lockstep
