#include "validation/ops/op_mutants.h"

#include <algorithm>
#include <set>

#include "validation/ops/op_sanitizer.h"
#include "validation/ops/process_pool.h"

namespace lockstep {
namespace {

constexpr double kLimit_s = 300;
constexpr const char* kArm = "LOCKSTEP_KERNEL_MUTANT";
// A race may show in some cases only; each costs a run under the sanitizer.
constexpr size_t kRaceCases = 3;

bool tests(const OpProgram& program, const std::string& op) {
  return std::find(program.ops.begin(), program.ops.end(), op) != program.ops.end();
}

std::vector<std::string> cases_of(const OpList& list, const std::string& op) {
  std::vector<std::string> all;
  for (const OpProgram& program : list.programs) {
    if (!tests(program, op)) continue;
    const std::vector<std::string> cases = list_op_cases(list.folder / program.program);
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

// The mutant program holds the tests of all ops: "Suite.*" of those of this one; none, which asks
// for all of them, for an op that no program names.
std::vector<std::string> suites_of(const OpList& list, const std::string& op) {
  std::vector<std::string> suites;
  for (const std::string& name : cases_of(list, op)) {
    const std::string suite = name.substr(0, name.find('.')) + ".*";
    if (std::find(suites.begin(), suites.end(), suite) == suites.end()) suites.push_back(suite);
  }
  return suites;
}

// The case under racecheck that shows the mutant; empty when none does.
std::string race(const OpList& list, const OpMutant& mutant, const std::string& sanitizer) {
  std::vector<std::string> cases = sample_first(cases_of(list, mutant.op), list.sanitizer_sample);
  if (cases.size() > kRaceCases) cases.resize(kRaceCases);
  for (const std::string& name : cases) {
    const SanitizerRun run =
        run_sanitizer(sanitizer, "racecheck", list.folder / list.mutant_program, name,
                      {{kArm, std::to_string(mutant.number)}});
    if (run.verdict == Verdict::fail) return "racecheck, " + name;
  }
  return {};
}

OpMutantResult try_mutant(const OpList& list, const OpMutant& mutant,
                          const std::string& sanitizer) {
  OpMutantResult result{mutant, false, {}};
  const OpTestRun run = run_op_mutant(list, mutant.op, mutant.number);
  if (judge_op_test(run) == Verdict::fail) {
    result.caught = true;
    result.by = first_failure(run);
  } else if (!sanitizer.empty()) {
    result.by = race(list, mutant, sanitizer);
    result.caught = !result.by.empty();
  }
  return result;
}

}  // namespace

OpTestRun run_op_mutant(const OpList& list, const std::string& op, int number) {
  OpTestPlan plan;
  plan.program = list.folder / list.mutant_program;
  plan.filter = suites_of(list, op);
  plan.stop_at_first = true;
  plan.limit_s = kLimit_s;
  plan.environment[kArm] = std::to_string(number);
  return run_op_test(plan);
}

OpMutantReport run_op_mutants(const OpList& list, const std::string& sanitizer, int n_workers) {
  std::set<std::string> ops;
  for (const OpMutant& mutant : list.mutants) ops.insert(mutant.op);
  const std::vector<std::string> names(ops.begin(), ops.end());
  std::vector<OpTestRun> honest(names.size());
  OpMutantReport report;
  report.results.resize(list.mutants.size());
  run_pool(names.size() + list.mutants.size(), n_workers, [&](size_t i) {
    if (i < names.size()) {
      honest[i] = run_op_mutant(list, names[i], 0);
    } else {
      const size_t j = i - names.size();
      report.results[j] = try_mutant(list, list.mutants[j], sanitizer);
    }
  });
  for (size_t i = 0; i < names.size(); ++i) {
    const Verdict verdict = judge_op_test(honest[i]);
    if (verdict == Verdict::pass) continue;
    const std::string words = first_failure(honest[i]);
    report.broken.push_back(names[i] + ": " + (words.empty() ? "runs no test" : words));
  }
  return report;
}

}  // namespace lockstep
