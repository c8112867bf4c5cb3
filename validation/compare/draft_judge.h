// Judges the MTP drafts of a free fp32 run against the oracle's, which come from full
// recomputation.
#pragma once

#include "validation/compare/report.h"
#include "validation/engine_run.h"
#include "validation/oracle.h"

namespace lockstep {

// Every round that starts at a step for which the oracle holds drafts must have proposed the
// oracle's tokens, as far as both go; a run of the oracle's depth must also have taken as many of
// them. Rounds after the tokens part are not judged. Nothing to judge (no drafts on either side):
// PASS with n_judged 0.
DraftReport judge_drafts(const OraclePrompt& oracle, const EngineResult& engine);

}  // namespace lockstep
