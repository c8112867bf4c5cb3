// Checks that need something of the machine: cards, receipts, a probe, an older build to race.
#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "validation/gate/check.h"
#include "validation/gate/gpu_facts.h"
#include "validation/receipt/coverage.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void cuda_device(GateContext& gate, GateStep& step) {
  const std::string& missing = gate.runs.backend_missing();
  if (!missing.empty()) return skip(step, missing);
  const std::vector<GpuFacts> gpus = installed_gpus();
  step.detail = gpus.empty()
                    ? "the engine runs on its backend"
                    : fmt::format("{} ({}), {}", gpus[0].model, gpus[0].uuid, driver_version());
}

// An engine that does not exist must be missed.
bool cuda_device_twin(GateContext& gate) {
  GateOptions options = gate.options;
  options.engine = "/nonexistent/lockstep-generate";
  options.policy.backend = "cuda";
  return !GateRuns(options).backend_missing().empty();
}

void judge_two_gpus(GateStep& step, const std::vector<GpuFacts>& gpus) {
  if (gpus.size() < 2) {
    return skip(step, fmt::format("this machine has {} NVIDIA cards, two are needed", gpus.size()));
  }
  step.detail = fmt::format("{} and {}", gpus[0].model, gpus[1].model);
}

void two_gpus(GateContext&, GateStep& step) {
  judge_two_gpus(step, installed_gpus());
}

bool two_gpus_twin(GateContext&) {
  GateStep step;
  judge_two_gpus(step, {GpuFacts{}});
  return step.verdict == Verdict::skipped;
}

PolicyCoverage gpu_coverage(GateContext& gate, const fs::path& receipts) {
  const GateOptions& options = gate.options;
  // A policy that takes no waiver sees none: an op without a receipt is a FAIL there.
  const std::vector<Waiver> waivers =
      options.policy.accepts_waivers ? options.waivers : std::vector<Waiver>();
  return policy_coverage(
      "gpu", {options.source, receipts, waivers, options.today, gate.ops.exact_program()});
}

void receipts(GateContext& gate, GateStep& step) {
  const GateOptions& options = gate.options;
  step.repro = fmt::format("lockstep receipt verify {}", options.receipts.string());
  if (options.source.empty()) return skip(step, "no source tree beside this program: use --source");
  const PolicyCoverage coverage = gpu_coverage(gate, options.receipts);
  step.verdict = coverage.verdict;
  step.detail =
      fmt::format("{}, {} ops", coverage.receipt.empty() ? "no receipt" : coverage.receipt,
                  coverage.units.size());
  for (const UnitCoverage& unit : coverage.units) {
    if (unit.verdict != coverage.verdict || unit.verdict == Verdict::pass) continue;
    step.detail = fmt::format("op {}: {}", unit.unit, unit.detail);
    return;
  }
  if (coverage.verdict != Verdict::pass && !coverage.reasons.empty()) {
    step.detail = coverage.reasons.back();
  }
}

// An empty folder covers nothing.
bool receipts_twin(GateContext& gate) {
  const TempDir empty;
  return gpu_coverage(gate, empty.path()).verdict != Verdict::pass;
}

// Verdict of a program of ours from its exit code.
void judge_program(GateStep& step, const std::vector<std::string>& argv) {
  const ProcessResult result = run_process(argv, std::chrono::hours(1));
  if (result.timed_out) fail_with(ExitCode::could_not_judge, "{}: did not end", argv[0]);
  const std::string words = failure_reason(result.stderr_text);
  if (result.exit_code == static_cast<int>(ExitCode::pass)) {
    step.detail = "passed";
  } else if (result.exit_code == static_cast<int>(ExitCode::skipped)) {
    skip(step, words.empty() ? "nothing to judge" : words);
  } else {
    step.verdict = result.exit_code == static_cast<int>(ExitCode::fail) ? Verdict::fail
                   : result.exit_code == static_cast<int>(ExitCode::mistrusted)
                       ? Verdict::mistrusted
                       : Verdict::error;
    step.detail = words.empty() ? fmt::format("exit code {}", result.exit_code) : words;
  }
}

bool program_twin(GateContext&) {
  GateStep step;
  judge_program(step, {"false"});
  return step.verdict == Verdict::fail;
}

// The probe's verdict, and whatever makes the numbers of this machine doubtful.
void judge_machine(GateStep& step, const probe::MachineRecord& machine) {
  step.detail = machine.line();
  if (machine.verdict == "REJECT") {
    step.verdict = Verdict::fail;
  } else if (machine.doubtful() || machine.verdict == "INCONCLUSIVE") {
    step.verdict = Verdict::mistrusted;
  }
}

void probe_profile(GateContext& gate, GateStep& step) {
  const TempDir dir;
  fs::path profile = gate.options.machine;
  step.repro = "lockstep probe --standard --profile FILE; lockstep gate --machine FILE";
  if (profile.empty()) {
    if (!step.required) return skip(step, "no profile of this machine was given: --machine FILE");
    if (!gate.ops.missing().empty()) return skip(step, gate.ops.missing());
    profile = dir.path() / "machine.json";
    // Its exit codes are verdicts of its own; the profile carries them too.
    const ProcessResult result = run_process(
        {sibling_program("lockstep-probe").string(), "--quick", "--profile", profile.string()},
        std::chrono::hours(1));
    if (!fs::exists(profile))
      fail_with(ExitCode::could_not_judge, "{}", failure_reason(result.stderr_text));
    gate.report.machine = probe::read_machine(profile);
  }
  judge_machine(step, gate.report.machine);
}

// A card that was slowed by heat must not pass.
bool probe_profile_twin(GateContext& gate) {
  probe::MachineRecord hot = gate.report.machine;
  hot.marks.push_back("throttled");
  GateStep step;
  judge_machine(step, hot);
  return step.verdict == Verdict::mistrusted;
}

void bench_gate(GateContext& gate, GateStep& step) {
  const fs::path& baseline = gate.options.baseline;
  if (!gate.runs.backend_missing().empty()) return skip(step, gate.runs.backend_missing());
  if (baseline.empty()) return skip(step, "no build to compare with: use --baseline DIR");
  const std::string here = sibling_program("").parent_path().string();
  const std::string& backend = gate.options.policy.backend;
  step.repro =
      fmt::format("lockstep bench gate {} {} --backend {}", baseline.string(), here, backend);
  judge_program(step, {sibling_program("lockstep-bench").string(), "gate", baseline.string(), here,
                       "--backend", backend, "--model", gate.options.model.string()});
}

}  // namespace

const std::vector<CheckDefinition>& machine_checks() {
  static const std::vector<CheckDefinition> checks = {
      {"cuda-device", "The engine runs on this machine's card", cuda_device, cuda_device_twin},
      {"two-gpus", "Two cards for TP=2", two_gpus, two_gpus_twin},
      {"receipts", "GPU receipts cover the present sources of every CUDA op", receipts,
       receipts_twin},
      {"probe-profile", "The hardware probe accepts the cards", probe_profile, probe_profile_twin},
      {"bench-gate", "Not slower than the build in --baseline", bench_gate, program_twin},
  };
  return checks;
}

}  // namespace lockstep
