// Planted faults of the kernels: each must be found by the tests of its op.
#pragma once

#include <string>
#include <vector>

#include "validation/ops/op_list.h"
#include "validation/ops/op_tests.h"

namespace lockstep {

struct OpMutantResult {
  OpMutant mutant;
  bool caught = false;
  std::string by;  // the case that found it, or racecheck and its case
};

struct OpMutantReport {
  std::vector<OpMutantResult> results;
  // Ops whose tests fail in the mutant program without a mutant: nothing is known of theirs.
  std::vector<std::string> broken;  // "op: what failed"
};

// `sanitizer`: a program for what shows as a race alone; empty for none.
OpMutantReport run_op_mutants(const OpList& list, const std::string& sanitizer, int n_workers);

// The tests of one op in the mutant program with this mutant armed; 0 arms none.
OpTestRun run_op_mutant(const OpList& list, const std::string& op, int number);

}  // namespace lockstep
