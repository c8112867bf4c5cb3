// Judges generated tokens, their margins and log-probabilities.
#pragma once

#include "validation/compare/logit_geometry.h"
#include "validation/compare/report.h"
#include "validation/engine_run.h"
#include "validation/oracle.h"

namespace lockstep {

// fp32: the engine ran freely; every token must be the oracle's, margin and log-probability within
// tolerance.h. Steps after a first mismatch have another context and are not judged.
GreedyReport judge_free_run(const OraclePrompt& oracle, const EngineResult& engine);

// bf16: the engine was fed the oracle's tokens, so every step is comparable. With a = the oracle's
// token, s = its runner-up and c = the strongest other logit of the engine, an honest engine's
// margin l'(a) - l'(c) lies within max(B(a,s), B(a,c)) of the oracle's, B being the honest error of
// a logit difference (kBf16LogitSigmas times tolerance::bf16_logit_sigma):
//   l'(a) - l'(c) <= l'(a) - l'(s) <= margin + B(a,s)   since c is the strongest, and
//   l'(a) - l'(c) >= l(a) - l(c) - B(a,c) >= margin - B(a,c)   since s is the oracle's strongest.
// Another argmax than a means a negative margin, so it is allowed only within that bound; and over
// the whole prompt the margin errors must stay below kBf16MarginRms standard deviations (root mean
// square).
GreedyReport judge_forced_run(const OraclePrompt& oracle, const EngineResult& engine,
                              const LogitGeometry& geometry);

}  // namespace lockstep
