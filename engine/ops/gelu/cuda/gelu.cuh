// Both forms of ops/gelu, operation by operation as gelu_simd.cpp has them.
#pragma once

#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"

namespace lockstep::cuda {

__device__ __forceinline__ float gelu_exact_f32(float x) {
  const float t = __fdiv_rn(1.0f, fmaf(fabsf(x), 0.3f, 1.0f));
  const float s = t - 0.59375f;
  float p = -0.0209560245f;
  p = fmaf(p, s, 0.00227368576f);
  p = fmaf(p, s, 0.0442370772f);
  p = fmaf(p, s, -0.00950030889f);
  p = fmaf(p, s, -0.0907412916f);
  p = fmaf(p, s, -0.0109780943f);
  p = fmaf(p, s, 0.225666478f);
  p = fmaf(p, s, 0.409516335f);
  p = fmaf(p, s, 0.399991363f);
  p = fmaf(p, s, 0.256056696f);
  const float square = x * x;
  const float rest = fmaf(x, x, -square);
  const float e = exp_f32(square * -0.5f);
  const float corrected = fmaf(e, rest * -0.5f, e);
  const float tail = corrected * (t * p);
  return x * (x < 0.0f || mutant(Mutant::gelu_side) ? tail : 1.0f - tail);
}

__device__ __forceinline__ float gelu_tanh_f32(float x) {
  const float cubic = fmaf(x * x, 0.044715f, 1.0f);
  const float exponent = x * -1.595769122f * cubic;
  return __fdiv_rn(x, 1.0f + exp_f32(exponent));
}

}  // namespace lockstep::cuda
