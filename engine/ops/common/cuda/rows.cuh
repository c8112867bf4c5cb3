// What the kernels of row ops share: bfloat16 in vectors of eight, sums whose order depends on the
// width of a row alone, and the exponentials of the CPU ops, operation by operation.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::cuda {

inline constexpr int kVector = 8;  // bfloat16 values in one load of 16 bytes

__device__ __forceinline__ float bf16_value(uint32_t bits) {
  return __uint_as_float(bits << 16);
}

// As float_to_bf16 of engine/base/float_formats.h, NaN included.
__device__ __forceinline__ uint32_t bf16_bits_exact(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// The same but for NaN, which is some NaN: one instruction from sm_80 on. `low` to the lower half.
__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return bf16_bits_exact(low) | bf16_bits_exact(high) << 16;
#endif
}

__device__ __forceinline__ uint32_t bf16_bits(float value) {
#if __CUDA_ARCH__ >= 800
  return bf16_pair(value, 0.0f);
#else
  return bf16_bits_exact(value);
#endif
}

__device__ __forceinline__ float round_bf16(float value) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(bf16_pair(0.0f, value));
#else
  return bf16_value(bf16_bits_exact(value));
#endif
}

__device__ __forceinline__ void unpack(const uint4& packed, float (&v)[kVector]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = __uint_as_float(words[i] << 16);
    v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// Rounds to bfloat16.
__device__ __forceinline__ uint4 pack(const float (&v)[kVector]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = bf16_pair(v[2 * i], v[2 * i + 1]);
  return {words[0], words[1], words[2], words[3]};
}

__device__ __forceinline__ void load_vector(const uint16_t* from, float (&v)[kVector]) {
  unpack(*reinterpret_cast<const uint4*>(from), v);
}

__device__ __forceinline__ void load_vector(const float* from, float (&v)[kVector]) {
  const float4 low = *reinterpret_cast<const float4*>(from);
  const float4 high = *reinterpret_cast<const float4*>(from + 4);
  v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
  v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
}

__device__ __forceinline__ void store_vector(const float (&v)[kVector], uint16_t* to) {
  *reinterpret_cast<uint4*>(to) = pack(v);
}

// Sum over a warp, the same bits in every lane: pairs of lanes 16, 8, 4, 2, 1 apart.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// Sum over a block of whole warps, the same bits in every thread: warps first, then their sums the
// same way. `of_warp` is not used again before the next barrier.
__device__ __forceinline__ float block_sum(float value, float (&of_warp)[32]) {
  value = warp_sum(value);
  const int lane = threadIdx.x % 32;
  if (lane == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / 32 ? of_warp[lane] : 0.0f);
}

// exp_vec of lanes-inl.h: the same operations, the same bits.
__device__ __forceinline__ float exp_f32(float x) {
  const float clamped = fmaxf(fminf(x, 89.0f), -104.5f);
  // 1.5 * 2^23: adding it rounds to an integer, ties to even, and leaves that in the low bits. The
  // conversions that this saves run at a quarter of the rate.
  const float shifted = clamped * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  float r = fmaf(n, -0.693359375f, clamped);
  r = fmaf(n, 2.12194440e-4f, r);
  float p = 1.0f / 5040.0f;
  p = fmaf(p, r, 1.0f / 720.0f);
  p = fmaf(p, r, 1.0f / 120.0f);
  p = fmaf(p, r, 1.0f / 24.0f);
  p = fmaf(p, r, 1.0f / 6.0f);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  const int exponent = __float_as_int(shifted) - 0x4b400000;
  const int half = exponent >> 1;
  const float scale1 = __uint_as_float(static_cast<uint32_t>(half + 127) << 23);
  const float scale2 = __uint_as_float(static_cast<uint32_t>(exponent - half + 127) << 23);
  return x != x ? x : p * scale1 * scale2;
}

// x / (1 + exp(-x)), division as IEEE has it.
__device__ __forceinline__ float silu_f32(float x) {
  return __fdiv_rn(x, 1.0f + exp_f32(-x));
}

}  // namespace lockstep::cuda
