#include "validation/exact/exact_judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/philox.h"

namespace lockstep::exact {
namespace {

constexpr int kGenerated = 40;

EngineJob make_job(const std::string& name, std::vector<int32_t> ids) {
  EngineJob job;
  job.name = name;
  job.ids = std::move(ids);
  job.max_tokens = kGenerated;
  job.n_logits = kVocabulary;
  return job;
}

std::vector<int32_t> random_tokens(uint64_t seed, size_t n) {
  PhiloxStream stream(seed);
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(stream.next_below(kTokens)));
  return tokens;
}

std::string logits_difference(const StepLogits& step, const ExactLogits& expected,
                              ExactCoverage& coverage) {
  for (size_t i = 0; i < step.ids.size(); ++i) {
    const auto row = static_cast<size_t>(step.ids[i]);
    if (row >= expected.size()) return fmt::format("logit of row {}, which does not exist", row);
    if (!expected[row]) continue;
    ++coverage.n_logits;
    const double want = *expected[row];
    if (step.values[i] == want) continue;
    return fmt::format("logit of row {} is {}, not {}", row, step.values[i], want);
  }
  return {};
}

std::string job_difference(const EngineJob& job, const EngineResult& result, const ExactRun& run,
                           ExactCoverage& coverage) {
  for (size_t i = 0; i < run.tokens.size(); ++i) {
    if (i >= result.ids.size()) return fmt::format("{}: ends after {} tokens", job.name, i);
    ++coverage.n_tokens;
    if (result.ids[i] != run.tokens[i]) {
      return fmt::format("{}: token {} is {}, not {}", job.name, i, result.ids[i], run.tokens[i]);
    }
    const std::string logits = logits_difference(result.logits[i], run.logits[i], coverage);
    if (!logits.empty()) return fmt::format("{}: step {}: {}", job.name, i, logits);
  }
  return {};
}

void count_reached(const EngineResult& result, ExactCoverage& coverage) {
  coverage.n_hits += result.cache_hit_tokens > 0 ? 1 : 0;
  coverage.n_accepted += result.drafts_accepted;
  for (const DraftRound& round : result.draft_rounds) {
    coverage.n_refused += static_cast<int64_t>(round.drafts.size());
  }
  coverage.n_refused -= result.drafts_accepted;
}

}  // namespace

const std::vector<ExactVariant>& exact_variants() {
  static const std::vector<ExactVariant> variants = {
      {.label = "tp1", .reaches = "one rank, one request at a time, prefix hits"},
      {.label = "tp2-slots4-k3",
       .reaches = "both partial sums exchanged, requests together, drafts accepted and refused",
       .tp = 2,
       .mtp = 3,
       .slots = 4},
      {.label = "fp32",
       .reaches = "float32 stream and KV, prefill in one piece",
       .precision = "fp32",
       .prefill_grid = 512,
       .prefix_cache = false},
      {.label = "fp32-tp2",
       .reaches = "float32 partial sums exchanged",
       .tp = 2,
       .precision = "fp32",
       .slots = 2},
      {.label = "int8", .reaches = "INT8 codes and scales, rotated keys", .slots = 3, .kv = "int8"},
      {.label = "int8-tp2-k5",
       .reaches = "INT8 with drafts on two ranks",
       .tp = 2,
       .mtp = 5,
       .slots = 8,
       .kv = "int8"},
      {.label = "fp16", .reaches = "fp16 KV", .prefill_grid = 128, .kv = "fp16"},
      {.label = "k1", .reaches = "one draft a round", .mtp = 1},
      {.label = "k5-slots8",
       .reaches = "more columns than one group of 8",
       .mtp = 5,
       .slots = 8,
       .prefill_grid = 256},
      {.label = "threads1-avx2",
       .reaches = "one thread, 256-bit vectors",
       .mtp = 2,
       .threads = 1,
       .cpu_target = "avx2"},
      {.label = "threads3", .reaches = "more threads than cores", .slots = 2, .threads = 3},
      {.label = "cold",
       .reaches = "no prefix cache",
       .tp = 2,
       .slots = 2,
       .prefill_grid = 192,
       .prefix_cache = false},
  };
  return variants;
}

