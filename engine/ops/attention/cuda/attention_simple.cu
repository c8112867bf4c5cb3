// Attention in plain loops, for every type of cache on every card: the cross-check of the other
// kernels. One block a column and head walks over all positions, 256 at a time: eight warps form
// the scores, a lane eight values; then a thread adds up one of the 256 values.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/attention/cuda/attention_common.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 256;
template <KvType type>
constexpr int kRowBytesOf = static_cast<int>(kv_element_bytes(type)) * kWidth;

template <KvType type>
__device__ __forceinline__ float stored_value(const std::byte* codes, const std::byte* scales,
                                              int d) {
  if constexpr (type == KvType::fp32) return reinterpret_cast<const float*>(codes)[d];
  if constexpr (type == KvType::bf16) {
    return bf16_value(reinterpret_cast<const uint16_t*>(codes)[d]);
  }
  if constexpr (type == KvType::fp16) {
    return __half2float(reinterpret_cast<const __half*>(codes)[d]);
  }
  const float scale = __half2float(reinterpret_cast<const __half*>(scales)[d / 64]);
  return static_cast<float>(reinterpret_cast<const signed char*>(codes)[d]) * scale;
}

struct Vector {
  const std::byte* codes;
  const std::byte* scales;
};

template <KvType type>
__device__ __forceinline__ Vector vector_at(const AttentionParams& p, int kv_head, int position,
                                            bool values) {
  constexpr int kRowBytes = kRowBytesOf<type>;
  const uint32_t page = p.page_table[position / kPage];
  const int row = position % kPage;
  return {page_keys(p, page, kv_head, kRowBytes) + row * kRowBytes +
              (values ? values_after_keys(p, kRowBytes) : 0),
          page_key_scales(p, page, kv_head) + row * 8 +
              (values ? value_scales_after_key_scales(p) : 0)};
}

// Largest or sum over the block's threads, the same for all of them.
template <bool kLargest>
__device__ __forceinline__ float over_block(float x, float* scratch) {
  for (int d = 16; d > 0; d /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, d);
    x = kLargest ? fmaxf(x, other) : x + other;
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  x = scratch[0];
  for (int w = 1; w < kThreads / 32; ++w) x = kLargest ? fmaxf(x, scratch[w]) : x + scratch[w];
  __syncthreads();
  return x;
}

template <KvType type>
__global__ void __launch_bounds__(kThreads) attention_simple(const AttentionParams p) {
  __shared__ float weights[kTile];
  __shared__ float scratch[kThreads / 32];
  const int token = blockIdx.x;
  const int head = blockIdx.y;
  const int kv_head = head / p.group;
  const int lane = threadIdx.x % 32;
  const int n_positions = *p.first_position + token + 1;
  const uint16_t* q = p.q + token * p.q_stride + head * p.q_head_stride;
  float query[8];
  for (int i = 0; i < 8; ++i) query[i] = bf16_value(q[lane + 32 * i]);
  float largest = kMasked;
  float denominator = 0.0f;
  float sum = 0.0f;
  for (int tile = 0; tile < n_positions; tile += kTile) {
    const int n = min(kTile, n_positions - tile);
    for (int j = threadIdx.x / 32; j < kTile; j += kThreads / 32) {
      float score = 0.0f;
      if (j < n) {
        const Vector k = vector_at<type>(p, kv_head, tile + j, false);
        for (int i = 0; i < 8; ++i) {
          score = fmaf(query[i], stored_value<type>(k.codes, k.scales, lane + 32 * i), score);
        }
      }
      for (int d = 16; d > 0; d /= 2) score += __shfl_xor_sync(kAllLanes, score, d);
      if (lane == 0) weights[j] = j < n ? score * p.scale_log2 : kMasked;
    }
    __syncthreads();
    const float exponent = weights[threadIdx.x];
    const float next = fmaxf(largest, reference_of(over_block<true>(exponent, scratch)));
    const float rescale = exp2_whole(largest - next);
    largest = next;
    const float weight = exponent == kMasked ? 0.0f : exp2_approx(exponent - next);
    weights[threadIdx.x] = weight;
    denominator = fmaf(denominator, rescale, over_block<false>(weight, scratch));
    sum *= rescale;
    for (int j = 0; j < n; ++j) {
      const Vector v = vector_at<type>(p, kv_head, tile + j, true);
      sum = fmaf(weights[j], stored_value<type>(v.codes, v.scales, threadIdx.x), sum);
    }
    __syncthreads();
  }
  store_gated(p, token, head, threadIdx.x, sum / denominator);
}

template <KvType type>
void launch(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  attention_simple<type><<<dim3(p.n_tokens, p.n_kv_heads * p.group), kThreads, 0, stream>>>(p);
  cuda_check_launch("attention simple");
}

}  // namespace

void launch_attention_simple(KvType type, const AttentionParams& p, cudaStream_t stream) {
  switch (type) {
    case KvType::fp32:
      return launch<KvType::fp32>(p, stream);
    case KvType::bf16:
      return launch<KvType::bf16>(p, stream);
    case KvType::fp16:
      return launch<KvType::fp16>(p, stream);
    case KvType::int8:
      return launch<KvType::int8>(p, stream);
  }
}

}  // namespace lockstep::cuda
