#include "validation/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/base/error.h"
#include "validation/gate/gate_runs.h"
#include "validation/gate/run_digest.h"

namespace lockstep {
namespace {

// One GDN head's state is lost when decode starts: the prompt's taps stay right, so only a judge
// that looks at states, decode and margins can see it.
constexpr const char* kPlantedFault = "gdn.head-state-lost-at-prompt-end";

// Longer than any prompt of the oracle: prefill in one piece. A multiple of the GDN chunk of 64.
constexpr int kOnePiece = 8192;
constexpr int kSmallGrid = 64;
// TP=1 runs the requests one by one, TP=2 several together: comparing both also shows that a
// request does not depend on its neighbours (I6), and decode reads the weights once for all of
// them.
constexpr int kSlots = 4;
// All recorded decode positions and as many again.
constexpr int kTokensAfterPrefill = 16;

const RunSpec kTp1Fp32{.label = "tp1-fp32", .tp = 1, .precision = Precision::fp32};
const RunSpec kTp2Fp32{.label = "tp2-fp32",
                       .tp = 2,
                       .precision = Precision::fp32,
                       .slots = kSlots,
                       .use_shards = true};
const RunSpec kTp1Bf16{
    .label = "tp1-bf16", .tp = 1, .precision = Precision::bf16, .prefill_grid = kOnePiece};
const RunSpec kTp2Bf16{.label = "tp2-bf16",
                       .tp = 2,
                       .precision = Precision::bf16,
                       .prefill_grid = kOnePiece,
                       .slots = kSlots,
                       .use_shards = true};
// The prefill under test, and as many tokens as show what it left behind.
const RunSpec kTp2Bf16Grid{.label = "tp2-bf16-grid64",
                           .tp = 2,
                           .precision = Precision::bf16,
                           .prefill_grid = kSmallGrid,
                           .slots = kSlots,
                           .max_tokens = kTokensAfterPrefill,
                           .use_shards = true};
const RunSpec kTp2Bf16Again{.label = "tp2-bf16-grid64-again",
                            .tp = 2,
                            .precision = Precision::bf16,
                            .prefill_grid = kSmallGrid,
                            .slots = kSlots,
                            .max_tokens = kTokensAfterPrefill,
                            .use_shards = true};
const RunSpec kFaulty{.label = "tp2-fp32-faulty",
                      .tp = 2,
                      .precision = Precision::fp32,
                      .fault = kPlantedFault,
                      .short_prompts = true};

class QuickGate;

struct StepDefinition {
  const char* id;
  const char* title;
  void (QuickGate::*run)(GateStep& step);
};

class QuickGate {
 public:
  explicit QuickGate(const GateOptions& options) : options_(options), runs_(options) {}

  GateReport run(const GateProgress& progress);
  static const std::vector<StepDefinition>& definitions();

 private:
  void shard(GateStep& step);
  void verify(GateStep& step);
  void oracle_tp1_fp32(GateStep& step) { against_oracle(step, kTp1Fp32); }
  void oracle_tp2_fp32(GateStep& step) { against_oracle(step, kTp2Fp32); }
  void oracle_tp1_bf16(GateStep& step) { against_oracle(step, kTp1Bf16); }
  void oracle_tp2_bf16(GateStep& step) { against_oracle(step, kTp2Bf16); }
  void ranks_agree(GateStep& step);
  void same_again(GateStep& step) { same_bits(step, kTp2Bf16Grid, kTp2Bf16Again); }
  void same_over_tp_fp32(GateStep& step) { same_bits(step, kTp1Fp32, kTp2Fp32); }
  void same_over_tp_bf16(GateStep& step) { same_bits(step, kTp1Bf16, kTp2Bf16); }
  void same_over_grid(GateStep& step) { same_bits(step, kTp2Bf16, kTp2Bf16Grid); }
  void planted_fault(GateStep& step);
  void empty_run(GateStep& step);

  void against_oracle(GateStep& step, const RunSpec& spec);
  void same_bits(GateStep& step, const RunSpec& a, const RunSpec& b);
  bool wanted(const std::string& id) const;
  std::vector<std::string> out_of_scope();
  void run_step(const StepDefinition& definition, GateStep& step);

