// I4 and I5 on prompts of the oracle: speculation and the prefix cache change speed, never text.
#include <fmt/format.h>

#include <algorithm>

#include "validation/compare/compare.h"
#include "validation/gate/check.h"
#include "validation/gate/run_digest.h"
#include "validation/gate/run_specs.h"

namespace lockstep {
namespace {

constexpr int kTokens = 32;
constexpr size_t kBehindSnapshot[] = {1, 2, 16};  // tokens

const RunSpec kShortPlain{
    .label = "short-k0", .tp = 1, .precision = Precision::fp32, .short_prompts = true};
const RunSpec kShortDeep{
    .label = "short-k3", .tp = 1, .precision = Precision::fp32, .mtp = 3, .short_prompts = true};
const RunSpec kSampledDeep{.label = "sampled-k3",
                           .tp = 1,
                           .precision = Precision::bf16,
                           .prefill_grid = kSmallGrid,
                           .mtp = 3};
const RunSpec kCold{.label = "cold",
                    .tp = 1,
                    .precision = Precision::bf16,
                    .prefill_grid = kSmallGrid,
                    .slots = 1,
                    .mtp = 3,
                    .prefix_cache_bytes = 0};
const RunSpec kWarm{.label = "warm",
                    .tp = 1,
                    .precision = Precision::bf16,
                    .prefill_grid = kSmallGrid,
                    .slots = 1,
                    .mtp = 3};

// Tokens and logits alone: taps of a round with drafts have other columns.
std::vector<EngineResult> without_taps(std::vector<EngineResult> results) {
  for (EngineResult& result : results) result.dump.taps.clear();
  return results;
}

int64_t n_drafts_accepted(const std::vector<EngineResult>& results) {
  int64_t n = 0;
  for (const EngineResult& result : results) n += result.drafts_accepted;
  return n;
}

// `reached` counts what the second run must have done to prove anything.
void judge_same(GateStep& step, const std::vector<EngineResult>& plain,
                const std::vector<EngineResult>& other, int64_t reached, const std::string& what) {
  const std::string difference = first_difference(plain, other);
  if (!difference.empty()) {
    step.verdict = Verdict::fail;
    step.detail = "differs first at " + difference;
    return;
  }
  step.verdict = plain.empty() || reached == 0 ? Verdict::mistrusted : Verdict::pass;
  step.detail =
      fmt::format("{} requests, {} {}: {}", plain.size(), reached, what, run_digest(plain));
}

bool twin_differs(const std::vector<EngineResult>& plain, std::vector<EngineResult> other,
                  int64_t reached) {
  GateStep step;
  flip_one_bit(other);
  judge_same(step, plain, other, reached, "");
  GateStep idle;
  judge_same(idle, plain, plain, 0, "");
  return step.verdict == Verdict::fail && idle.verdict == Verdict::mistrusted;
}

// Against the oracle too: its record of drafts is the only judge of what is proposed.
void greedy_depths(GateContext& gate, GateStep& step) {
  const std::vector<EngineResult>& deep = gate.runs.results(kShortDeep);
  const std::vector<EngineResult>& plain = gate.runs.results(kShortPlain);
  judge_same(step, without_taps(plain), without_taps(deep), n_drafts_accepted(deep),
             "drafts accepted");
  note_divergences(gate, step, "without drafts", plain, "with drafts", deep);
  CompareReport report =
      judge_run(gate.runs.short_oracle(), deep, Precision::fp32, gate.options.model);
  if (step.verdict != Verdict::fail && report.verdict != Verdict::pass) {
    step.verdict = merge(step.verdict, report.verdict);
    step.detail = first_reason(report);
  }
  gate.report.comparisons.push_back({step.title, Precision::fp32, std::move(report)});
}

bool greedy_twin(GateContext& gate) {
  return twin_differs(without_taps(gate.runs.results(kShortPlain)),
                      without_taps(gate.runs.results(kShortDeep)), 1);
}

// The longest text prompt of at most `limit` tokens.
const OraclePrompt* long_prompt(GateContext& gate, size_t limit) {
  const OraclePrompt* best = nullptr;
  for (const OraclePrompt& prompt : gate.runs.oracle().prompts) {
    if (prompt.has_image || prompt.ids.size() > limit) continue;
    if (best == nullptr || prompt.ids.size() > best->ids.size()) best = &prompt;
  }
  return best;
}

void sampled_depths(GateContext& gate, GateStep& step) {
  const std::vector<EngineJob> jobs = sampled_jobs(gate);
  const std::vector<EngineResult>& deep = gate.runs.results(kSampledDeep, jobs);
  const std::vector<EngineResult>& plain = gate.runs.results(kSampledPlain, jobs);
  judge_same(step, plain, deep, n_drafts_accepted(deep), "drafts accepted");
  note_divergences(gate, step, "without drafts", plain, "with drafts", deep);
}

bool sampled_twin(GateContext& gate) {
  const std::vector<EngineJob> jobs = sampled_jobs(gate);
  return twin_differs(gate.runs.results(kSampledPlain, jobs), gate.runs.results(kSampledDeep, jobs),
                      1);
}

// A, then B that shares half of A, then A again: a hit, a part of a hit, and a hit after another
// request ran on the shared pages. Then prompts that end just behind a snapshot, twice each: the
// MTP layer's slot there is rebuilt from the snapshot, and drafts made so near to it depend on it.
std::vector<EngineJob> cache_jobs(GateContext& gate) {
  const OraclePrompt* prompt = long_prompt(gate, 1200);
  std::vector<EngineJob> jobs;
  if (prompt == nullptr) return jobs;
  EngineJob a;
  a.name = "a";
  a.ids = prompt->ids;
  a.max_tokens = kTokens;
  EngineJob b = a;
  b.name = "b";
  std::reverse(b.ids.begin() + static_cast<std::ptrdiff_t>(b.ids.size() / 2), b.ids.end());
  jobs = {a, b, a};
  jobs.back().name = "a-again";
  for (const size_t behind : kBehindSnapshot) {
    const size_t length = kSmallGrid + behind;
    if (length > prompt->ids.size()) continue;
    EngineJob cut = a;
    cut.ids.resize(length);
    for (const char* turn : {"", "-again"}) {
      cut.name = fmt::format("first-{}{}", length, turn);
      jobs.push_back(cut);
    }
  }
  return jobs;
}

int64_t n_hits(const std::vector<EngineResult>& results) {
  const auto hit = [](const EngineResult& result) { return result.cache_hit_tokens > 0; };
  return std::count_if(results.begin(), results.end(), hit);
}

// The first round whose drafts differ; empty when all are the same.
std::string drafts_difference(const std::vector<EngineResult>& plain,
                              const std::vector<EngineResult>& other) {
  for (size_t i = 0; i < plain.size(); ++i) {
    const auto& a = plain[i].draft_rounds;
    const auto& b = other[i].draft_rounds;
    for (size_t round = 0; round < std::max(a.size(), b.size()); ++round) {
      const bool same = round < a.size() && round < b.size() && a[round].step == b[round].step &&
                        a[round].drafts == b[round].drafts;
      if (!same) return fmt::format("{}: drafts of round {}", plain[i].name, round);
    }
  }
  return {};
}

void judge_cache(GateStep& step, const std::vector<EngineResult>& cold,
                 const std::vector<EngineResult>& warm) {
  judge_same(step, cold, warm, n_hits(warm), "cache hits");
  if (step.verdict == Verdict::fail) return;
  const std::string drafts = drafts_difference(cold, warm);
  if (drafts.empty()) return;
  step.verdict = Verdict::fail;
  step.detail = "differs first at " + drafts;
}

void prefix_cache(GateContext& gate, GateStep& step) {
  const std::vector<EngineJob> jobs = cache_jobs(gate);
  const std::vector<EngineResult>& cold = gate.runs.results(kCold, jobs);
  const std::vector<EngineResult>& warm = gate.runs.results(kWarm, jobs);
  judge_cache(step, cold, warm);
  note_divergences(gate, step, "cold", cold, "prefix hit", warm);
}

bool prefix_cache_twin(GateContext& gate) {
  const std::vector<EngineJob> jobs = cache_jobs(gate);
  const std::vector<EngineResult>& cold = gate.runs.results(kCold, jobs);
  std::vector<EngineResult> other_draft = gate.runs.results(kWarm, jobs);
  other_draft.back().draft_rounds.at(0).drafts.at(0) ^= 1;
  GateStep step;
  judge_cache(step, cold, other_draft);
  return step.verdict == Verdict::fail && twin_differs(cold, gate.runs.results(kWarm, jobs), 1);
}

}  // namespace

std::vector<EngineJob> sampled_jobs(GateContext& gate) {
  const OraclePrompt* prompt = long_prompt(gate, 600);
  std::vector<EngineJob> jobs;
  for (int i = 0; prompt != nullptr && i < 8; ++i) {
    EngineJob job;
    job.name = fmt::format("sampled-{}", i);
    job.ids = prompt->ids;
    job.max_tokens = kTokens;
    job.temperature = 0.9;
    job.presence_penalty = 1.5;
    job.seed = 1000 + i;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

const std::vector<CheckDefinition>& invariant_checks() {
  static const std::vector<CheckDefinition> checks = {
      {"i4-greedy", "I4: drafts change no greedy token, fp32", greedy_depths, greedy_twin},
      {"i4-sampled", "I4: drafts change no sampled token, bf16", sampled_depths, sampled_twin},
      {"i5", "I5: prefix-cache hits equal cold runs", prefix_cache, prefix_cache_twin},
  };
  return checks;
}

}  // namespace lockstep
