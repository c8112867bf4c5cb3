// Exact cases (exact_case.h) of the Gated DeltaNet ops: a prefill and decode rounds with replay.
//   causal_conv    the CPU's bits: any values
//   gated_delta    integers; keys of four values of 1/2, of which three tokens in turn share
//   theirs;
//                  decays of 1 and of exp(-200) = 0; strengths 0, 1/2 and 1. States are exact. What
//                  is read out has a factor 1/sqrt(128): one product for one value of the query in
//                  decode rounds, sums of such in a prefill, which its answer therefore leaves out
//   gated_rmsnorm  rows whose root mean square is 2, 4 or 8; the gate has the CPU's bits
//   gdn_gates      float64 functions that two libraries round differently in their last bits:
//                  inputs whose answers no such bit can round to another float32
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/ops/common/exact_case.h"

namespace lockstep {

enum class GdnExact : uint8_t { causal_conv, gated_delta, gated_rmsnorm, gdn_gates };

struct GdnExactOp {
  GdnExact op;
  const char* folder;
};
inline constexpr std::array<GdnExactOp, 4> kGdnExactOps = {{
    {GdnExact::causal_conv, "causal_conv"},
    {GdnExact::gated_delta, "gated_delta"},
    {GdnExact::gated_rmsnorm, "gated_rmsnorm"},
    {GdnExact::gdn_gates, "gdn_gates"},
}};

inline constexpr int kGdnExactPrefill = 80;  // tokens; more than a chunk
inline constexpr int kGdnExactRound = 8;
inline constexpr int kGdnExactKept = 5;        // columns of the first round that stay
inline constexpr int64_t kGdnExactFirst = 24;  // position of the first token: a short chunk
inline constexpr int kGdnExactConvChannels = 200;
inline constexpr int kGdnExactGateHeads = 48;
inline constexpr int kGdnExactDeltaHeads = 3;  // of values, over one of keys

struct ConvExactProblem {
  ConvExactProblem(uint64_t seed, int64_t n_tokens);
  std::vector<float> m;  // [n_tokens, channels]
  std::vector<float> weight;
  std::vector<float> window;  // [3, channels]
};

struct DeltaExactProblem {
  DeltaExactProblem(uint64_t seed, int64_t n_tokens);
  int64_t n_tokens;
  std::vector<float> q;  // [n_tokens, 128]
  std::vector<float> k;
  std::vector<float> v;  // [n_tokens, heads, 128]
  std::vector<float> log_decay;
  std::vector<float> beta;
  std::vector<float> state;  // [heads, 128, 128]
};

struct GatedNormExactProblem {
  explicit GatedNormExactProblem(uint64_t seed);
  int64_t n_tokens = 5;
  int n_heads = 3;
  std::vector<float> x;
  std::vector<float> z;
  std::vector<float> weight;
};

struct GatesExactProblem {
  GatesExactProblem(uint64_t seed, int64_t n_tokens);
  std::vector<float> a;  // [n_tokens, heads]
  std::vector<float> b;
  std::vector<float> a_log;
  std::vector<float> dt_bias;
  std::vector<double> log_decay;  // the answers, before they are rounded
  std::vector<double> beta;
};

std::vector<ExactCase> gdn_exact_cases(GdnExact op);

// CUDA builds alone. The answer to gdn_exact_cases(op)[index].
std::vector<float> gdn_exact_card(GdnExact op, size_t index, uint64_t seed, Device& device,
                                  Stream& stream);

}  // namespace lockstep
