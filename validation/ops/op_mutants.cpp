#include "validation/ops/op_mutants.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "validation/ops/op_sanitizer.h"
#include "validation/ops/process_pool.h"

namespace lockstep {
namespace {

constexpr double kLimit_s = 300;
constexpr const char* kArm = "LOCKSTEP_KERNEL_MUTANT";
// A race may show in some cases only; each costs a run under the sanitizer.
constexpr size_t kRaceCases = 8;
// Of the tests of one op: a mutant that only late cases find is found sooner.
constexpr int kShards = 4;

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

OpTestRun run_mutant_shard(const OpList& list, const std::vector<std::string>& suites, int number,
                           int shard, int n_shards) {
  OpTestPlan plan;
  plan.program = list.folder / list.mutant_program;
  plan.filter = suites;
  plan.stop_at_first = true;
  plan.limit_s = kLimit_s;
  plan.shard = shard;
  plan.n_shards = n_shards;
  plan.environment[kArm] = std::to_string(number);
  return run_op_test(plan);
}

// Ops whose tests are the same suites, and those suites without a mutant.
struct Honest {
  std::vector<std::string> suites;
  std::vector<std::string> ops;
  std::vector<OpTestRun> shards;

  OpTestRun whole() const {
    OpTestRun all;
    for (const OpTestRun& shard : shards) {
      all.cases.insert(all.cases.end(), shard.cases.begin(), shard.cases.end());
      if (!shard.broken.empty()) all.broken = shard.broken;
    }
    return all;
  }
};

std::vector<Honest> honest_runs(const OpList& list) {
  std::map<std::vector<std::string>, std::set<std::string>> ops;
  for (const OpMutant& mutant : list.mutants) ops[suites_of(list, mutant.op)].insert(mutant.op);
  std::vector<Honest> runs;
  for (const auto& [suites, names] : ops) {
    runs.push_back({suites, {names.begin(), names.end()}, std::vector<OpTestRun>(kShards)});
  }
  return runs;
}

// One shard of one mutant; nothing when another shard has found it.
struct MutantShards {
  std::vector<std::string> suites;
  std::mutex mutex;
  std::string found_by;

  bool found() {
    const std::scoped_lock lock(mutex);
    return !found_by.empty();
  }
  void look(const OpList& list, const OpMutant& mutant, int shard) {
    if (found()) return;
    const OpTestRun run = run_mutant_shard(list, suites, mutant.number, shard, kShards);
    if (judge_op_test(run) != Verdict::fail) return;
    const std::scoped_lock lock(mutex);
    if (found_by.empty()) found_by = first_failure(run);
  }
};

}  // namespace

OpTestRun run_op_mutant(const OpList& list, const std::string& op, int number) {
  return run_mutant_shard(list, suites_of(list, op), number, 0, 1);
}

OpMutantReport run_op_mutants(const OpList& list, const std::string& sanitizer, int n_workers) {
  std::vector<Honest> honest = honest_runs(list);
  std::vector<MutantShards> mutants(list.mutants.size());
  for (size_t i = 0; i < mutants.size(); ++i) {
    for (const Honest& run : honest) {
      const auto& ops = run.ops;
      const bool is_its_op = std::find(ops.begin(), ops.end(), list.mutants[i].op) != ops.end();
      if (is_its_op) mutants[i].suites = run.suites;
    }
  }
  // First shards of all mutants before second ones: most are found by then.
  const size_t n_honest = honest.size() * kShards;
  run_pool(n_honest + mutants.size() * kShards, n_workers, [&](size_t i) {
    if (i < n_honest) {
      const int shard = static_cast<int>(i % kShards);
      Honest& run = honest[i / kShards];
      run.shards[i % kShards] = run_mutant_shard(list, run.suites, 0, shard, kShards);
      return;
    }
    const size_t task = i - n_honest;
    const size_t m = task % mutants.size();
    mutants[m].look(list, list.mutants[m], static_cast<int>(task / mutants.size()));
  });
  run_pool(mutants.size(), n_workers, [&](size_t i) {
    if (!mutants[i].found_by.empty() || sanitizer.empty()) return;
    mutants[i].found_by = race(list, list.mutants[i], sanitizer);
  });
  OpMutantReport report;
  for (size_t i = 0; i < mutants.size(); ++i) {
    report.results.push_back({list.mutants[i], !mutants[i].found_by.empty(), mutants[i].found_by});
  }
  for (const Honest& run : honest) {
    const OpTestRun whole = run.whole();
    if (judge_op_test(whole) == Verdict::pass) continue;
    const std::string words = first_failure(whole);
    for (const std::string& op : run.ops) {
      report.broken.push_back(op + ": " + (words.empty() ? "runs no test" : words));
    }
  }
  return report;
}

}  // namespace lockstep
