// The gate: everything a change must pass, as a list of steps with one verdict each.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "validation/compare/report.h"
#include "validation/compare/tap_judge.h"
#include "validation/verdict.h"

namespace lockstep {

struct GateOptions {
  std::filesystem::path model;
  std::filesystem::path oracle;   // prefix
  std::filesystem::path engine;   // empty: lockstep-generate beside this program
  std::filesystem::path weights;  // empty: lockstep-weights beside this program
  std::string fault;              // planted in every run: the gate must turn red
  std::vector<std::string> only;  // ids of steps; empty for all
};

// One comparison with the oracle, kept for the report's plot.
struct GateComparison {
  std::string title;
  Precision precision = Precision::fp32;
  CompareReport report;
};

struct GateStep {
  std::string id;
  std::string title;
  Verdict verdict = Verdict::pass;
  std::string detail;  // what was found, one line
  std::string repro;   // a command that does this step again
  double seconds = 0;
};

struct GateReport {
  Verdict verdict = Verdict::pass;
  std::vector<GateStep> steps;
  std::vector<std::string> not_checked;  // what the policy puts out of scope, with the reason
  std::vector<GateComparison> comparisons;
  std::vector<std::pair<std::string, std::string>> run_digests;  // run, digest
};

// Called when a step begins (no verdict yet) and when it has ended.
struct GateProgress {
  std::function<void(const GateStep&)> begin;
  std::function<void(const GateStep&)> end;
};

// Ids and titles of the quick gate's steps, in order.
std::vector<std::pair<std::string, std::string>> quick_gate_steps();

// A step that cannot be judged is an ERROR and the others go on. Throws Error (usage) for an
// unknown id in `only`; no step at all is MISTRUSTED.
GateReport run_quick_gate(const GateOptions& options, const GateProgress& progress);

}  // namespace lockstep
