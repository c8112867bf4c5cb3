// What the gate found out about the CUDA ops, for the receipt.
#pragma once

#include <vector>

#include "validation/ops/op_bench.h"
#include "validation/ops/op_exact.h"
#include "validation/ops/op_mutants.h"
#include "validation/ops/op_sanitizer.h"

namespace lockstep {

struct OpProgramRun {
  OpProgram program;
  OpTestRun run;
};

// Empty members: that check was not made.
struct OpsReport {
  CardFacts card;
  std::vector<OpProgramRun> programs;
  OpMutantReport mutants;
  SanitizerReport sanitizer;
  std::vector<ExactOutput> exact;
  std::vector<ExactOutput> exact_host;
  BenchReport bench;
};

// "ops" in receipts: one JSON object, "{}" when nothing was made.
std::string ops_json(const OpsReport& report);

}  // namespace lockstep
