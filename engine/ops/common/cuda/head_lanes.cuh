// One head vector in half a warp: lane l of 16 holds values l, l + 16, l + 32, ... These are the 16
// virtual lanes of the CPU ops, so norms, rotations and transforms of a head have the CPU's bits.
// All 32 threads of a warp must take part in every call that names no memory.
#pragma once

#include <type_traits>

#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"

namespace lockstep::cuda {

inline constexpr int kLanes = 16;

template <int kSteps>
__device__ __forceinline__ void head_load(const uint16_t* from, int lane, float (&v)[kSteps]) {
#pragma unroll
  for (int j = 0; j < kSteps; ++j) v[j] = bf16_value(from[lane + j * kLanes]);
}

// Rounds to bfloat16.
template <int kSteps>
__device__ __forceinline__ void head_store(const float (&v)[kSteps], uint16_t* to, int lane) {
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    to[lane + j * kLanes] = static_cast<uint16_t>(bf16_bits(v[j]));
  }
}

template <int kSteps>
__device__ __forceinline__ void head_round(float (&v)[kSteps]) {
#pragma unroll
  for (int j = 0; j < kSteps; ++j) v[j] = round_bf16(v[j]);
}

// ops/rmsnorm before its rounding.
template <int kSteps>
__device__ __forceinline__ void head_norm(float (&v)[kSteps], const float* weight, int lane,
                                          float eps, float weight_offset) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kSteps; ++j) sum = fmaf(v[j], v[j], sum);
#pragma unroll
  for (int distance = 8; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  const float mean = __fdiv_rn(sum, static_cast<float>(kSteps * kLanes));
  const float root = __fsqrt_rn(mean + (mutant(Mutant::norm_eps) ? 0.0f : eps));
  const float inverse = __fdiv_rn(1.0f, root);
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    v[j] = v[j] * inverse * (weight_offset + weight[lane + j * kLanes]);
  }
}

// Pairs (v[j], v[j + kPairs]) for j < kPairs.
template <int kPairs, int kSteps>
__device__ __forceinline__ void head_rotate_pairs(float (&v)[kSteps], const float2* angles,
                                                  int lane) {
  if constexpr (2 * kPairs <= kSteps) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float2 angle = angles[lane + j * kLanes];
      const float first = v[j];
      const float second = v[j + kPairs];
      v[j] = fmaf(first, angle.x, -(second * angle.y));
      v[j + kPairs] = fmaf(second, angle.x, first * angle.y);
    }
  }
}

// ops/rope before its rounding; angles [n_pairs] as cosine and sine; n_pairs 16, 32, 64 or 128.
template <int kSteps>
__device__ __forceinline__ void head_rotate(float (&v)[kSteps], const float2* angles, int lane,
                                            int n_pairs) {
  if (n_pairs == 32) return head_rotate_pairs<2>(v, angles, lane);
  if (n_pairs == 16) return head_rotate_pairs<1>(v, angles, lane);
  if (n_pairs == 64) return head_rotate_pairs<4>(v, angles, lane);
  head_rotate_pairs<8>(v, angles, lane);
}

// ops/hadamard before its rounding; factor 1 / sqrt(width).
template <int kSteps>
__device__ __forceinline__ void head_hadamard(float (&v)[kSteps], int lane, float factor) {
#pragma unroll
  for (int stride = 1; stride < kLanes; stride *= 2) {
    if (mutant(Mutant::hadamard_stage) && stride == 8) continue;
    // One rounding: partner + v below, partner - v above.
    const float sign = (lane & stride) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      v[j] = fmaf(sign, v[j], __shfl_xor_sync(0xffffffffu, v[j], stride));
    }
  }
#pragma unroll
  for (int stride = 1; stride < kSteps; stride *= 2) {
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      if ((j & stride) != 0) continue;
      const float a = v[j];
      const float b = v[j + stride];
      v[j] = a + b;
      v[j + stride] = a - b;
    }
  }
#pragma unroll
  for (int j = 0; j < kSteps; ++j) v[j] *= factor;
}

// Calls function(std::integral_constant<int, width / 16>) for the registered widths of heads.
template <typename Function>
void with_head_steps(int width, Function&& function) {
  if (width == 256) return function(std::integral_constant<int, 16>());
  if (width == 128) return function(std::integral_constant<int, 8>());
  return function(std::integral_constant<int, 4>());
}

}  // namespace lockstep::cuda
