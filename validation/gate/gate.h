// The gate: everything a change must pass, as a list of checks with one verdict each.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hardware-probe/report/machine.h"
#include "validation/compare/report.h"
#include "validation/compare/tap_judge.h"
#include "validation/gate/ops_report.h"
#include "validation/gate/policy.h"
#include "validation/receipt/waivers.h"
#include "validation/verdict.h"

namespace lockstep {

// What judges the CUDA ops; empty paths: beside this program.
struct OpTools {
  std::filesystem::path tests;  // folder with op_tests.json and the programs that it names
  std::filesystem::path exact;
  std::filesystem::path bench;
  std::string sanitizer = "compute-sanitizer";
  double sanitizer_seconds = 60;
  int n_workers = 0;  // 0: one a core
};

struct GateOptions {
  Policy policy;
  std::string policy_argument;  // what names it in repro lines: a built-in name or a file
  OpTools op_tools;
  std::filesystem::path model;
  std::filesystem::path oracle;              // prefix
  std::filesystem::path engine;              // empty: lockstep-generate beside this program
  std::filesystem::path weights;             // empty: lockstep-weights beside this program
  std::filesystem::path source;              // source tree; empty: none, receipts cannot be judged
  std::filesystem::path receipts;            // folder of receipts that count
  std::filesystem::path baseline;            // folder of programs that the bench gate compares with
  std::vector<std::filesystem::path> bench;  // figures for the report's plots
  std::filesystem::path machine;             // a probe profile of this machine; empty for none
  std::string fault;                         // planted in every run: the gate must turn red
  std::vector<std::string> only;             // ids of checks; empty for the policy's
  std::vector<std::string> prompts;          // of the oracle; empty for all
  bool prove = true;                         // run each check's twin
  std::vector<Waiver> waivers;
  std::string today;  // for waivers, "2026-01-31"
};

// One comparison with the oracle, kept for the report's plot.
struct GateComparison {
  std::string title;
  Precision precision = Precision::fp32;
  CompareReport report;
};

// Where the tokens of two runs part, with the text of each.
struct GateDivergence {
  std::string check;
  std::string prompt;
  size_t step = 0;  // of the first token that differs
  std::string label_a;
  std::string label_b;
  std::string text_a;
  std::string text_b;
};

struct GateStep {
  std::string id;
  std::string title;
  Verdict verdict = Verdict::pass;
  std::string detail;  // what was found, one line
  std::string repro;   // a command that does this check again
  double seconds = 0;
  bool required = true;
  bool proven = false;           // its twin with a planted mistake was red in this run
  std::string waiver;            // who answers for it until when; empty without one
  std::vector<std::string> ops;  // whose fault it is that it is red; empty: everything's
};

// How mutants of the product fared. Equivalent ones change nothing and count for nothing.
struct MutationReport {
  int total = 0;
  int killed = 0;
  int equivalent = 0;
  std::vector<std::string> survivors;  // "name: reason"

  // killed / (total - equivalent); 0 when no mutant was run.
  double score() const;
};

struct GateReport {
  Verdict verdict = Verdict::pass;
  std::vector<GateStep> steps;
  MutationReport mutation;
  std::vector<std::string> not_checked;  // what the policy puts out of scope, with the reason
  std::vector<std::string> notes;        // receipts and waivers, printed but not judged
  probe::MachineRecord machine;          // what the numbers of this run belong to
  OpsReport ops;
  std::vector<GateComparison> comparisons;
  std::vector<GateDivergence> divergences;
  std::vector<std::pair<std::string, std::string>> run_digests;  // run, digest

  int n_proven() const;
  // Every check of the policy was made.
  bool complete = false;
};

// Called when a check begins (no verdict yet) and when it has ended.
struct GateProgress {
  std::function<void(const GateStep&)> begin;
  std::function<void(const GateStep&)> end;
};

// Ids and titles of every check, in the order in which they are made.
std::vector<std::pair<std::string, std::string>> gate_checks();

// Throws Error (usage) for an unknown id in the policy or in `only`.
void require_known_checks(const GateOptions& options);

// A check that cannot be judged is an ERROR and the others go on. A check whose twin is not red,
// and a canary that stays green, make the gate MISTRUSTED; so does no check at all. Throws as
// require_known_checks does.
GateReport run_gate(const GateOptions& options, const GateProgress& progress);

// What the check pinned-bits compares with, as the engine makes it now: the text of
// ORACLE-bits.json.
std::string pinned_bits(const GateOptions& options);

// The interface of `lockstep gate --json`.
std::string gate_json(const GateReport& report, double seconds);

}  // namespace lockstep
