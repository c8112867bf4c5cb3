// The integer-exact transformer through the whole engine: any TP, batch, split, cache hit and
// speculation gives the bits of a formula.
#include <fmt/format.h>

#include "validation/exact/exact_judge.h"
#include "validation/gate/check.h"

namespace lockstep {
namespace {

using exact::ExactCoverage;
using exact::ExactVariant;

constexpr size_t kQuickVariants = 2;

std::vector<EngineResult> run_variant(GateContext& gate, const ExactVariant& variant,
                                      const std::vector<EngineJob>& jobs) {
  if (!gate.runs.backend_missing().empty()) throw BackendMissing(gate.runs.backend_missing());
  EngineOptions base = gate.runs.engine_options({.label = variant.label});
  base.model = gate.runs.exact_model();
  return gate.runs.start(exact::exact_options(base, variant), jobs);
}

void add(const ExactCoverage& part, ExactCoverage& all) {
  all.n_tokens += part.n_tokens;
  all.n_logits += part.n_logits;
  all.n_hits += part.n_hits;
  all.n_accepted += part.n_accepted;
  all.n_refused += part.n_refused;
}

void judge_variants(GateContext& gate, GateStep& step, size_t n_variants) {
  const std::vector<EngineJob> jobs = exact::exact_jobs();
  ExactCoverage all;
  for (size_t i = 0; i < n_variants; ++i) {
    const ExactVariant& variant = exact::exact_variants()[i];
    ExactCoverage coverage;
    const std::vector<EngineResult> results = run_variant(gate, variant, jobs);
    const std::string difference =
        exact::exact_difference(jobs, results, variant.precision, &coverage);
    if (!difference.empty()) {
      step.verdict = Verdict::fail;
      step.detail = fmt::format("{} ({}): {}", variant.label, variant.reaches, difference);
      return;
    }
    const std::string missing = exact::unreached(variant, coverage);
    if (!missing.empty()) {
      step.verdict = merge(step.verdict, Verdict::mistrusted);
      step.detail = fmt::format("{}: {}", variant.label, missing);
    }
    add(coverage, all);
  }
  if (step.verdict != Verdict::pass) return;
  step.detail = fmt::format(
      "{} variants: {} tokens and {} logits as the formula says, {} cache hits, {} drafts taken, "
      "{} "
      "refused",
      n_variants, all.n_tokens, all.n_logits, all.n_hits, all.n_accepted, all.n_refused);
}

void exact_quick(GateContext& gate, GateStep& step) {
  judge_variants(gate, step, kQuickVariants);
}

void exact_all(GateContext& gate, GateStep& step) {
  judge_variants(gate, step, exact::exact_variants().size());
}

// One token of the engine's answer is another one.
bool exact_twin(GateContext& gate) {
  const std::vector<EngineJob> jobs = {exact::exact_jobs()[0]};
  const ExactVariant& variant = exact::exact_variants()[0];
  std::vector<EngineResult> results = run_variant(gate, variant, jobs);
  flip_one_bit(results);
  return !exact::exact_difference(jobs, results, variant.precision, nullptr).empty();
}

}  // namespace

const std::vector<CheckDefinition>& exact_checks() {
  static const std::vector<CheckDefinition> checks = {
      {"exact-quick", "An integer-exact transformer answers its formula, two variants", exact_quick,
       exact_twin},
      {"exact", "An integer-exact transformer answers its formula, every variant", exact_all,
       exact_twin},
  };
  return checks;
}

}  // namespace lockstep
