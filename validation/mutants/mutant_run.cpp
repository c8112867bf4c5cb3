#include "validation/mutants/mutant_run.h"

#include <algorithm>
#include <chrono>
#include <string_view>

namespace lockstep {
namespace {

// The engine's own detectors count: it stopped rather than answer wrongly.
bool engine_stopped(const std::string& detail) {
  return detail.starts_with("the engine ended with exit code") &&
         detail.find("never fired") == std::string::npos &&
         detail.find("exit code 2:") == std::string::npos;
}

// Of a lockstep failure the field that differed, or the operations at which the ranks were; other
// words as they are.
std::string agreement_words(const std::string& detail) {
  constexpr std::string_view kFailure = "TP2 LOCKSTEP FAILURE ";
  const size_t failure = detail.find(kFailure);
  if (failure == std::string::npos) return detail;
  const size_t field = detail.find("field ", failure);
  return detail.substr(field == std::string::npos ? failure + kFailure.size() : field);
}

// What a red check named: the first bad tap or step of a comparison, else its own words.
std::string finding(const GateReport& report) {
  for (const GateComparison& comparison : report.comparisons) {
    for (const PromptReport& prompt : comparison.report.prompts) {
      if (prompt.verdict == Verdict::fail) return prompt.first_bad;
    }
  }
  return report.steps.empty() ? "" : agreement_words(report.steps[0].detail);
}

GateOptions mutant_gate(const GateOptions& gate, const CatalogueRow& row,
                        const std::string& check) {
  GateOptions options = gate;
  options.fault = row.fault;
  options.policy.name = "mutant";
  options.policy.checks = {{check, true}};
  // Recorded bits are those of all prompts.
  options.prompts.clear();
  if (check != "pinned-bits")
    options.prompts = row.prompts.empty() ? mutant_prompts() : row.prompts;
  options.only.clear();
  options.waivers.clear();
  options.prove = false;
  return options;
}

void judge_as_peers(const GateReport& report, MutantResult& result) {
  for (const GateComparison& comparison : report.comparisons) {
    for (const PromptReport& prompt : comparison.report.prompts) {
      for (const TapRow& tap : prompt.taps) {
        result.has_tensors = true;
        result.worst_nmse = std::max(result.worst_nmse, tap.diff.rel_l2 * tap.diff.rel_l2);
        result.fails_allclose = result.fails_allclose || tap.diff.fails_allclose;
      }
    }
  }
}

// True when the mutant is dead.
bool try_check(const CatalogueRow& row, const GateOptions& gate, const std::string& check,
               MutantResult& result) {
  const GateReport report = run_gate(mutant_gate(gate, row, check), {});
  const GateStep& step = report.steps.at(0);
  const bool never_fired = step.detail.find("never fired") != std::string::npos;
  result.reached = result.reached || !never_fired;
  judge_as_peers(report, result);
  result.found = finding(report);
  result.killed = step.verdict == Verdict::fail ||
                  (step.verdict == Verdict::error && engine_stopped(step.detail));
  if (result.killed) result.killer = check;
  return result.killed;
}

}  // namespace

const std::vector<std::string>& mutant_ladder() {
  static const std::vector<std::string> ladder = {"oracle-tp1-fp32", "i4-greedy",  "i5",
                                                  "prefill-grid",    "i3-fp32",    "i4-sampled",
                                                  "exact-quick",     "pinned-bits"};
  return ladder;
}

std::vector<std::string> mutant_prompts() {
  return {"chat-think", "one-token"};
}

MutantResult run_mutant(const CatalogueRow& row, const GateOptions& gate, bool whole_ladder) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  MutantResult result;
  result.fault = row.fault;
  std::vector<std::string> checks = {row.check};
  for (const std::string& check : mutant_ladder()) {
    if (whole_ladder && check != row.check) checks.push_back(check);
  }
  for (const std::string& check : checks) {
    if (try_check(row, gate, check, result)) break;
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

}  // namespace lockstep
