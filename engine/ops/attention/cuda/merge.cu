// Merges the segments of decode attention and applies the gate. One block a column and head: four
// groups of 256 threads take segments i, i + 4, ..., a thread one of the 256 values.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/attention/cuda/attention_common.cuh"
#include "engine/ops/common/cuda/early_launch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kGroups = 4;
constexpr int kThreads = kWidth * kGroups;

// Weights of all segments to shared memory; returns 1 / denominator. Lane l of the first warp adds
// segments l, l + 32, ...; a segment that holds nothing adds zero, so the order depends on nothing
// but the positions.
__device__ __forceinline__ float weigh_segments(const float* statistics, int64_t stride,
                                                int n_segments, float* weights) {
  __shared__ float denominator;
  if (threadIdx.x < 32) {
    float largest = kMasked;
    for (int i = threadIdx.x; i < n_segments; i += 32) {
      largest = fmaxf(largest, statistics[i * stride]);
    }
    for (int d = 16; d > 0; d /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, d));
    }
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n_segments; i += 32) {
      float weight = exp2_whole(statistics[i * stride] - largest);
      if (mutant(Mutant::attention_merge_order) && i == 0) weight = 1.0f;
      weights[i] = weight;
      const float factor = mutant(Mutant::attention_denominator) ? 1.0f : weight;
      sum = fmaf(factor, statistics[i * stride + 1], sum);
    }
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
    if (threadIdx.x == 0) denominator = sum;
  }
  __syncthreads();
  return 1.0f / denominator;
}

__global__ void __launch_bounds__(kThreads) attention_merge(const AttentionParams p) {
  extern __shared__ float weights[];
  __shared__ float sums[kGroups][kWidth];
  const int token = blockIdx.x;
  const int head = blockIdx.y;
  const int kv_head = head / p.group;
  const int row = token * p.group + head % p.group;
  const int n_rows = p.n_tokens * p.group;
  const int n_segments = p.segments.index_of(*p.first_position + token) + 1;
  const int64_t first = (int64_t{kv_head} * p.n_segments) * n_rows + row;
  wait_for_earlier_kernels();
  let_next_kernel_start();
  const float inverse =
      weigh_segments(p.statistics + first * 2, int64_t{n_rows} * 2, n_segments, weights);
  const int d = threadIdx.x % kWidth;
  const int group = threadIdx.x / kWidth;
  const float* values = p.values + first * kWidth + d;
  float sum = 0.0f;
#pragma unroll 8
  for (int i = group; i < n_segments; i += kGroups) {
    sum = fmaf(weights[i], values[int64_t{i} * n_rows * kWidth], sum);
  }
  sums[group][d] = sum;
  __syncthreads();
  if (group != 0) return;
  const float value = (((sums[0][d] + sums[1][d]) + sums[2][d]) + sums[3][d]) * inverse;
  store_gated(p, token, head, d, value);
}

}  // namespace

void launch_attention_merge(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  const dim3 blocks(p.n_tokens, p.n_kv_heads * p.group);
  launch_early(attention_merge, blocks, kThreads, p.n_segments * static_cast<int>(sizeof(float)),
               stream, p, "attention merge");
}

}  // namespace lockstep::cuda
