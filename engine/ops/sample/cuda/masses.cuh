// Probability masses of one column as whole numbers, and bins of them from the largest logit down.
#pragma once

#include "engine/ops/argmax/cuda/slices.cuh"
#include "engine/ops/sample/cuda/sample_params.h"

namespace lockstep::cuda {

// Whether a column draws from a short list of its largest logits.
__device__ __forceinline__ bool is_listed(const SampleColumn& column) {
  return column.top_k >= 1 && column.top_k <= kListedTopK;
}

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

__device__ __forceinline__ uint64_t mass_of(double x) {
  return __double2ull_rn(exp_fast(x) * kMassUnit);
}

// Ascending with falling logits.
__device__ __forceinline__ int mass_bin(double x) {
  const double bin = -x * kBinsPerUnit;
  return bin >= kMassBins - 1 ? kMassBins - 1 : static_cast<int>(bin);
}

// Whether a logit may stand in that bin, without float64: by distances from the largest that are
// off by 2^-20 of themselves at most.
struct BinRange {
  float nearest;
  float furthest;
};

__device__ __forceinline__ BinRange bin_range(const MassScale& scale, int bin) {
  const double low = bin / kBinsPerUnit * scale.temperature;
  const double high = (bin + 1) / kBinsPerUnit * scale.temperature;
  const double slack = fabs(scale.largest) * 0x1p-20 + 0x1p-120;
  const float nearest = static_cast<float>(low * (1 - 0x1p-20) - slack);
  const float furthest = static_cast<float>(high * (1 + 0x1p-20) + slack);
  return {nearest, bin == kMassBins - 1 ? __int_as_float(0x7f800000) : furthest};
}

}  // namespace lockstep::cuda
