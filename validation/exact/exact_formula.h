// What the integer-exact transformer must answer, from its tokens alone: integers, two divisions,
// and no float arithmetic besides.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "validation/compare/tap_judge.h"
#include "validation/exact/exact_model.h"

namespace lockstep::exact {

// Logits of all rows at one position. Empty where a look-back reaches behind the first token and
// two positions score alike: attention mixes them, and no integer comes out.
using ExactLogits = std::vector<std::optional<float>>;

struct ExactRun {
  std::vector<int32_t> tokens;      // generated
  std::vector<ExactLogits> logits;  // one a generated token
};

// Greedy continuation of `prompt` (tokens below kTokens, not empty). `precision` rounds the means.
ExactRun exact_run(const std::vector<int32_t>& prompt, int n_tokens, Precision precision);

// The position that a head looking `distance` back attends from position n: n - distance; before
// that the one of 0 to n with the largest score, or none when two are too close to call.
std::optional<int> attended_position(int n, int distance);

}  // namespace lockstep::exact
