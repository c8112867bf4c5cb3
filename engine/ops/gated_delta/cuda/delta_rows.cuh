// Normalised rows of q and k.
#pragma once

#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"

namespace lockstep::cuda {

inline constexpr int kDim = 128;  // of q, k and v heads
inline constexpr float kKeyEpsilon = 1e-6f;
inline constexpr float kQueryDivisor = 0x1.6a09e6p+3f;  // sqrt(128)

// What a row is multiplied by: 1 / (sqrt(sum x^2 + 1e-6) divisor).
__device__ __forceinline__ float scale_of_square_sum(float sum, float divisor) {
  const float epsilon = mutant(Mutant::delta_epsilon) ? kKeyEpsilon * kDim : kKeyEpsilon;
  return __fdiv_rn(1.0f, __fsqrt_rn(sum + epsilon) * divisor);
}

// A warp has the row, four values a lane.
__device__ __forceinline__ float row_scale(const float (&x)[4], float divisor) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum = fmaf(x[i], x[i], sum);
  return scale_of_square_sum(warp_sum(sum), divisor);
}

__device__ __forceinline__ void unpack_four(const uint2& packed, float (&x)[4]) {
  x[0] = __uint_as_float(packed.x << 16);
  x[1] = __uint_as_float(packed.x & 0xffff0000u);
  x[2] = __uint_as_float(packed.y << 16);
  x[3] = __uint_as_float(packed.y & 0xffff0000u);
}

// This lane's four values of a row.
__device__ __forceinline__ float4 normalised_part(const uint2& packed, float divisor) {
  float x[4];
  unpack_four(packed, x);
  const float scale = row_scale(x, divisor);
  return make_float4(x[0] * scale, x[1] * scale, x[2] * scale, x[3] * scale);
}

}  // namespace lockstep::cuda
