// One mutant of the engine against the checks of the gate: which of them kills it?
#pragma once

#include <string>
#include <vector>

#include "validation/gate/gate.h"
#include "validation/mutants/catalogue.h"

namespace lockstep {

struct MutantResult {
  std::string fault;
  bool killed = false;
  std::string killer;  // the check that turned red
  std::string found;   // what it named, or what the last check said
  double seconds = 0;
  bool reached = false;  // the fault fired in some run
  // The same runs judged as others would, by the oracle's tensors; false without any.
  bool has_tensors = false;
  double worst_nmse = 0;        // over taps: sum (a-b)^2 / sum b^2
  bool fails_allclose = false;  // at some tap, see TensorDiff
};

// llama.cpp's criterion for matrix products and attention in test-backend-ops.
inline constexpr double kPeerNmse = 5e-4;

// Runs the row's own check first and then, while nothing is red, the other checks of the ladder; a
// mutant ends at its first kill. `gate` gives model, oracle and programs; its prompts, fault and
// checks are set here. An empty fault is the honest engine.
MutantResult run_mutant(const CatalogueRow& row, const GateOptions& gate, bool whole_ladder);

// The ladder's checks, cheapest first.
const std::vector<std::string>& mutant_ladder();

// The oracle's shortest text prompts, enough for a meaningful run.
std::vector<std::string> mutant_prompts();

}  // namespace lockstep
