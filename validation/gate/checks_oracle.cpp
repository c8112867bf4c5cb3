// Shards, the oracle at both degrees and precisions, and the invariants that one pair of runs
// shows.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <fstream>

#include "engine/base/error.h"
#include "validation/gate/check.h"
#include "validation/gate/run_digest.h"
#include "validation/gate/run_specs.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void shard(GateContext& gate, GateStep& step) {
  gate.runs.shards();
  step.repro = fmt::format("lockstep weights shard --model {} --tp 2 --out DIR",
                           gate.options.model.string());
  step.detail = "two shard files";
}

bool is_refused(const std::vector<std::string>& argv) {
  try {
    run_tool(argv);
  } catch (const Error&) {
    return true;
  }
  return false;
}

// A checkpoint that is not there cannot be split.
bool shard_twin(GateContext& gate) {
  const TempDir folder;
  return is_refused({gate.runs.weights_program(), "shard", "--model",
                     (folder.path() / "missing").string(), "--tp", "2", "--out",
                     (folder.path() / "out").string()});
}

std::vector<std::string> verify_command(GateContext& gate, const fs::path& shards) {
  return {gate.runs.weights_program(), "verify",   "--model",
          gate.options.model.string(), "--shards", shards.string()};
}

void verify(GateContext& gate, GateStep& step) {
  run_tool(verify_command(gate, gate.runs.shards()));
  step.detail = "every tensor rejoined";
}

// One bit of the last byte of every shard file.
bool verify_twin(GateContext& gate) {
  const TempDir folder;
  const fs::path corrupt = folder.path() / "corrupt";
  fs::copy(gate.runs.shards(), corrupt, fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(corrupt)) {
    if (!entry.is_regular_file() || entry.file_size() == 0) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char last = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }
  return is_refused(verify_command(gate, corrupt));
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

// A run that was fed tokens has no text of its own.
void note_other_texts(GateContext& gate, const GateStep& step, const RunSpec& spec,
                      const std::vector<EngineResult>& results) {
  if (spec.precision != Precision::fp32) return;
  for (const OraclePrompt& prompt : gate.runs.oracle().prompts) {
    for (const EngineResult& result : results) {
      if (result.name != prompt.name) continue;
      note_divergence(gate, step, {"oracle", prompt.name, prompt.greedy, prompt.shown_text()},
                      {spec.label, result.name, result.ids, result.text});
    }
  }
}

void against_oracle(GateContext& gate, GateStep& step, const RunSpec& spec) {
  const GateOptions& options = gate.options;
  const char* precision = spec.precision == Precision::fp32 ? "fp32" : "bf16";
  step.repro = fmt::format(
      "lockstep compare --model {} --oracle {} --tp {} --precision {}{}{}{}{} --verbose",
      options.model.string(), options.oracle.string(), spec.tp, precision,
      gate.runs.backend_of(spec) == "cpu" ? "" : " --backend " + gate.runs.backend_of(spec),
      spec.prefill_grid ? fmt::format(" --prefill-grid {}", *spec.prefill_grid) : "",
      spec.slots ? fmt::format(" --slots {}", *spec.slots) : "",
      options.fault.empty() ? "" : " --fault " + options.fault);
  const std::vector<EngineResult>& results = gate.runs.results(spec);
  CompareReport report = judge_run(gate.runs.oracle(), results, spec.precision, options.model);
  step.verdict = report.verdict;
  step.detail = report.verdict == Verdict::pass ? comparison_text(report) : first_reason(report);
  note_other_texts(gate, step, spec, results);
  gate.report.comparisons.push_back({step.title, spec.precision, std::move(report)});
}

// The final norm of the first prompt, half as large again.
bool oracle_twin(GateContext& gate, const RunSpec& spec) {
  std::vector<EngineResult> results = gate.runs.results(spec);
  for (float& value : results.at(0).dump.taps.at("final_norm").values) value *= 1.5f;
  return judge_run(gate.runs.oracle(), results, spec.precision, gate.options.model).verdict ==
         Verdict::fail;
}

template <const RunSpec& spec>
void run_oracle(GateContext& gate, GateStep& step) {
  against_oracle(gate, step, spec);
}
template <const RunSpec& spec>
bool twin_oracle(GateContext& gate) {
  return oracle_twin(gate, spec);
}

// Both runs cut down to what they share.
std::pair<std::vector<EngineResult>, std::vector<EngineResult>> common_part(GateContext& gate,
                                                                            const RunSpec& a,
                                                                            const RunSpec& b) {
  std::vector<EngineResult> first = gate.runs.results(a);
  std::vector<EngineResult> second = gate.runs.results(b);
  const int n_tokens = std::max(a.max_tokens, b.max_tokens);
  if (n_tokens > 0) {
    first = first_tokens(std::move(first), static_cast<size_t>(n_tokens));
    second = first_tokens(std::move(second), static_cast<size_t>(n_tokens));
  }
  return {std::move(first), std::move(second)};
}

void same_bits(GateContext& gate, GateStep& step, const RunSpec& a, const RunSpec& b) {
  const auto [first, second] = common_part(gate, a, b);
  if (first.empty()) {
    step.verdict = Verdict::mistrusted;
    step.detail = "no prompt was run";
    return;
  }
  const int n_tokens = std::max(a.max_tokens, b.max_tokens);
  const std::string what =
      n_tokens > 0 ? fmt::format("the first {} tokens", n_tokens) : std::string("all tokens");
  const std::string difference = first_difference(first, second);
  step.verdict = difference.empty() ? Verdict::pass : Verdict::fail;
  step.detail =
      difference.empty()
          ? fmt::format("{} prompts, all taps, {}: {}", first.size(), what, run_digest(first))
          : fmt::format("{} and {} differ first at {}", a.label, b.label, difference);
  note_divergences(gate, step, a.label, first, b.label, second);
}

template <const RunSpec& a, const RunSpec& b>
void run_same(GateContext& gate, GateStep& step) {
  same_bits(gate, step, a, b);
}
template <const RunSpec& a, const RunSpec& b>
bool twin_same(GateContext& gate) {
  auto [first, second] = common_part(gate, a, b);
  flip_one_bit(second);
  return !first_difference(first, second).empty();
}

void judge_ranks(GateStep& step, const std::vector<EngineResult>& results, const std::string& label,
                 size_t& n_taps) {
  for (const EngineResult& result : results) {
    n_taps += result.dump.taps.size() + 1;
    if (result.dump.rank_differences.empty() || step.verdict == Verdict::fail) continue;
    step.verdict = Verdict::fail;
    step.detail = fmt::format("{}: {}: ranks differ at {}", label, result.name,
                              result.dump.rank_differences[0]);
  }
}

void ranks_agree(GateContext& gate, GateStep& step) {
  size_t n_taps = 0;
  for (const RunSpec* spec : {&kTp2Fp32, &kTp2Bf16}) {
    judge_ranks(step, gate.runs.results(*spec), spec->label, n_taps);
  }
  if (step.verdict == Verdict::fail) return;
  step.verdict = n_taps == 0 ? Verdict::mistrusted : Verdict::pass;
  step.detail = fmt::format("{} tensors and token lists", n_taps);
}

bool ranks_twin(GateContext& gate) {
  std::vector<EngineResult> results = gate.runs.results(kTp2Fp32);
  results.at(0).dump.rank_differences.emplace_back(kResultsTap);
  GateStep step;
  size_t n_taps = 0;
  judge_ranks(step, results, kTp2Fp32.label, n_taps);
  return step.verdict == Verdict::fail;
}

}  // namespace

