// Full attention of a picture's patches in the matrix unit. A block has 64 queries of one head, a
// warp 16 of them; keys run in steps of 64 through two stages of shared memory.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/copy_async.cuh"
#include "engine/ops/common/cuda/mma.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/vision_attention/cuda/vision_launch.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kQueries = 64;
constexpr int kKeys = 64;
constexpr int kStages = 2;
constexpr int kStride = 88;         // bfloat16 a row of shared memory: no two rows share banks
constexpr float kNothing = -3e38f;  // a maximum before the first key

struct Stage {
  uint16_t k[kKeys][kStride];
  uint16_t v[kKeys][kStride];
};

// kColumns: the head's values in eights. Steps of 16 values for scores, the last filled up with
// zeros; tiles of 8 for values.
template <int kColumns>
struct Head {
  static constexpr int kWidth = 8 * kColumns;
  static constexpr int kSteps = (kColumns + 1) / 2;
};

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 16 keys by 8 values, transposed: the B fragment of one tile of values.
__device__ __forceinline__ void load_value_tile(const uint16_t* row, uint32_t& b0, uint32_t& b1) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(b0), "=r"(b1)
               : "r"(shared_address(row)));
}

// Keys first ... first + 63 of one head; rows beyond the last one become zeros.
template <int kColumns>
__device__ __forceinline__ void load_stage(const VisionAttentionCudaArgs& p, int64_t head,
                                           int64_t first, Stage& stage) {
  for (int i = threadIdx.x; i < 2 * kKeys * kColumns; i += kThreads) {
    const bool value = i >= kKeys * kColumns;
    const int at = value ? i - kKeys * kColumns : i;
    const int row = at / kColumns;
    const int column = at % kColumns * kVector;
    uint16_t* to = value ? &stage.v[row][column] : &stage.k[row][column];
    if (first + row < p.n_tokens) {
      const uint16_t* from = value ? p.v : p.k;
      copy_async_16(to, from + (first + row) * p.token_stride + head + column);
    } else {
      *reinterpret_cast<uint4*>(to) = {0, 0, 0, 0};
    }
  }
  copy_async_commit();
}

// What fills up the last step of scores is never loaded.
template <int kColumns>
__device__ __forceinline__ void clear_padding(Stage (&stages)[kStages]) {
  if constexpr (kColumns % 2 == 1) {
    for (int i = threadIdx.x; i < kStages * kKeys; i += kThreads) {
      *reinterpret_cast<uint4*>(&stages[i / kKeys].k[i % kKeys][8 * kColumns]) = {0, 0, 0, 0};
    }
  }
}

// A fragments of 16 queries: this lane's rows are first and first + 8.
template <int kColumns>
__device__ __forceinline__ void load_queries(const VisionAttentionCudaArgs& p, int64_t head,
                                             int64_t first, int lane,
                                             uint32_t (&q)[Head<kColumns>::kSteps][4]) {
#pragma unroll
  for (int step = 0; step < Head<kColumns>::kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first + i % 2 * 8;
      const int column = 16 * step + i / 2 * 8 + 2 * (lane % 4);
      const bool inside = row < p.n_tokens && column < 8 * kColumns;
      const uint16_t* from = p.q + row * p.token_stride + head + column;
      q[step][i] = inside ? *reinterpret_cast<const uint32_t*>(from) : 0u;
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void score(const Stage& stage, int lane,
                                      const uint32_t (&q)[Head<kColumns>::kSteps][4],
                                      float (&scores)[kKeys / 8][4]) {
#pragma unroll
  for (int tile = 0; tile < kKeys / 8; ++tile) {
    const uint16_t* key = &stage.k[8 * tile + lane / 4][2 * (lane % 4)];
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[tile][i] = 0.0f;
#pragma unroll
    for (int step = 0; step < Head<kColumns>::kSteps; ++step) {
      mma_m16n8k16_bf16(scores[tile], q[step][0], q[step][1], q[step][2], q[step][3],
                        *reinterpret_cast<const uint32_t*>(key + 16 * step),
                        *reinterpret_cast<const uint32_t*>(key + 16 * step + 8));
    }
  }
}

struct Softmax {
  float largest[2];
  float sum[2];  // of this lane's keys
};

// Scores to weights, 2^(s - largest); rescale: by what older sums must be multiplied.
__device__ __forceinline__ void weigh(float (&scores)[kKeys / 8][4], float scale_log2, int n_keys,
                                      int lane, Softmax& softmax, float (&rescale)[2]) {
  float largest[2] = {softmax.largest[0], softmax.largest[1]};
#pragma unroll
  for (int tile = 0; tile < kKeys / 8; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool inside = 8 * tile + 2 * (lane % 4) + i % 2 < n_keys || mutant(Mutant::vision_mask);
      scores[tile][i] = inside ? scores[tile][i] * scale_log2 : kNothing;
      largest[i / 2] = fmaxf(largest[i / 2], scores[tile][i]);
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(0xffffffffu, largest[row], 1));
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(0xffffffffu, largest[row], 2));
    rescale[row] = exp2_of(softmax.largest[row] - largest[row]);
    if (mutant(Mutant::vision_stale_maximum) && softmax.largest[row] > kNothing) {
      rescale[row] = 1.0f;
    }
    softmax.largest[row] = largest[row];
    softmax.sum[row] *= rescale[row];
  }
#pragma unroll
  for (int tile = 0; tile < kKeys / 8; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[tile][i] = exp2_of(scores[tile][i] - largest[i / 2]);
      softmax.sum[i / 2] += scores[tile][i];
    }
  }
}

