// CUDA ops on a card: their tests, planted faults of their kernels, compute-sanitizer,
// integer-exact cases, speed. No engine is started.
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "validation/gate/check.h"
#include "validation/gate/op_runs.h"
#include "validation/ops/process_pool.h"

namespace lockstep {
namespace {

// Shards of one test program: each opens the card anew, which takes most of a second.
constexpr int kMostShards = 8;

bool no_card(GateContext& gate, GateStep& step) {
  const std::string& missing = gate.ops.missing();
  if (!missing.empty()) skip(step, missing);
  return !missing.empty();
}

// The step is red because of this op.
void blame(GateStep& step, const std::string& op) {
  if (std::find(step.ops.begin(), step.ops.end(), op) == step.ops.end()) step.ops.push_back(op);
}

void judge_card(GateStep& step, const CardFacts& card, const SourceUnits& units,
                const std::string& stale) {
  step.detail = fmt::format(
      "{} ({}), sm_{}, {} multiprocessors, driver for CUDA {}; {} ops with kernels", card.name,
      card.uuid, card.arch, card.n_multiprocessors, card.driver, units.size());
  if (!stale.empty()) {
    step.verdict = Verdict::error;
    step.detail = "the programs were built from other sources: " + stale + ": build again";
  } else if (units.empty()) {
    step.verdict = Verdict::mistrusted;
    step.detail = "neither a source tree nor share/lockstep/sources.json: nothing is vouched for";
  }
}

void card(GateContext& gate, GateStep& step) {
  if (no_card(gate, step)) return;
  judge_card(step, gate.ops.card(), gate.ops.units(), gate.ops.stale());
  gate.report.ops.card = gate.ops.card();
}

bool card_twin(GateContext& gate) {
  GateStep step;
  judge_card(step, gate.ops.card(), gate.ops.units(), "op x: file y changed");
  return step.verdict == Verdict::error;
}

// All shards of all programs, at once on all cores.
std::vector<OpProgramRun> run_programs(GateContext& gate) {
  const OpList& list = gate.ops.list();
  const size_t n = list.programs.size();
  const int n_shards = std::clamp(gate.ops.n_workers() / 2, 1, kMostShards);
  std::vector<OpTestRun> shards(n * static_cast<size_t>(n_shards));
  run_pool(shards.size(), gate.ops.n_workers(), [&](size_t i) {
    OpTestPlan plan;
    plan.program = list.folder / list.programs[i % n].program;
    plan.shard = static_cast<int>(i / n);
    plan.n_shards = n_shards;
    shards[i] = run_op_test(plan);
  });
  std::vector<OpProgramRun> runs;
  for (size_t i = 0; i < n; ++i) {
    OpProgramRun run{list.programs[i], {}};
    for (size_t j = i; j < shards.size(); j += n) {
      run.run.cases.insert(run.run.cases.end(), shards[j].cases.begin(), shards[j].cases.end());
      if (!shards[j].broken.empty()) run.run.broken = shards[j].broken;
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

void judge_programs(GateStep& step, const std::vector<OpProgramRun>& runs,
                    const SourceUnits& units) {
  int n_passed = 0;
  int n_skipped = 0;
  std::set<std::string> tested;
  for (const OpProgramRun& run : runs) {
    n_passed += run.run.count(OpCase::State::passed);
    n_skipped += run.run.count(OpCase::State::skipped);
    const Verdict verdict = judge_op_test(run.run);
    if (verdict == Verdict::pass) {
      tested.insert(run.program.ops.begin(), run.program.ops.end());
      continue;
    }
    if (verdict > step.verdict) {
      const std::string why = first_failure(run.run);
      step.detail = run.program.program + ": " + (why.empty() ? "ran no case" : why);
    }
    step.verdict = merge(step.verdict, verdict);
    for (const std::string& op : run.program.ops) blame(step, op);
  }
  for (const auto& [op, unused] : units) {
    const bool red = std::find(step.ops.begin(), step.ops.end(), op) != step.ops.end();
    if (tested.contains(op) || red) continue;
    if (step.verdict == Verdict::pass) step.detail = "op " + op + ": no test program is registered";
    step.verdict = Verdict::fail;
    blame(step, op);
  }
  if (runs.empty() && step.verdict == Verdict::pass) {
    step.verdict = Verdict::mistrusted;
    step.detail = "no test program is registered";
  }
  if (step.verdict != Verdict::pass) return;
  step.detail =
      fmt::format("{} programs: {} cases passed, {} skipped", runs.size(), n_passed, n_skipped);
}

void op_tests(GateContext& gate, GateStep& step) {
  if (no_card(gate, step)) return;
  gate.report.ops.programs = run_programs(gate);
  judge_programs(step, gate.report.ops.programs, gate.ops.units());
}

bool op_tests_twin(GateContext& gate) {
  std::vector<OpProgramRun> runs = gate.report.ops.programs;
  if (runs.empty() || runs[0].run.cases.empty()) return false;
  runs[0].run.cases.back().state = OpCase::State::failed;
  GateStep step;
  judge_programs(step, runs, gate.ops.units());
  return step.verdict == Verdict::fail;
}

void judge_mutants(GateStep& step, const OpMutantReport& report) {
  int n_by_race = 0;
  for (const std::string& broken : report.broken) {
    if (step.verdict == Verdict::pass) step.detail = "without a mutant: " + broken;
    step.verdict = Verdict::fail;
    blame(step, broken.substr(0, broken.find(':')));
  }
  for (const OpMutantResult& result : report.results) {
    n_by_race += result.by.starts_with("racecheck") ? 1 : 0;
    if (result.caught) continue;
    if (step.verdict == Verdict::pass) step.detail = result.mutant.name + " was not found";
    step.verdict = Verdict::fail;
    blame(step, result.mutant.op);
  }
  if (report.results.empty() && step.verdict == Verdict::pass) {
    step.verdict = Verdict::mistrusted;
    step.detail = "there is no mutant";
  }
  if (step.verdict != Verdict::pass) return;
  step.detail = fmt::format("{} of {} found, {} by racecheck", report.results.size(),
                            report.results.size(), n_by_race);
}

void op_mutants(GateContext& gate, GateStep& step) {
  if (no_card(gate, step)) return;
  gate.report.ops.mutants =
      run_op_mutants(gate.ops.list(), gate.ops.sanitizer(), gate.ops.n_workers());
  judge_mutants(step, gate.report.ops.mutants);
}

bool op_mutants_twin(GateContext& gate) {
  OpMutantReport report = gate.report.ops.mutants;
  if (report.results.empty()) return false;
  report.results.back().caught = false;
  GateStep step;
  judge_mutants(step, report);
  return step.verdict == Verdict::fail;
}

std::set<std::string> ops_of(const OpList& list, const std::string& program) {
  for (const OpProgram& known : list.programs) {
    if (known.program == program) return {known.ops.begin(), known.ops.end()};
  }
  return {};
}

void judge_sanitizer(GateStep& step, const SanitizerReport& report, const OpList& list) {
  std::set<std::pair<std::string, std::string>> clean;
  int n_clean = 0;
  int n_skipped = 0;
  for (const SanitizerRun& run : report.runs) {
    n_skipped += run.verdict == Verdict::skipped ? 1 : 0;
    if (run.verdict == Verdict::skipped) continue;
    clean.insert({run.program, run.tool});
    n_clean += run.verdict == Verdict::pass ? 1 : 0;
    if (run.verdict == Verdict::pass) continue;
    if (run.verdict > step.verdict) {
      step.detail = fmt::format("{} of {} {}: {}", run.tool, run.program, run.name, run.detail);
    }
    step.verdict = merge(step.verdict, run.verdict);
    for (const std::string& op : ops_of(list, run.program)) blame(step, op);
  }
  for (const OpProgram& program : list.programs) {
    for (const char* tool : kSanitizerTools) {
      if (clean.contains({program.program, tool})) continue;
      if (step.verdict == Verdict::pass) {
        step.detail = fmt::format("{} of {}: no case came to its end", tool, program.program);
      }
      step.verdict = merge(step.verdict, Verdict::mistrusted);
      for (const std::string& op : program.ops) blame(step, op);
    }
  }
  if (step.verdict != Verdict::pass) return;
  step.detail =
      fmt::format("{} runs clean, {} too slow or not on the card, {} not reached in the time",
                  n_clean, n_skipped, report.n_left_out);
}

void op_sanitizer(GateContext& gate, GateStep& step) {
  if (no_card(gate, step)) return;
  const std::string sanitizer = gate.ops.sanitizer();
  if (sanitizer.empty()) {
    return skip(step, gate.options.op_tools.sanitizer +
                          " is not on this machine: nothing was run "
                          "under it");
  }
  gate.report.ops.sanitizer = run_sanitizers(
      gate.ops.list(), sanitizer, gate.options.op_tools.sanitizer_seconds, gate.ops.n_workers());
  judge_sanitizer(step, gate.report.ops.sanitizer, gate.ops.list());
}

bool op_sanitizer_twin(GateContext& gate) {
  SanitizerReport report = gate.report.ops.sanitizer;
  if (report.runs.empty()) return false;
  report.runs.back().verdict = Verdict::fail;
  GateStep step;
  judge_sanitizer(step, report, gate.ops.list());
  return step.verdict == Verdict::fail;
}

void judge_exact(GateStep& step, const std::vector<ExactOutput>& card,
                 const std::vector<ExactOutput>& host, const SourceUnits& units) {
  for (const auto& [op, words] : exact_differences(card, host)) {
    if (step.verdict == Verdict::pass) step.detail = fmt::format("op {}: {}", op, words);
    step.verdict = Verdict::fail;
    blame(step, op);
  }
  if (card.empty() && step.verdict == Verdict::pass) {
    step.verdict = Verdict::mistrusted;
    step.detail = "there is no integer-exact case";
  }
  if (step.verdict != Verdict::pass) return;
  int64_t n_values = 0;
  std::set<std::string> answered;
  for (const ExactOutput& output : card) {
    n_values += output.n_values;
    answered.insert(output.op);
  }
  step.detail = fmt::format("{} cases, {} values as the host computes them", card.size(), n_values);
  std::string without;
  for (const auto& [op, unused] : units) {
    if (!answered.contains(op)) without += (without.empty() ? "" : ", ") + op;
  }
  if (!without.empty()) step.detail += "; no exact case for " + without;
}

void op_exact(GateContext& gate, GateStep& step) {
  if (no_card(gate, step)) return;
  const std::map<std::string, std::string> seeds = exact_seeds(gate.ops.units());
  gate.report.ops.exact = run_exact(gate.ops.exact_program(), "cuda", seeds).outputs;
  gate.report.ops.exact_host = run_exact(gate.ops.exact_program(), "cpu", seeds).outputs;
  judge_exact(step, gate.report.ops.exact, gate.report.ops.exact_host, gate.ops.units());
}

// The last output has another digest.
bool op_exact_twin(GateContext& gate) {
  std::vector<ExactOutput> card = gate.report.ops.exact;
  if (card.empty() || card.back().digest.empty()) return false;
  char& digit = card.back().digest.back();
  digit = digit == '0' ? '1' : '0';
  GateStep step;
  judge_exact(step, card, gate.report.ops.exact_host, gate.ops.units());
  return step.verdict == Verdict::fail;
}

void judge_bench(GateStep& step, const BenchReport& report, const SourceUnits& units) {
  const std::string fault = bench_fault(report);
  if (!fault.empty()) {
    step.verdict = Verdict::mistrusted;
    step.detail = fault;
    return;
  }
  for (const std::string& op : untimed(report, units)) {
    if (step.verdict == Verdict::pass) step.detail = fmt::format("op {}: no row times it", op);
    step.verdict = Verdict::fail;
    blame(step, op);
  }
  if (step.verdict != Verdict::pass) return;
  double best = 0;
  for (const BenchRow& row : report.rows) best = std::max(best, report.share(row));
  step.detail =
      fmt::format("{} rows, {} reads {:.0f} GB/s, best share {:.0f} %", report.rows.size(),
                  report.device, report.read_bytes_per_s / 1e9, 100 * best);
}

void op_bench(GateContext& gate, GateStep& step) {
  step.repro = "lockstep bench ops";
  if (no_card(gate, step)) return;
  gate.report.ops.bench = run_bench_ops(gate.ops.bench_program());
  judge_bench(step, gate.report.ops.bench, gate.ops.units());
}

// A row whose samples are gone.
bool op_bench_twin(GateContext& gate) {
  BenchReport report = gate.report.ops.bench;
  report.rows.back().samples.clear();
  GateStep step;
  judge_bench(step, report, gate.ops.units());
  return step.verdict == Verdict::mistrusted;
}

void judge_canary(GateStep& step, Verdict found, Verdict wanted, const std::string& what) {
  step.verdict = found == wanted ? Verdict::pass : Verdict::mistrusted;
  step.detail = fmt::format("{}: the judge said {}", what, verdict_name(found));
}

// The first mutant whose op has tests, judged as the op tests are.
void op_planted(GateContext& gate, GateStep& step) {
  if (no_card(gate, step)) return;
  const OpList& list = gate.ops.list();
  const std::set<std::string> tested = list.ops();
  for (const OpMutant& mutant : list.mutants) {
    const bool found_by_race = mutant.name.find("barrier") != std::string::npos;
    if (found_by_race || !tested.contains(mutant.op)) continue;
    const OpTestRun run = run_op_mutant(list, mutant.op, mutant.number);
    return judge_canary(step, judge_op_test(run), Verdict::fail, mutant.name);
  }
  step.verdict = Verdict::mistrusted;
  step.detail = "there is no mutant to plant";
}

void op_empty(GateContext& gate, GateStep& step) {
  if (no_card(gate, step)) return;
  const OpList& list = gate.ops.list();
  OpTestPlan plan;
  plan.program = list.folder / list.mutant_program;
  plan.filter = {"-*"};
  judge_canary(step, judge_op_test(run_op_test(plan)), Verdict::mistrusted, "a run of no case");
}

bool canary_twin(GateContext&) {
  GateStep step;
  judge_canary(step, Verdict::pass, Verdict::fail, "");
  return step.verdict == Verdict::mistrusted;
}

}  // namespace

const std::vector<CheckDefinition>& op_checks() {
  static const std::vector<CheckDefinition> checks = {
      {"card", "A card, and op programs of these sources", card, card_twin},
      {"op-bench", "Time of every op, alone on the card", op_bench, op_bench_twin},
      {"op-tests", "Every route of every CUDA op against its oracle", op_tests, op_tests_twin},
      {"op-exact", "Integer-exact cases on the card and on the host, same bits", op_exact,
       op_exact_twin},
      {"op-mutants", "Planted faults of the kernels are found by the op tests", op_mutants,
       op_mutants_twin},
      {"op-sanitizer", "compute-sanitizer finds nothing in samples of the op tests", op_sanitizer,
       op_sanitizer_twin},
      {"op-planted-fault", "Canary: a planted fault turns the op tests red", op_planted,
       canary_twin},
      {"op-empty-run", "Canary: op tests that run nothing are mistrusted", op_empty, canary_twin},
  };
  return checks;
}

}  // namespace lockstep
