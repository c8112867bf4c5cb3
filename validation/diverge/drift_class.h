// How far honest engines drift apart, by the coarsest arithmetic that one of them uses. A class is
// one row; the numbers are relative errors (docs/divergence.md says where each comes from).
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace lockstep {

struct DriftClass {
  std::string_view name;
  double final_norm_noise;  // of the last hidden state, relative L2, one honest engine
  double local_noise;       // of one branch on exact input, the same way
  std::string_view meaning;
};

// fp32: two independent float32 implementations at taps (2.3e-6) and states (7e-6).
// bf16: the reference framework's own bfloat16 run against its float32 run, worst prompt: 0.0175 at
// the final norm, 0.0099 in the first layer, whose input is exact.
// f16: the same roundings with three more bits: an eighth.
// w8: blocks of 32 weights on 255 steps, and activations too: 0.6 % of each factor instead of the
// 0.11 % of a bfloat16 one, so about sqrt(2) * 5 times as much a product as one rounding, in sum
// with the others three times bf16.
// w4: 15 steps instead of 255: sixteen times w8 in weights alone; ten times w8 in all.
inline constexpr std::array<DriftClass, 5> kDriftClasses = {{
    {"fp32", 6.7e-6, 6.7e-6, "float32 with another order of sums"},
    {"f16", 0.0175 / 8, 0.0099 / 8, "float16 activations or KV cache"},
    {"bf16", 0.0175, 0.0099, "bfloat16 activations"},
    {"w8", 3 * 0.0175, 3 * 0.0099, "weights rounded to 8 bits"},
    {"w4", 30 * 0.0175, 30 * 0.0099, "weights rounded to 4 bits"},
}};

// Index into kDriftClasses; nothing for an unknown name.
constexpr std::optional<size_t> drift_class(std::string_view name) {
  for (size_t i = 0; i < kDriftClasses.size(); ++i) {
    if (kDriftClasses[i].name == name) return i;
  }
  return std::nullopt;
}

// An engine whose kernels round at other places may have this many times the recorded noise
// (tolerance::kBf16NoiseFactor holds the same number for compare).
inline constexpr double kNoiseAllowance = 3.0;

// Largest local error over the typical one that a coarser arithmetic explains: it is the same
// everywhere, a wrong operation is not.
inline constexpr double kEvenSpread = 8.0;

// Scale of a logit difference |w_a - w_b| |h| / sqrt(H) in nats where no checkpoint tells: logits
// with a standard deviation of 2.5 over the vocabulary, times sqrt(2) for a difference.
inline constexpr double kTypicalLogitScale = 3.5;

}  // namespace lockstep
