// A small invented oracle and the outputs of an engine that agrees with it, for tests: they are
// changed in one place and the judgement must notice.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "validation/compare/tap_judge.h"
#include "validation/engine_run.h"
#include "validation/oracle.h"

namespace lockstep::testing {

inline constexpr int64_t kHidden = 32;
inline constexpr int32_t kVocabulary = 64;

struct SyntheticRun {
  Oracle oracle;  // text prompts "alpha" (with states) and "beta", image "picture"
  std::vector<EngineResult> results;  // of "alpha" and "beta", equal to the oracle

  OraclePrompt& prompt(const std::string& name);
  EngineResult& result(const std::string& name);
  // Adds relative noise to one tap of the engine: every value times 1 +- `relative`.
  void perturb(const std::string& prompt, const std::string& tap, double relative);
  // Puts `token` on top of the engine's step so that the margin becomes `margin` (negative when it
  // is not the oracle's token).
  void set_engine_margin(const std::string& prompt, size_t step, int32_t other, double margin);
};

SyntheticRun make_synthetic_run(Precision precision);

FloatTensor random_tensor(const std::vector<int64_t>& shape, uint64_t seed);

void write_tensors(const TapMap& taps, const std::string& prefix,
                   const std::filesystem::path& path);
// PREFIX.json and PREFIX.safetensors.
void write_oracle(const Oracle& oracle, const std::filesystem::path& prefix);
// A checkpoint folder with lm_head.weight alone.
void write_model(const std::filesystem::path& folder);
// What the fake engine copies: results.jsonl and NAME.rankR.safetensors; with tp = 2 states are
// split.
void write_engine_outputs(const std::vector<EngineResult>& results, int tp,
                          const std::filesystem::path& folder);

}  // namespace lockstep::testing
