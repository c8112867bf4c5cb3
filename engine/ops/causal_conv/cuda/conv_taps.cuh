// Four taps and SiLU.
#pragma once

#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"

namespace lockstep::cuda {

// x0 is the oldest input.
__device__ __forceinline__ float convolve(const float4& weight, float x0, float x1, float x2,
                                          float x3) {
  float sum = fmaf(weight.x, x0, 0.0f);
  sum = fmaf(weight.y, x1, sum);
  sum = fmaf(weight.z, x2, sum);
  sum = fmaf(mutant(Mutant::conv_last_tap) ? weight.z : weight.w, x3, sum);
  return silu_f32(sum);
}

}  // namespace lockstep::cuda
