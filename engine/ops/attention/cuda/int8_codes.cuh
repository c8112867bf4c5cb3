// INT8 codes of the cache as pairs of binary16.
#pragma once

#include "engine/ops/common/cuda/mma.cuh"

namespace lockstep::cuda {

// Four signed codes, exact: 1024 + (code + 128) - 1152.
__device__ __forceinline__ void int8_values(uint32_t word, uint32_t& low, uint32_t& high) {
  const uint32_t biased = word ^ 0x80808080u;
  low = half2_add(__byte_perm(biased, 0x64646464u, 0x4140), 0xe480e480u);
  high = half2_add(__byte_perm(biased, 0x64646464u, 0x4342), 0xe480e480u);
}

// Four values of two positions: pairs of binary16 (first position below) times the pair of scales.
__device__ __forceinline__ void value_pairs(uint32_t first, uint32_t second, uint32_t scales,
                                            uint32_t (&out)[4]) {
  const uint32_t x = first ^ 0x80808080u;
  const uint32_t y = second ^ 0x80808080u;
  const uint32_t low = __byte_perm(x, y, 0x5140);
  const uint32_t high = __byte_perm(x, y, 0x7362);
  out[0] = half2_mul(half2_add(__byte_perm(low, 0x64646464u, 0x4140), 0xe480e480u), scales);
  out[1] = half2_mul(half2_add(__byte_perm(low, 0x64646464u, 0x4342), 0xe480e480u), scales);
  out[2] = half2_mul(half2_add(__byte_perm(high, 0x64646464u, 0x4140), 0xe480e480u), scales);
  out[3] = half2_mul(half2_add(__byte_perm(high, 0x64646464u, 0x4342), 0xe480e480u), scales);
}

}  // namespace lockstep::cuda
