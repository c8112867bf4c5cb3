// What the skinny kernels of both families share: the decoding of codes in registers.
#pragma once

#include <cuda_bf16.h>

#include "engine/ops/common/cuda/mma.cuh"
#include "engine/ops/linear/cuda/linear_words.h"
#include "engine/ops/linear/cuda/skinny_params.h"
#include "engine/ops/linear/cuda/skinny_shared.h"

namespace lockstep::cuda {

// Factors that the codes in registers carry, taken out at the end.
inline constexpr float kE4m3Factor = 0x1p8f;
inline constexpr float kNvfp4Factor = 0x1p7f;

// Both halves: the scale in one half of a pair of scales. With E2M1 codes of value 2^-14 and scales
// times 2^7 the product is exact in binary16 for every code and scale: value * scale * 2^-7.
template <int half>
__device__ __forceinline__ uint32_t spread_scale(uint32_t pair) {
  uint32_t r;
  if constexpr (half == 0) {
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %1; mov.b32 %0, {a, a};}" : "=r"(r) : "r"(pair));
  } else {
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %1; mov.b32 %0, {b, b};}" : "=r"(r) : "r"(pair));
  }
  return r;
}

// Eight scaled values of a word.
__device__ __forceinline__ void nvfp4_values(uint32_t word, uint32_t scale, uint32_t (&v)[4]) {
  decode_e2m1_word(word, v);
#ifdef LOCKSTEP_PLANT_CONVERSION  // for ci/lanes/sm70.sh plant: conversions as one would write them
  for (int i = 0; i < 4; ++i) {
    const float value = static_cast<float>(static_cast<int>(v[i] >> 9));
    v[i] = __half_as_ushort(__float2half_rn(value)) * 0x10001u;
  }
#endif
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = half2_mul(v[i], scale);
}

// Zero point z, both halves: -(1024 + z) and -(64 + z).
struct Int4Zero {
  uint32_t low;
  uint32_t high;

  __device__ __forceinline__ explicit Int4Zero(uint32_t z) {
    const uint32_t spread = z | (z << 16);
    low = spread | 0xe400e400u;
    high = half2_add(low, 0x63806380u);  // + 960
  }
};

__device__ __forceinline__ void int4_values(uint32_t word, const Int4Zero& zero, uint32_t (&v)[4]) {
  const uint32_t upper = word >> 8;
  v[0] = half2_add(and_or<0x000f000fu, 0x64006400u>(word), zero.low);
  v[1] = half2_fma(and_or<0x00f000f0u, 0x64006400u>(word), 0x2c002c00u, zero.high);
  v[2] = half2_add(and_or<0x000f000fu, 0x64006400u>(upper), zero.low);
  v[3] = half2_fma(and_or<0x00f000f0u, 0x64006400u>(upper), 0x2c002c00u, zero.high);
}

__device__ __forceinline__ void store_output(const StoredMatrix& p, int token, int row,
                                             float value) {
  const int64_t index = token * p.out_stride + row;
  if (p.out_float) {
    static_cast<float*>(p.out)[index] = value;
  } else {
    static_cast<__nv_bfloat16*>(p.out)[index] = __float2bfloat16_rn(value);
  }
}

}  // namespace lockstep::cuda
