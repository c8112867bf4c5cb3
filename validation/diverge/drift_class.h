// How far honest engines drift apart, by the coarsest arithmetic that one of them uses. A class is
// one row; the numbers are relative errors, from validation/tolerance.h.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "validation/tolerance.h"

namespace lockstep {

struct DriftClass {
  std::string_view name;
  double final_norm_noise;  // of the last hidden state, relative L2, one honest engine
  double local_noise;       // of one branch on exact input, the same way
};

// As many times the noise of bf16.
constexpr DriftClass bf16_times(double factor, std::string_view name) {
  return {name, factor * tolerance::kBf16FinalNormNoise, factor * tolerance::kBf16LocalNoise};
}

inline constexpr std::array<DriftClass, 5> kDriftClasses = {{
    {"fp32", tolerance::kFp32Noise, tolerance::kFp32Noise},  // another order of sums
    bf16_times(tolerance::kF16NoiseShare, "f16"),            // activations or KV cache
    bf16_times(1, "bf16"),
    bf16_times(tolerance::kW8NoiseFactor, "w8"),  // weights, activations too
    bf16_times(tolerance::kW4NoiseFactor, "w4"),
}};

// Index into kDriftClasses; nothing for an unknown name.
constexpr std::optional<size_t> drift_class(std::string_view name) {
  for (size_t i = 0; i < kDriftClasses.size(); ++i) {
    if (kDriftClasses[i].name == name) return i;
  }
  return std::nullopt;
}

// Largest local error (relative L2) of an honest engine of this class, whatever its rounding
// points.
constexpr double local_limit(size_t index) {
  return tolerance::kBf16NoiseFactor * kDriftClasses[index].local_noise;
}

}  // namespace lockstep