  const GateOptions& options_;
  GateRuns runs_;
  GateReport report_;
};

const std::vector<StepDefinition>& QuickGate::definitions() {
  static const std::vector<StepDefinition> kSteps = {
      {"shard", "Split the checkpoint for two ranks", &QuickGate::shard},
      {"verify", "Shards rejoin to the checkpoint, bit for bit", &QuickGate::verify},
      {"oracle-tp1-fp32", "TP=1 fp32 against the oracle", &QuickGate::oracle_tp1_fp32},
      {"oracle-tp2-fp32", "TP=2 fp32 against the oracle", &QuickGate::oracle_tp2_fp32},
      {"oracle-tp1-bf16", "TP=1 bf16 against the oracle", &QuickGate::oracle_tp1_bf16},
      {"oracle-tp2-bf16", "TP=2 bf16 against the oracle", &QuickGate::oracle_tp2_bf16},
      {"i1", "I1: the same run again, same bits", &QuickGate::same_again},
      {"i2", "I2: both ranks hold the same bits", &QuickGate::ranks_agree},
      {"i3-fp32", "I3, I6: TP=1 alone and TP=2 among others, same bits, fp32",
       &QuickGate::same_over_tp_fp32},
      {"i3-bf16", "I3, I6: TP=1 alone and TP=2 among others, same bits, bf16",
       &QuickGate::same_over_tp_bf16},
      {"prefill-grid", "Prefill on a grid of 64 and in one piece, same bits",
       &QuickGate::same_over_grid},
      {"planted-fault", "A planted fault turns the comparison red", &QuickGate::planted_fault},
      {"empty-run", "A run that compares nothing is mistrusted", &QuickGate::empty_run},
  };
  return kSteps;
}

bool QuickGate::wanted(const std::string& id) const {
  const auto& only = options_.only;
  return only.empty() || std::find(only.begin(), only.end(), id) != only.end();
}

void QuickGate::run_step(const StepDefinition& definition, GateStep& step) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  try {
    (this->*definition.run)(step);
  } catch (const Error& error) {
    step.verdict = error.code() == ExitCode::fail ? Verdict::fail : Verdict::error;
    step.detail = error.what();
  }
  step.seconds = std::chrono::duration<double>(Clock::now() - start).count();
}

GateReport QuickGate::run(const GateProgress& progress) {
  for (const StepDefinition& definition : definitions()) {
    if (!wanted(definition.id)) continue;
    GateStep step;
    step.id = definition.id;
    step.title = definition.title;
    step.repro = fmt::format("lockstep gate --quick --model {} --oracle {}{} --only {}",
                             options_.model.string(), options_.oracle.string(),
                             options_.fault.empty() ? "" : " --fault " + options_.fault, step.id);
    if (progress.begin) progress.begin(step);
    run_step(definition, step);
    if (progress.end) progress.end(step);
    report_.verdict = merge(report_.verdict, step.verdict);
    report_.steps.push_back(std::move(step));
  }
  if (report_.steps.empty()) report_.verdict = merge(report_.verdict, Verdict::mistrusted);
  report_.run_digests = runs_.digests();
  report_.not_checked = out_of_scope();
  return std::move(report_);
}

std::vector<std::string> QuickGate::out_of_scope() {
  std::vector<std::string> lines = {"CUDA backend: this gate runs on the CPU"};
  try {
    const auto left_out = [](const OraclePrompt& prompt) { return !prompt.in_scope; };
    const std::vector<OraclePrompt>& prompts = runs_.oracle().prompts;
    if (std::any_of(prompts.begin(), prompts.end(), left_out)) {
      lines.emplace_back(kImageOutOfScope);
    }
  } catch (const Error&) {
    // An unreadable oracle has its ERROR in the steps already.
  }
  return lines;
}

void QuickGate::shard(GateStep& step) {
  runs_.shards();
  step.repro =
      fmt::format("lockstep weights shard --model {} --tp 2 --out DIR", options_.model.string());
  step.detail = "two shard files";
}

void QuickGate::verify(GateStep& step) {
  const std::string shards = runs_.shards().string();
  run_tool(
      {runs_.weights_program(), "verify", "--model", options_.model.string(), "--shards", shards});
  step.detail = "every tensor rejoined";
}

// The worst tap as a share of its limit, over all prompts.
std::string worst_tap_text(const CompareReport& report) {
  const TapRow* worst = nullptr;
  std::string prompt_name;
  const auto share = [](const TapRow& row) { return row.diff.rel_l2 / row.limit.rel_l2; };
  for (const PromptReport& prompt : report.prompts) {
    for (const TapRow& row : prompt.taps) {
      if (row.limit.rel_l2 > 0 && (worst == nullptr || share(row) > share(*worst))) {
        worst = &row;
        prompt_name = prompt.name;
      }
    }
  }
  if (worst == nullptr) return "nothing compared";
  return fmt::format("worst {:.2e} of {:.2e} at {} of {}", worst->diff.rel_l2, worst->limit.rel_l2,
                     worst->tap, prompt_name);
}

// "12 prompts, 1152/1152 tokens, margins to 4e-05, worst 2.1e-06 of 2e-05 at layers.7.out of zh-2k"
std::string comparison_text(const CompareReport& report) {
  int64_t n_prompts = 0;
  int64_t n_match = 0;
  int64_t length = 0;
  double margin = 0;
  for (const PromptReport& prompt : report.prompts) {
    if (prompt.skipped) continue;
    ++n_prompts;
    n_match += prompt.greedy.n_match;
    length += prompt.greedy.length;
    margin = std::max(margin, prompt.greedy.worst_margin_err);
  }
  return fmt::format("{} prompts, {}/{} tokens, margins to {:.1e}, {}", n_prompts, n_match, length,
                     margin, worst_tap_text(report));
}

// The first reason of the worst prompt, else of the run.
std::string first_reason(const CompareReport& report) {
  for (const PromptReport& prompt : report.prompts) {
    if (!prompt.skipped && prompt.verdict == report.verdict && !prompt.reasons.empty()) {
      return prompt.name + ": " + prompt.reasons[0];
    }
  }
  return report.reasons.empty() ? "" : report.reasons[0];
}

void QuickGate::against_oracle(GateStep& step, const RunSpec& spec) {
  const char* precision = spec.precision == Precision::fp32 ? "fp32" : "bf16";
  step.repro =
      fmt::format("lockstep compare --model {} --oracle {} --tp {} --precision {}{}{}{} --verbose",
                  options_.model.string(), options_.oracle.string(), spec.tp, precision,
                  spec.prefill_grid ? fmt::format(" --prefill-grid {}", *spec.prefill_grid) : "",
                  spec.slots ? fmt::format(" --slots {}", *spec.slots) : "",
                  options_.fault.empty() ? "" : " --fault " + options_.fault);
  const std::vector<EngineResult>& results = runs_.results(spec);
  CompareReport report = judge_run(runs_.oracle(), results, spec.precision, options_.model);
  step.verdict = report.verdict;
  step.detail = report.verdict == Verdict::pass ? comparison_text(report) : first_reason(report);
  report_.comparisons.push_back({step.title, spec.precision, std::move(report)});
}

void QuickGate::same_bits(GateStep& step, const RunSpec& a, const RunSpec& b) {
  std::vector<EngineResult> first = runs_.results(a);
  std::vector<EngineResult> second = runs_.results(b);
  if (first.empty()) {
    step.verdict = Verdict::mistrusted;
    step.detail = "no prompt was run";
    return;
  }
  std::string what = "all tokens";
  const int n_tokens = std::max(a.max_tokens, b.max_tokens);
  if (n_tokens > 0) {
    first = first_tokens(std::move(first), static_cast<size_t>(n_tokens));
    second = first_tokens(std::move(second), static_cast<size_t>(n_tokens));
    what = fmt::format("the first {} tokens", n_tokens);
  }
  const std::string difference = first_difference(first, second);
  step.verdict = difference.empty() ? Verdict::pass : Verdict::fail;
  step.detail =
      difference.empty()
          ? fmt::format("{} prompts, all taps, {}: {}", first.size(), what, run_digest(first))
          : fmt::format("{} and {} differ first at {}", a.label, b.label, difference);
}

void QuickGate::ranks_agree(GateStep& step) {
  size_t n_taps = 0;
  for (const RunSpec* spec : {&kTp2Fp32, &kTp2Bf16}) {
    for (const EngineResult& result : runs_.results(*spec)) {
      n_taps += result.dump.taps.size() + 1;
      if (result.dump.rank_differences.empty()) continue;
      step.verdict = Verdict::fail;
      step.detail = fmt::format("{}: {}: ranks differ at {}", spec->label, result.name,
                                result.dump.rank_differences[0]);
      return;
    }
  }
  step.verdict = n_taps == 0 ? Verdict::mistrusted : Verdict::pass;
  step.detail = fmt::format("{} tensors and token lists", n_taps);
}

void QuickGate::planted_fault(GateStep& step) {
  const std::vector<EngineResult>& results = runs_.results(kFaulty);
  const CompareReport report =
      judge_run(runs_.short_oracle(), results, Precision::fp32, options_.model);
  // Anything but FAIL means that the gate is blind, whatever else it found.
  step.verdict = report.verdict == Verdict::fail ? Verdict::pass : Verdict::fail;
  step.detail = report.verdict == Verdict::fail
                    ? fmt::format("{}: caught: {}", kPlantedFault, first_reason(report))
                    : fmt::format("{}: not caught, the comparison said {}", kPlantedFault,
                                  verdict_name(report.verdict));
  step.repro =
      fmt::format("lockstep compare --model {} --oracle {} --tp 2 --precision fp32 --fault {}",
                  options_.model.string(), options_.oracle.string(), kPlantedFault);
}

void QuickGate::empty_run(GateStep& step) {
  Oracle nothing = runs_.oracle();
  for (OraclePrompt& prompt : nothing.prompts) prompt.in_scope = false;
  const Verdict verdict = judge_run(nothing, {}, Precision::fp32, options_.model).verdict;
  step.verdict = verdict == Verdict::mistrusted ? Verdict::pass : Verdict::fail;
  step.detail = fmt::format("the comparison said {}", verdict_name(verdict));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> quick_gate_steps() {
  std::vector<std::pair<std::string, std::string>> steps;
  for (const StepDefinition& step : QuickGate::definitions())
    steps.emplace_back(step.id, step.title);
  return steps;
}

GateReport run_quick_gate(const GateOptions& options, const GateProgress& progress) {
  const auto steps = quick_gate_steps();
  for (const std::string& id : options.only) {
    const bool known =
        std::any_of(steps.begin(), steps.end(), [&](const auto& step) { return step.first == id; });
    if (!known) fail_with(ExitCode::usage, "--only {}: no such step; see --list", id);
  }
  return QuickGate(options).run(progress);
}

}  // namespace lockstep
