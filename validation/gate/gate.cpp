#include "validation/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "validation/compare/compare.h"
#include "validation/gate/check.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// In the order in which they are made: cards first, then what shares runs, the canaries last.
std::vector<CheckDefinition> all_checks() {
  std::vector<CheckDefinition> all;
  for (const auto* checks :
       {&op_checks(), &machine_checks(), &oracle_checks(), &invariant_checks(), &exact_checks(),
        &pinned_checks(), &mutant_checks(), &canary_checks()}) {
    all.insert(all.end(), checks->begin(), checks->end());
  }
  return all;
}

void require_known(const std::string& id, const std::string& where) {
  const auto all = all_checks();
  const bool known = std::any_of(all.begin(), all.end(),
                                 [&](const CheckDefinition& check) { return check.id == id; });
  if (!known) fail_with(ExitCode::usage, "{}: no check {}; see --list", where, id);
}

const PolicyCheck* find_check(const Policy& policy, const std::string& id) {
  for (const PolicyCheck& check : policy.checks) {
    if (check.id == id) return &check;
  }
  return nullptr;
}

std::string repro_line(const GateOptions& options, const std::string& id) {
  return fmt::format(
      "lockstep gate --policy {}{}{}{}{} --only {}",
      options.policy_argument.empty() ? options.policy.name : options.policy_argument,
      options.model.empty() ? "" : " --model " + options.model.string(),
      options.oracle.empty() ? "" : " --oracle " + options.oracle.string(),
      options.fault.empty() ? "" : " --fault " + options.fault,
      options.prompts.empty() ? "" : fmt::format(" --prompts {}", fmt::join(options.prompts, ",")),
      id);
}

class Gate {
 public:
  explicit Gate(const GateOptions& options)
      : options_(options),
        runs_(options),
        op_runs_(options),
        context_{options, runs_, op_runs_, report_} {}

  GateReport run(const GateProgress& progress);

 private:
  bool wanted(const std::string& id) const;
  void judge(const CheckDefinition& check, GateStep& step);
  void prove(const CheckDefinition& check, GateStep& step);
  void waive(GateStep& step) const;
  void book(GateStep step);
  std::vector<std::string> out_of_scope();

  const GateOptions& options_;
  GateRuns runs_;
  OpRuns op_runs_;
  GateReport report_;
  GateContext context_;
};

bool Gate::wanted(const std::string& id) const {
  const auto& only = options_.only;
  if (!only.empty()) return std::find(only.begin(), only.end(), id) != only.end();
  return find_check(options_.policy, id) != nullptr;
}

void Gate::judge(const CheckDefinition& check, GateStep& step) {
  try {
    check.run(context_, step);
    if (step.verdict == Verdict::pass && runs_.fault_never_fired()) {
      step.verdict = Verdict::error;
      step.detail = fmt::format("--fault {}: never fired", options_.fault);
    }
  } catch (const BackendMissing& missing) {
    skip(step, missing.what());
  } catch (const Error& error) {
    step.verdict = error.code() == ExitCode::fail ? Verdict::fail : Verdict::error;
    step.detail = error.what();
  }
}

// A check that passes with a planted mistake too has shown nothing.
void Gate::prove(const CheckDefinition& check, GateStep& step) {
  if (step.verdict != Verdict::pass || !options_.prove) return;
  try {
    step.proven = check.twin(context_);
  } catch (const Error& error) {
    step.detail = fmt::format("its twin could not be made: {}", error.what());
  }
  if (step.proven) return;
  step.verdict = Verdict::mistrusted;
  step.detail = "passes with a planted mistake too; " + step.detail;
}

// A waiver turns red into MISTRUSTED, never into PASS.
void Gate::waive(GateStep& step) const {
  if (step.verdict == Verdict::pass) return;
  const Waiver* waiver = waiver_for_check(options_.waivers, step.id, options_.today);
  if (waiver == nullptr) return;
  if (!options_.policy.accepts_waivers) {
    step.detail += fmt::format("; policy {} accepts no waiver", options_.policy.name);
    return;
  }
  step.waiver = fmt::format("{} until {}: {}", waiver->owner, waiver->expires, waiver->reason);
  step.detail += "; waived by " + step.waiver;
  step.verdict = Verdict::mistrusted;
}

