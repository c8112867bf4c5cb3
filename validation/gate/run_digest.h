// Are two runs the same, bit for bit? Digests for receipts, and the first difference for people.
#pragma once

#include <string>
#include <vector>

#include "validation/engine_run.h"

namespace lockstep {

// 128-bit digest of all tokens, logits and taps (whole tensors, so TP=1 and TP=2 can agree).
std::string run_digest(const std::vector<EngineResult>& results);

// The first difference in the order of the jobs and then of the network: "alpha: layers.3.out" or
// "alpha: token 12"; empty when the bits are the same. Results are matched by name; a name that
// only one side has is a difference.
std::string first_difference(const std::vector<EngineResult>& a,
                             const std::vector<EngineResult>& b);

// The results cut down to their first n tokens; taps stay.
std::vector<EngineResult> first_tokens(std::vector<EngineResult> results, size_t n);

}  // namespace lockstep
