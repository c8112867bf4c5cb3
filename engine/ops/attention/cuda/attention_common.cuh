// What the kernels of attention share: exponentials, numbers of 16 bits, the output with its gate.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "engine/ops/attention/cuda/attention_params.h"
#include "engine/ops/common/cuda/mutant.cuh"

namespace lockstep::cuda {

inline constexpr int kWidth = 256;  // values of a head
inline constexpr int kPage = 64;    // positions of a page
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr float kMasked = -1e30f;
// P carries 2^14: weights down to 2^-28 of the largest stay normal numbers of binary16. It drops
// out, because the denominator carries it too.
inline constexpr float kWeightShift = 14.0f;

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 2^d for a whole number d <= 0; 0 below 2^-126. Exact.
__device__ __forceinline__ float exp2_whole(float d) {
  return __uint_as_float(__float_as_uint(fmaxf(d, -127.0f) + 12583039.0f) << 23);
}

// The whole number that a row's largest exponent is rounded up to.
__device__ __forceinline__ float reference_of(float largest) {
  return ceilf(largest);
}

__device__ __forceinline__ float bf16_value(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

__device__ __forceinline__ uint16_t bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

// Rounds a finished value and applies the gate.
__device__ __forceinline__ uint16_t gated_bits(const AttentionParams& p, float value,
                                               uint16_t gate) {
  const uint16_t bits = bf16_bits(value);
  if (p.gate == nullptr) return bits;
  return bf16_bits(bf16_value(bits) * (1.0f / (1.0f + expf(-bf16_value(gate)))));
}

__device__ __forceinline__ void store_gated(const AttentionParams& p, int token, int head, int d,
                                            float value) {
  const uint16_t gate =
      p.gate == nullptr ? 0 : p.gate[token * p.gate_stride + head * p.gate_head_stride + d];
  p.out[token * p.out_stride + head * kWidth + d] = gated_bits(p, value, gate);
}

// Values d and d + 1; d is even.
__device__ __forceinline__ void store_gated_pair(const AttentionParams& p, int token, int head,
                                                 int d, float low, float high) {
  const uint32_t gates = p.gate == nullptr
                             ? 0
                             : *reinterpret_cast<const uint32_t*>(p.gate + token * p.gate_stride +
                                                                  head * p.gate_head_stride + d);
  *reinterpret_cast<uint32_t*>(p.out + token * p.out_stride + head * kWidth + d) =
      gated_bits(p, low, static_cast<uint16_t>(gates)) |
      static_cast<uint32_t>(gated_bits(p, high, static_cast<uint16_t>(gates >> 16))) << 16;
}

// Where vectors of one page and head lie. row_bytes: of 256 codes.
__device__ __forceinline__ const std::byte* page_keys(const AttentionParams& p, uint32_t page,
                                                      int kv_head, int row_bytes) {
  return p.pool + int64_t{page} * p.page_bytes + int64_t{kv_head} * kPage * row_bytes;
}
__device__ __forceinline__ int64_t values_after_keys(const AttentionParams& p, int row_bytes) {
  return int64_t{p.n_kv_heads} * kPage * row_bytes;
}
// INT8: four binary16 scales a position.
__device__ __forceinline__ const std::byte* page_key_scales(const AttentionParams& p, uint32_t page,
                                                            int kv_head) {
  return p.pool + int64_t{page} * p.page_bytes + 2 * values_after_keys(p, kWidth) +
         int64_t{kv_head} * kPage * 8;
}
__device__ __forceinline__ int64_t value_scales_after_key_scales(const AttentionParams& p) {
  return int64_t{p.n_kv_heads} * kPage * 8;
}

// Entry of the page table. The mutant is one entry late in every second page.
__device__ __forceinline__ uint32_t page_at(const AttentionParams& p, int index) {
  return p.page_table[mutant(Mutant::attention_page) && index % 2 == 1 ? index - 1 : index];
}

// Segment of positions that one block of a decode launch adds up. Blocks of the newest, longest
// segments come first, so that short ones fill the card at the end.
struct BlockSegment {
  int index;
  int first;
  int end;   // of what is there
  int last;  // newest position of all

  __device__ __forceinline__ explicit BlockSegment(const AttentionParams& p) {
    index = static_cast<int>(gridDim.y - 1 - blockIdx.y);
    const AttentionSegments::Range range = p.segments.range(index);
    last = *p.first_position + p.n_tokens - 1;
    first = range.first;
    end = min(range.end, last + 1);
  }
  __device__ __forceinline__ bool empty() const { return first > last; }
  __device__ __forceinline__ int n_steps(int step) const {
    const int n = (end - first + step - 1) / step;
    return mutant(Mutant::attention_segment_tail) && n > 1 ? (end - first) / step : n;
  }
  // Of row 0 in what a decode launch leaves behind.
  __device__ __forceinline__ int64_t first_row(const AttentionParams& p, int kv_head) const {
    return (int64_t{kv_head} * p.n_segments + index) * (p.n_tokens * p.group);
  }
};

// Power of two that brings a row's largest magnitude (bits of a bfloat16) to [2^14, 2^15).
__device__ __forceinline__ int query_shift(uint32_t largest_bits) {
  const int exponent = static_cast<int>(largest_bits >> 7) - 127;
  return largest_bits == 0 || exponent == 128 ? 0 : min(14 - exponent, 126);
}
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

}  // namespace lockstep::cuda
