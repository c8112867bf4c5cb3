// Merges the segments of decode attention and applies the gate. One block a column, a head and half
// of its 256 values: eight warps take segments i, i + 8, ..., a thread four values. Starts early:
// its blocks are there when the last partial sums are.
#include <cuda_runtime.h>

#include "engine/ops/attention/cuda/attention_common.cuh"
#include "engine/ops/common/cuda/early_launch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kGroups = 8;
constexpr int kGroupThreads = 32;
constexpr int kThreads = kGroups * kGroupThreads;
constexpr int kBlockValues = 4 * kGroupThreads;
constexpr int kAhead = 8;  // partial sums that a thread asks for together

// Statistics of all segments to shared memory, maxima as weights. The largest maximum is the same
// in any order.
__device__ __forceinline__ void weigh_segments(const float* statistics, int64_t stride,
                                               int n_segments, float2* weights) {
  __shared__ float maxima[kThreads / 32];
  float largest = kMasked;
  for (int i = threadIdx.x; i < n_segments; i += kThreads) {
    const float2 s = *reinterpret_cast<const float2*>(statistics + i * stride);
    weights[i] = s;
    largest = fmaxf(largest, s.x);
  }
  for (int d = 16; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, d));
  if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) largest = fmaxf(largest, maxima[i]);
  for (int i = threadIdx.x; i < n_segments; i += kThreads) {
    weights[i].x =
        mutant(Mutant::attention_merge_order) && i == 0 ? 1.0f : exp2_whole(weights[i].x - largest);
  }
  __syncthreads();
}

// Lane l of a warp adds segments l, l + 32, ...; a segment that holds nothing adds zero, so the
// order depends on nothing but the positions.
__device__ __forceinline__ float denominator_of(const float2* weights, int n_segments) {
  float sum = 0.0f;
  for (int i = threadIdx.x % 32; i < n_segments; i += 32) {
    const float factor = mutant(Mutant::attention_denominator) ? 1.0f : weights[i].x;
    sum = fmaf(factor, weights[i].y, sum);
  }
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
  return sum;
}

__global__ void __launch_bounds__(kThreads) attention_merge(const AttentionParams p) {
  extern __shared__ float2 weights[];
  __shared__ float4 sums[kGroups][kGroupThreads];
  const int token = blockIdx.x;
  const int head = blockIdx.y;
  const int row = token * p.group + head % p.group;
  const int n_rows = p.n_tokens * p.group;
  const int64_t first = (int64_t{head / p.group} * p.n_segments) * n_rows + row;
  const int group = threadIdx.x / kGroupThreads;
  const int own = threadIdx.x % kGroupThreads;
  const float* values = p.values + first * kWidth + blockIdx.z * kBlockValues + own * 4;
  const int n_segments = p.segments.index_of(*p.first_position + token) + 1;
  if (!mutant(Mutant::attention_merge_early)) wait_for_earlier_kernels();
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int from = group; from < n_segments || from == group; from += kAhead * kGroups) {
    float4 part[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = from + i * kGroups;
      if (at < n_segments) {
        part[i] = __ldcs(reinterpret_cast<const float4*>(values + int64_t{at} * n_rows * kWidth));
      }
    }
    if (from == group) {
      weigh_segments(p.statistics + first * 2, int64_t{n_rows} * 2, n_segments, weights);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = from + i * kGroups;
      if (at < n_segments) {
        const float weight = weights[at].x;
        sum.x = fmaf(weight, part[i].x, sum.x);
        sum.y = fmaf(weight, part[i].y, sum.y);
        sum.z = fmaf(weight, part[i].z, sum.z);
        sum.w = fmaf(weight, part[i].w, sum.w);
      }
    }
  }
  sums[group][own] = sum;
  __syncthreads();
  if (threadIdx.x >= kBlockValues) return;
  const float* parts = reinterpret_cast<const float*>(sums) + threadIdx.x;
  float value = 0.0f;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) value += parts[i * kBlockValues];
  const float inverse = 1.0f / denominator_of(weights, n_segments);
  store_gated(p, token, head, blockIdx.z * kBlockValues + threadIdx.x, value * inverse);
}

}  // namespace

void launch_attention_merge(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  const dim3 blocks(p.n_tokens, p.n_kv_heads * p.group, kWidth / kBlockValues);
  launch_early(attention_merge, blocks, kThreads, p.n_segments * static_cast<int>(sizeof(float2)),
               stream, p, "attention merge");
}

}  // namespace lockstep::cuda
