// Judges recorded taps: one row a tensor, and which was the first bad one.
#pragma once

#include "validation/compare/report.h"
#include "validation/oracle.h"

namespace lockstep {

enum class Precision { fp32, bf16 };

// Replaces state/layers.N.gdn_state [head, dk, dv] by what the oracle records of it:
// gdn_state_rowsum (over dv), gdn_state_colsum (over dk) and gdn_state_norm (Frobenius), in
// float64.
TapMap summarise_states(TapMap taps);

// The engine's tap that an oracle's tap is made from: "X.gdn_state" for its summaries, else itself.
std::string engine_tap(const std::string& oracle_tap);

// Fills taps, positions, worst values, first_bad, verdict and reasons of `report`. In bf16 "state/"
// is not judged: the oracle records no noise for it (a wrong state shows in decode/).
void judge_taps(const OraclePrompt& oracle, const TapDump& engine, Precision precision,
                PromptReport& report);

}  // namespace lockstep
