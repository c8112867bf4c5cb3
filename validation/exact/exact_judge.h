// Runs of the integer-exact transformer through the whole engine, judged bit for bit.
#pragma once

#include <string>
#include <vector>

#include "validation/engine_run.h"
#include "validation/exact/exact_formula.h"

namespace lockstep::exact {

struct ExactVariant {
  std::string label;
  std::string reaches;  // which mechanism it adds, for people
  int tp = 1;
  std::string precision = "bf16";
  int mtp = 0;
  int slots = 1;
  int prefill_grid = 64;
  std::string kv = {};  // empty: the engine's default
  int threads = 0;      // 0: the engine's default
  std::string cpu_target = {};
  bool prefix_cache = true;
};

// The named variants, each with what it reaches; the quick gate takes the first ones.
const std::vector<ExactVariant>& exact_variants();

// `n` variants over thread counts, chunk sizes, vector widths, TP, slots, drafts, KV types and
// precisions, always the same ones.
std::vector<ExactVariant> exact_variant_grid(int n);

EngineOptions exact_options(const EngineOptions& base, const ExactVariant& variant);

// Prompts of several lengths, one of them twice and one that shares half of it, so that hits, parts
// of hits and neighbours all occur.
std::vector<EngineJob> exact_jobs();

// What the runs must have reached to prove anything.
struct ExactCoverage {
  int64_t n_tokens = 0;
  int64_t n_logits = 0;  // judged
  int64_t n_hits = 0;    // requests that began from the prefix cache
  int64_t n_accepted = 0;
  int64_t n_refused = 0;  // drafts
};

// The first token or logit that is not the formula's: "mid: token 3 is 17, not 18"; empty when all
// bits are right.
std::string exact_difference(const std::vector<EngineJob>& jobs,
                             const std::vector<EngineResult>& results, const std::string& precision,
                             ExactCoverage* coverage);

// Why a run of `variant` proves less than it says; empty when it reached everything.
std::string unreached(const ExactVariant& variant, const ExactCoverage& coverage);

}  // namespace lockstep::exact