void Gate::book(GateStep step) {
  const bool listed_only = !step.required && step.verdict == Verdict::skipped;
  if (!listed_only) report_.verdict = merge(report_.verdict, step.verdict);
  report_.steps.push_back(std::move(step));
}

GateReport Gate::run(const GateProgress& progress) {
  report_.machine = probe::read_machine(options_.machine);
  for (const CheckDefinition& check : all_checks()) {
    if (!wanted(check.id)) continue;
    GateStep step;
    step.id = check.id;
    step.title = check.title;
    step.repro = repro_line(options_, step.id);
    const PolicyCheck* listed = find_check(options_.policy, step.id);
    step.required = listed == nullptr || listed->required;
    if (progress.begin) progress.begin(step);
    const Clock::time_point start = Clock::now();
    judge(check, step);
    prove(check, step);
    waive(step);
    step.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (progress.end) progress.end(step);
    book(std::move(step));
  }
  if (report_.steps.empty()) report_.verdict = merge(report_.verdict, Verdict::mistrusted);
  report_.complete = options_.only.empty() && options_.fault.empty() && options_.prompts.empty();
  report_.run_digests = runs_.digests();
  report_.not_checked = out_of_scope();
  return std::move(report_);
}

std::vector<std::string> Gate::out_of_scope() {
  std::vector<std::string> lines = options_.policy.not_checked;
  try {
    const auto left_out = [](const OraclePrompt& prompt) { return !prompt.in_scope; };
    const std::vector<OraclePrompt>& prompts = runs_.oracle().prompts;
    if (std::any_of(prompts.begin(), prompts.end(), left_out)) {
      lines.emplace_back(kImageOutOfScope);
    }
  } catch (const Error&) {
    // An unreadable oracle has its ERROR in the checks already.
  }
  return lines;
}

}  // namespace

double MutationReport::score() const {
  const int n = total - equivalent;
  return n > 0 ? static_cast<double>(killed) / n : 0.0;
}

int GateReport::n_proven() const {
  return static_cast<int>(
      std::count_if(steps.begin(), steps.end(), [](const GateStep& step) { return step.proven; }));
}

std::vector<std::pair<std::string, std::string>> gate_checks() {
  std::vector<std::pair<std::string, std::string>> checks;
  for (const CheckDefinition& check : all_checks()) checks.emplace_back(check.id, check.title);
  return checks;
}

void require_known_checks(const GateOptions& options) {
  for (const PolicyCheck& check : options.policy.checks) {
    require_known(check.id, "policy " + options.policy.name);
  }
  for (const std::string& id : options.only) require_known(id, "--only");
}

GateReport run_gate(const GateOptions& options, const GateProgress& progress) {
  require_known_checks(options);
  return Gate(options).run(progress);
}

std::string pinned_bits(const GateOptions& options) {
  GateRuns runs(options);
  OpRuns op_runs(options);
  GateReport report;
  GateContext context{options, runs, op_runs, report};
  return pinned_bits_json(context);
}

std::string gate_json(const GateReport& report, double seconds) {
  using Json = nlohmann::ordered_json;
  Json checks = Json::array();
  for (const GateStep& step : report.steps) {
    checks.push_back({{"id", step.id},
                      {"verdict", verdict_name(step.verdict)},
                      {"figure", step.detail},
                      {"repro", step.repro}});
  }
  const MutationReport& mutation = report.mutation;
  const Json json = {
      {"verdict", verdict_name(report.verdict)},
      {"checks", checks},
      {"mutation",
       {{"total", mutation.total},
        {"killed", mutation.killed},
        {"equivalent", mutation.equivalent},
        {"survivors", mutation.survivors},
        {"score", mutation.score()}}},
      {"proven", {{"checks", report.steps.size()}, {"able_to_fail", report.n_proven()}}},
      {"seconds", seconds}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