std::vector<ExactVariant> exact_variant_grid(int n) {
  static const char* const kKv[] = {"", "fp16", "int8", ""};
  static const int kGrids[] = {64, 128, 192, 256, 512};
  static const int kSlots[] = {1, 2, 3, 5, 8};
  std::vector<ExactVariant> variants;
  for (int i = 0; i < n; ++i) {
    // Mixed radix over coprime strides: every pair of settings meets.
    ExactVariant variant;
    variant.tp = 1 + i % 2;
    variant.cpu_target = i / 2 % 2 == 0 ? "avx2" : "auto";
    variant.threads = 1 + i % 3;
    variant.prefill_grid = kGrids[i % 5];
    variant.slots = kSlots[i / 5 % 5];
    variant.mtp = i % 7 % 6;
    variant.precision = i / 4 % 3 == 0 ? "fp32" : "bf16";
    if (variant.precision == "bf16") variant.kv = kKv[i / 3 % 4];
    variant.prefix_cache = i % 11 != 0;
    variant.label = fmt::format("variant-{}", i);
    variants.push_back(std::move(variant));
  }
  return variants;
}

EngineOptions exact_options(const EngineOptions& base, const ExactVariant& variant) {
  EngineOptions options = base;
  options.tp = variant.tp;
  options.precision = variant.precision;
  options.mtp = variant.mtp;
  options.slots = variant.slots;
  options.prefill_grid = variant.prefill_grid;
  options.kv = variant.kv;
  if (variant.threads > 0) options.threads = variant.threads;
  options.cpu_target = variant.cpu_target;
  if (!variant.prefix_cache) options.prefix_cache_bytes = 0;
  return options;
}

std::vector<EngineJob> exact_jobs() {
  const std::vector<int32_t> middle = random_tokens(2, 150);
  std::vector<int32_t> branch = middle;
  const std::vector<int32_t> other = random_tokens(3, 75);
  std::copy(other.begin(), other.end(), branch.begin() + 75);
  return {make_job("short", random_tokens(1, 20)), make_job("middle", middle),
          make_job("branch", branch), make_job("long", random_tokens(4, 300)),
          make_job("middle-again", middle)};
}

std::string exact_difference(const std::vector<EngineJob>& jobs,
                             const std::vector<EngineResult>& results, const std::string& precision,
                             ExactCoverage* coverage) {
  LOCKSTEP_CHECK(jobs.size() == results.size());
  ExactCoverage local;
  ExactCoverage& reached = coverage == nullptr ? local : *coverage;
  const Precision rounding = precision == "fp32" ? Precision::fp32 : Precision::bf16;
  for (size_t i = 0; i < jobs.size(); ++i) {
    count_reached(results[i], reached);
    const ExactRun run = exact_run(jobs[i].ids, jobs[i].max_tokens, rounding);
    const std::string difference = job_difference(jobs[i], results[i], run, reached);
    if (!difference.empty()) return difference;
    if (!results[i].dump.rank_differences.empty()) {
      return fmt::format("{}: the ranks differ", jobs[i].name);
    }
  }
  return {};
}

std::string unreached(const ExactVariant& variant, const ExactCoverage& coverage) {
  if (coverage.n_tokens == 0 || coverage.n_logits == 0) return "nothing was compared";
  // With as many slots as requests all of them are admitted before the first snapshot exists.
  if (variant.prefix_cache && variant.slots == 1 && coverage.n_hits == 0) return "no prefix hit";
  if (variant.mtp > 0 && (coverage.n_accepted == 0 || coverage.n_refused == 0)) {
    return "no draft was both accepted and refused";
  }
  return {};
}

}  // namespace lockstep::exact
