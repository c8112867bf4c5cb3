// Probability masses of one column as whole numbers, and bins of them from the largest logit down.
#pragma once

#include "engine/ops/argmax/cuda/slices.cuh"
#include "engine/ops/sample/cuda/sample_params.h"

namespace lockstep::cuda {

struct MassScale {
  double largest;
  double temperature;
  double cut;
};

__device__ __forceinline__ MassScale mass_scale(const SampleColumn& column, uint64_t best) {
  return {static_cast<double>(value_of(best)), static_cast<double>(column.temperature), column.cut};
}

// As ops/sample has it; not positive. NaN for infinities, which are no candidates then.
__device__ __forceinline__ double exponent_of(const MassScale& scale, float logit) {
  return (static_cast<double>(logit) - scale.largest) / scale.temperature;
}

// The same for equal logits, never less for a larger one as far as bins and order go: equal
// exponents have equal masses.
__device__ __forceinline__ uint64_t mass_of(double x) {
  return __double2ull_rn(exp_fast(x) * kMassUnit);
}

// Ascending with falling logits.
__device__ __forceinline__ int mass_bin(double x) {
  const double bin = -x * kBinsPerUnit;
  return bin >= kMassBins - 1 ? kMassBins - 1 : static_cast<int>(bin);
}

}  // namespace lockstep::cuda
