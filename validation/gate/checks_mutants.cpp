// The catalogue of mutants against the gate itself: how many of them do its checks kill?
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/cli.h"
#include "validation/gate/check.h"
#include "validation/mutants/mutant_run.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

void book(MutationReport& mutation, const CatalogueRow& row, const MutantResult& result) {
  ++mutation.total;
  if (!row.equivalent.empty()) ++mutation.equivalent;
  if (result.killed && row.equivalent.empty()) ++mutation.killed;
  if (result.killed || !row.equivalent.empty()) return;
  const std::string reason = !row.survives.empty() ? row.survives
                             : !result.reached     ? "no run reached it"
                                                   : "no check of the gate saw it";
  mutation.survivors.push_back(row.fault + ": " + reason);
}

void judge_mutation(GateStep& step, const MutationReport& mutation) {
  if (mutation.score() >= tolerance::kMinMutationScore) return;
  step.verdict = Verdict::fail;
  step.detail += fmt::format("; first survivor: {}", mutation.survivors.at(0));
}

void mutants(GateContext& gate, GateStep& step) {
  MutationReport& mutation = gate.report.mutation;
  const std::vector<CatalogueRow> rows =
      catalogue_sample(built_in_catalogue(), gate.options.policy.n_mutants);
  std::string not_equivalent;
  double slowest = 0;
  for (const CatalogueRow& row : rows) {
    if (stderr_is_terminal())
      fmt::print(stderr, "\rmutant {}/{} \x1b[K", mutation.total, rows.size());
    const MutantResult result = run_mutant(row, gate.options, true);
    slowest = std::max(slowest, result.seconds);
    book(mutation, row, result);
    if (!row.equivalent.empty() && result.killed) not_equivalent += " " + row.fault;
  }
  if (stderr_is_terminal()) fmt::print(stderr, "\r\x1b[K");
  if (rows.empty()) return skip(step, "the policy asks for no mutants");
  step.detail =
      fmt::format("{} of {} killed, {} equivalent, score {:.3f}, slowest {:.1f} s", mutation.killed,
                  mutation.total, mutation.equivalent, mutation.score(), slowest);
  if (!not_equivalent.empty()) {
    step.verdict = Verdict::fail;
    step.detail += "; called equivalent and killed:" + not_equivalent;
  } else {
    judge_mutation(step, mutation);
  }
}

// A mutant that is the honest engine must survive, and a survivor must turn the check red: a ladder
// that kills it kills everything.
bool mutants_twin(GateContext& gate) {
  CatalogueRow honest;
  honest.check = mutant_ladder()[0];
  MutationReport mutation;
  book(mutation, honest, run_mutant(honest, gate.options, false));
  GateStep step;
  judge_mutation(step, mutation);
  return mutation.killed == 0 && step.verdict == Verdict::fail;
}

}  // namespace

const std::vector<CheckDefinition>& mutant_checks() {
  static const std::vector<CheckDefinition> checks = {
      {"mutants", "Mutants of the engine are killed by these checks", mutants, mutants_twin},
  };
  return checks;
}

}  // namespace lockstep