std::string first_reason(const CompareReport& report) {
  for (const PromptReport& prompt : report.prompts) {
    if (!prompt.skipped && prompt.verdict == report.verdict && !prompt.reasons.empty()) {
      return prompt.name + ": " + prompt.reasons[0];
    }
  }
  return report.reasons.empty() ? "" : report.reasons[0];
}

void note_divergence(GateContext& gate, const GateStep& step, const RunText& a, const RunText& b) {
  constexpr ptrdiff_t kKept = 4;  // of one check
  auto& kept = gate.report.divergences;
  const auto of_check = [&](const GateDivergence& one) { return one.check == step.id; };
  if (a.ids == b.ids || std::count_if(kept.begin(), kept.end(), of_check) >= kKept) return;
  const auto first = std::ranges::mismatch(a.ids, b.ids).in1 - a.ids.begin();
  kept.push_back({step.id, a.prompt, static_cast<size_t>(first), a.label, b.label, a.text, b.text});
}

void note_divergences(GateContext& gate, const GateStep& step, const std::string& label_a,
                      const std::vector<EngineResult>& a, const std::string& label_b,
                      const std::vector<EngineResult>& b) {
  for (const EngineResult& one : a) {
    for (const EngineResult& other : b) {
      if (one.name != other.name) continue;
      note_divergence(gate, step, {label_a, one.name, one.ids, one.text},
                      {label_b, other.name, other.ids, other.text});
    }
  }
}

void skip(GateStep& step, const std::string& reason) {
  step.verdict = Verdict::skipped;
  step.detail = reason;
}

void flip_one_bit(std::vector<EngineResult>& results) {
  for (EngineResult& result : results) {
    for (auto& [tap, tensor] : result.dump.taps) {
      if (tensor.values.empty()) continue;
      float& value = tensor.values.back();
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1u);
      return;
    }
    if (!result.ids.empty()) {
      result.ids.back() ^= 1;
      return;
    }
  }
}

const std::vector<CheckDefinition>& oracle_checks() {
  static const std::vector<CheckDefinition> checks = {
      {"shard", "Split the checkpoint for two ranks", shard, shard_twin},
      {"verify", "Shards rejoin to the checkpoint, bit for bit", verify, verify_twin},
      {"oracle-tp1-fp32", "TP=1 fp32 against the oracle", run_oracle<kTp1Fp32>,
       twin_oracle<kTp1Fp32>},
      {"oracle-tp2-fp32", "TP=2 fp32 against the oracle", run_oracle<kTp2Fp32>,
       twin_oracle<kTp2Fp32>},
      {"oracle-tp1-bf16", "TP=1 bf16 against the oracle", run_oracle<kTp1Bf16>,
       twin_oracle<kTp1Bf16>},
      {"oracle-tp2-bf16", "TP=2 bf16 against the oracle", run_oracle<kTp2Bf16>,
       twin_oracle<kTp2Bf16>},
      {"i1", "I1: the same run again, same bits", run_same<kTp2Bf16Grid, kTp2Bf16Again>,
       twin_same<kTp2Bf16Grid, kTp2Bf16Again>},
      {"i2", "I2: both ranks hold the same bits", ranks_agree, ranks_twin},
      {"i3-fp32", "I3, I6: TP=1 alone and TP=2 among others, same bits, fp32",
       run_same<kTp1Fp32, kTp2Fp32>, twin_same<kTp1Fp32, kTp2Fp32>},
      {"i3-bf16", "I3, I6: TP=1 alone and TP=2 among others, same bits, bf16",
       run_same<kTp1Bf16, kTp2Bf16>, twin_same<kTp1Bf16, kTp2Bf16>},
      {"prefill-grid", "Prefill on a grid of 64 and in one piece, same bits",
       run_same<kTp2Bf16, kTp2Bf16Grid>, twin_same<kTp2Bf16, kTp2Bf16Grid>},
  };
  return checks;
}

}  // namespace lockstep
