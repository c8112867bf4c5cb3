// Pairs of 16-bit numbers in a register and their matrix instruction, for sm_80 and up.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "engine/ops/common/cuda/copy_async.cuh"
#include "engine/ops/common/cuda/mma.cuh"

namespace lockstep::cuda {

struct Fp16Numbers {
  static constexpr bool kBf16 = false;
  __device__ __forceinline__ static uint32_t pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  __device__ __forceinline__ static float low(uint32_t pair) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(pair)));
  }
  __device__ __forceinline__ static float high(uint32_t pair) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(pair >> 16)));
  }
  __device__ __forceinline__ static uint32_t multiply(uint32_t a, uint32_t b) {
    return half2_mul(a, b);
  }
  __device__ __forceinline__ static void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
    mma_m16n8k16_f16(d, a0, a1, a2, a3, b0, b1);
  }
};

struct Bf16Numbers {
  static constexpr bool kBf16 = true;
  __device__ __forceinline__ static uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  __device__ __forceinline__ static float low(uint32_t pair) { return __uint_as_float(pair << 16); }
  __device__ __forceinline__ static float high(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
  }
  __device__ __forceinline__ static uint32_t multiply(uint32_t a, uint32_t b) {
    return bf16x2_fma(a, b, 0x80008000u);
  }
  __device__ __forceinline__ static void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
    mma_m16n8k16_bf16(d, a0, a1, a2, a3, b0, b1);
  }
};

}  // namespace lockstep::cuda
