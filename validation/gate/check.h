// What one check of the gate is made of. The checks themselves: checks_*.cpp.
#pragma once

#include <string>
#include <vector>

#include "validation/gate/gate.h"
#include "validation/gate/gate_runs.h"
#include "validation/gate/op_runs.h"

namespace lockstep {

struct GateContext {
  const GateOptions& options;
  GateRuns& runs;
  OpRuns& ops;
  GateReport& report;
};

struct CheckDefinition {
  const char* id;
  const char* title;
  void (*run)(GateContext& gate, GateStep& step);
  // The same judgement of the same runs with one planted mistake: true when it was red. Called only
  // after `run` passed.
  bool (*twin)(GateContext& gate);
};

const std::vector<CheckDefinition>& oracle_checks();     // shards, oracle, I1, I2, I3, grid
const std::vector<CheckDefinition>& invariant_checks();  // I4, I5
const std::vector<CheckDefinition>& op_checks();         // CUDA ops, each by itself
const std::vector<CheckDefinition>& machine_checks();    // CUDA, receipts, probe, bench
const std::vector<CheckDefinition>& exact_checks();      // the integer-exact transformer
const std::vector<CheckDefinition>& pinned_checks();     // recorded digests
const std::vector<CheckDefinition>& mutant_checks();     // the catalogue against the gate itself
const std::vector<CheckDefinition>& canary_checks();     // planted fault, empty run

// The first reason of the worst prompt, else of the run.
std::string first_reason(const CompareReport& report);

// Eight sampled requests on one prompt of the oracle.
std::vector<EngineJob> sampled_jobs(GateContext& gate);

// What `pinned-bits` compares with, as this engine makes it: the text of ORACLE-bits.json.
std::string pinned_bits_json(GateContext& gate);

// The text of a run that has not the tokens it should have, for the report.
struct RunText {
  std::string label;
  const std::string& prompt;
  const std::vector<int32_t>& ids;
  std::string text;
};
// Keeps both for the report where their tokens part; the first few of a check.
void note_divergence(GateContext& gate, const GateStep& step, const RunText& a, const RunText& b);
// The same of every pair of results that go by one name.
void note_divergences(GateContext& gate, const GateStep& step, const std::string& label_a,
                      const std::vector<EngineResult>& a, const std::string& label_b,
                      const std::vector<EngineResult>& b);

// Ends a check as SKIPPED.
void skip(GateStep& step, const std::string& reason);

// One bit of one value of the run, for twins.
void flip_one_bit(std::vector<EngineResult>& results);

}  // namespace lockstep
