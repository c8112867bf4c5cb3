// The gate tested on each run: a planted fault and an empty run must both be red.
#include <fmt/format.h>

#include "validation/compare/compare.h"
#include "validation/gate/check.h"
#include "validation/gate/run_specs.h"

namespace lockstep {
namespace {

// One GDN head's state is lost when decode starts: the prompt's taps stay right, so only a judge
// that looks at states, decode and margins can see it.
constexpr const char* kPlantedFault = "gdn.head-state-lost-at-prompt-end";

const RunSpec kFaulty{.label = "tp2-fp32-faulty",
                      .tp = 2,
                      .precision = Precision::fp32,
                      .fault = kPlantedFault,
                      .short_prompts = true};

// A judge that misses the fault is blind, and so is everything that it called right.
void judge_planted(GateStep& step, const CompareReport& report) {
  const bool caught = report.verdict == Verdict::fail;
  step.verdict = caught ? Verdict::pass : Verdict::mistrusted;
  step.detail = caught ? fmt::format("{}: caught: {}", kPlantedFault, first_reason(report))
                       : fmt::format("{}: not caught, the comparison said {}", kPlantedFault,
                                     verdict_name(report.verdict));
}

void planted_fault(GateContext& gate, GateStep& step) {
  const std::vector<EngineResult>& results = gate.runs.results(kFaulty);
  judge_planted(step,
                judge_run(gate.runs.short_oracle(), results, Precision::fp32, gate.options.model));
  step.repro =
      fmt::format("lockstep compare --model {} --oracle {} --tp 2 --precision fp32 --fault {}",
                  gate.options.model.string(), gate.options.oracle.string(), kPlantedFault);
}

bool planted_twin(GateContext&) {
  GateStep step;
  judge_planted(step, CompareReport{});
  return step.verdict == Verdict::mistrusted;
}

void judge_empty(GateStep& step, Verdict verdict) {
  step.verdict = verdict == Verdict::mistrusted ? Verdict::pass : Verdict::mistrusted;
  step.detail = fmt::format("the comparison said {}", verdict_name(verdict));
}

void empty_run(GateContext& gate, GateStep& step) {
  Oracle nothing = gate.runs.oracle();
  for (OraclePrompt& prompt : nothing.prompts) prompt.in_scope = false;
  judge_empty(step, judge_run(nothing, {}, Precision::fp32, gate.options.model).verdict);
}

bool empty_twin(GateContext&) {
  GateStep step;
  judge_empty(step, Verdict::pass);
  return step.verdict == Verdict::mistrusted;
}

}  // namespace

const std::vector<CheckDefinition>& canary_checks() {
  static const std::vector<CheckDefinition> checks = {
      {"planted-fault", "Canary: a planted fault turns the comparison red", planted_fault,
       planted_twin},
      {"empty-run", "Canary: a run that compares nothing is mistrusted", empty_run, empty_twin},
  };
  return checks;
}

}  // namespace lockstep
