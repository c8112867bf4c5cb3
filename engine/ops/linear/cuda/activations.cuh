// The power of two that brings a row of bfloat16 activations to binary16, and the conversion.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace lockstep::cuda {

// The largest of both magnitudes in each half of a word.
__device__ __forceinline__ uint32_t larger_halves(uint32_t a, uint32_t b) {
  return __vmaxu2(a & 0x7fff7fffu, b & 0x7fff7fffu);
}

// Exponent of the power of two for a row whose largest bfloat16 magnitude has these bits.
__device__ __forceinline__ int row_shift(uint32_t largest) {
  const int exponent = static_cast<int>(largest >> 7) - 127;
  return largest == 0 || exponent == 128 ? 0 : min(14 - exponent, 126);
}

__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

// Two bfloat16 values, scaled, as binary16.
__device__ __forceinline__ uint32_t scaled_pair(uint32_t pair, float scale) {
  const float low = __uint_as_float(pair << 16) * scale;
  const float high = __uint_as_float(pair & 0xffff0000u) * scale;
  return __half_as_ushort(__float2half_rn(low)) |
         static_cast<uint32_t>(__half_as_ushort(__float2half_rn(high))) << 16;
}

}  // namespace lockstep::cuda