// Weights of 16 keys as A fragments: what bfloat16 holds of them, and what is left of that.
struct Weights {
  uint32_t high[4];
  uint32_t low[4];
};

__device__ __forceinline__ Weights split_weights(const float (&a)[4], const float (&b)[4]) {
  const float values[4][2] = {{a[0], a[1]}, {a[2], a[3]}, {b[0], b[1]}, {b[2], b[3]}};
  Weights weights;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = bf16_pair(values[i][0], values[i][1]);
    weights.high[i] = pair;
    weights.low[i] = bf16_pair(values[i][0] - __uint_as_float(pair << 16),
                               values[i][1] - __uint_as_float(pair & 0xffff0000u));
  }
  return weights;
}

template <int kColumns>
__device__ __forceinline__ void add_values(const Stage& stage, int lane,
                                           const float (&scores)[kKeys / 8][4],
                                           float (&sums)[kColumns][4]) {
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    const Weights w = split_weights(scores[2 * step], scores[2 * step + 1]);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      uint32_t b0;
      uint32_t b1;
      load_value_tile(&stage.v[16 * step + lane % 16][8 * c], b0, b1);
      mma_m16n8k16_bf16(sums[c], w.high[0], w.high[1], w.high[2], w.high[3], b0, b1);
      mma_m16n8k16_bf16(sums[c], w.low[0], w.low[1], w.low[2], w.low[3], b0, b1);
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void write_rows(const VisionAttentionCudaArgs& p, int64_t first,
                                           int lane, const Softmax& softmax,
                                           const float (&sums)[kColumns][4]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float sum = softmax.sum[row];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int64_t query = first + 8 * row;
    if (query >= p.n_tokens) continue;
    uint16_t* out =
        p.out + (query * p.n_heads + blockIdx.y) * Head<kColumns>::kWidth + 2 * (lane % 4);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      *reinterpret_cast<uint32_t*>(out + 8 * c) =
          bf16_pair(__fdiv_rn(sums[c][2 * row], sum), __fdiv_rn(sums[c][2 * row + 1], sum));
    }
  }
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads)
    attend_patches_mma(const VisionAttentionCudaArgs p, float scale_log2) {
  __shared__ __align__(16) Stage stages[kStages];
  const int lane = threadIdx.x % 32;
  const int64_t head = int64_t{blockIdx.y} * Head<kColumns>::kWidth;
  const int64_t first = int64_t{blockIdx.x} * kQueries + threadIdx.x / 32 * 16 + lane / 4;
  uint32_t q[Head<kColumns>::kSteps][4];
  load_queries<kColumns>(p, head, first, lane, q);
  clear_padding<kColumns>(stages);
  load_stage<kColumns>(p, head, 0, stages[0]);
  Softmax softmax{{kNothing, kNothing}, {0.0f, 0.0f}};
  float sums[kColumns][4] = {};
  int turn = 0;
  for (int64_t key = 0; key < p.n_tokens; key += kKeys, turn ^= 1) {
    if (key + kKeys < p.n_tokens)
      load_stage<kColumns>(p, head, key + kKeys, stages[turn ^ 1]);
    else
      copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    float scores[kKeys / 8][4];
    float rescale[2];
    score<kColumns>(stages[turn], lane, q, scores);
    const int n_keys = static_cast<int>(min(p.n_tokens - key, int64_t{kKeys}));
    weigh(scores, scale_log2, n_keys, lane, softmax, rescale);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[c][i] *= rescale[i / 2];
    }
    add_values<kColumns>(stages[turn], lane, scores, sums);
    __syncthreads();
  }
  write_rows<kColumns>(p, first, lane, softmax, sums);
}

}  // namespace

void launch_vision_attention_sm80(const VisionAttentionCudaArgs& args, cudaStream_t stream) {
  arm_mutant();
  constexpr float kLog2E = 0x1.715476p+0f;
  const float scale_log2 = args.scale * kLog2E;
  const dim3 blocks(static_cast<unsigned>((args.n_tokens + kQueries - 1) / kQueries),
                    static_cast<unsigned>(args.n_heads));
  if (args.head_dim == 72) {
    attend_patches_mma<9><<<blocks, kThreads, 0, stream>>>(args, scale_log2);
  } else {
    attend_patches_mma<8><<<blocks, kThreads, 0, stream>>>(args, scale_log2);
  }
  cuda_check_launch("vision_attention");
}

}  // namespace lockstep::cuda
