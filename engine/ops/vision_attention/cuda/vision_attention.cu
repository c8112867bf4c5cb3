// Full attention of a picture's patches in float32, for cards without a matrix unit for bfloat16. A
// block has 64 queries of one head; a thread four of them
// (row group ty) and every eighth value of the head (lane tx); a warp has four row groups.
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/vision_attention/cuda/vision_launch.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kQueries = 64;
constexpr int kKeys = 32;
constexpr int kRows = 4;    // queries of a thread
constexpr int kAcross = 8;  // threads that share them
constexpr int kQueryStride = kQueries + 4;
constexpr int kKeyStride = kKeys + 4;
constexpr float kNothing = -3e38f;  // a maximum before the first key

template <int kColumns>
struct Shared {
  static constexpr int kWidth = kColumns * kAcross;
  float q[kWidth][kQueryStride];
  float k[kWidth][kKeyStride];
  float v[kKeys][kWidth];
  float p[kKeys][kQueryStride];
};

// Rows first ... first + kCount - 1 of one head, transposed; rows beyond n become zeros.
template <int kColumns, int kCount, int kStride>
__device__ __forceinline__ void load_transposed(const uint16_t* head, int64_t stride, int64_t first,
                                                int64_t n, float (*to)[kStride]) {
  for (int i = threadIdx.x; i < kCount * kColumns; i += kThreads) {
    const int row = i % kCount;
    const int column = i / kCount * kVector;
    float values[kVector] = {};
    if (first + row < n) load_vector(head + (first + row) * stride + column, values);
#pragma unroll
    for (int d = 0; d < kVector; ++d) to[column + d][row] = values[d];
  }
}

template <int kColumns>
__device__ __forceinline__ void load_values(const uint16_t* head, int64_t stride, int64_t first,
                                            int64_t n, Shared<kColumns>& shared) {
  for (int i = threadIdx.x; i < kKeys * kColumns; i += kThreads) {
    const int row = i / kColumns;
    const int column = i % kColumns * kVector;
    float values[kVector] = {};
    if (first + row < n) load_vector(head + (first + row) * stride + column, values);
#pragma unroll
    for (int d = 0; d < kVector; ++d) shared.v[row][column + d] = values[d];
  }
}

struct Softmax {
  float largest[kRows];
  float sum[kRows];  // of this lane's keys
};

// scores[i][j]: query 4 ty + i, key 4 tx + j of the step.
template <int kColumns>
__device__ __forceinline__ void score(const Shared<kColumns>& shared, int ty, int tx,
                                      float (&scores)[kRows][4]) {
#pragma unroll 8
  for (int d = 0; d < Shared<kColumns>::kWidth; ++d) {
    const float4 a = *reinterpret_cast<const float4*>(&shared.q[d][kRows * ty]);
    const float4 b = *reinterpret_cast<const float4*>(&shared.k[d][4 * tx]);
    const float query[kRows] = {a.x, a.y, a.z, a.w};
    const float key[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[i][j] = fmaf(query[i], key[j], scores[i][j]);
    }
  }
}

// Scores to weights; returns by what older sums must be multiplied.
__device__ __forceinline__ void weigh(float (&scores)[kRows][4], float scale, int n_keys, int tx,
                                      Softmax& softmax, float (&rescale)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    float largest = softmax.largest[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool inside = 4 * tx + j < n_keys || mutant(Mutant::vision_mask);
      scores[i][j] = inside ? scale * scores[i][j] : kNothing;
      largest = fmaxf(largest, scores[i][j]);
    }
#pragma unroll
    for (int distance = kAcross / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    }
    rescale[i] = exp_f32(softmax.largest[i] - largest);
    if (mutant(Mutant::vision_stale_maximum) && softmax.largest[i] > kNothing) rescale[i] = 1.0f;
    softmax.largest[i] = largest;
    softmax.sum[i] *= rescale[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      scores[i][j] = exp_f32(scores[i][j] - largest);
      softmax.sum[i] += scores[i][j];
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void add_values(const Shared<kColumns>& shared, int ty, int tx,
                                           float (&sums)[kRows][kColumns]) {
#pragma unroll 4
  for (int key = 0; key < kKeys; ++key) {
    const float4 a = *reinterpret_cast<const float4*>(&shared.p[key][kRows * ty]);
    const float weight[kRows] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float value = shared.v[key][tx + kAcross * c];
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i][c] = fmaf(weight[i], value, sums[i][c]);
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void write_rows(const VisionAttentionCudaArgs& p, int64_t first_query,
                                           int tx, const Softmax& softmax,
                                           const float (&sums)[kRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    float sum = softmax.sum[i];
#pragma unroll
    for (int distance = kAcross / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (first_query + i >= p.n_tokens) continue;
    uint16_t* out = p.out + ((first_query + i) * p.n_heads + blockIdx.y) * p.head_dim + tx;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      out[kAcross * c] = static_cast<uint16_t>(bf16_bits(__fdiv_rn(sums[i][c], sum)));
    }
  }
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads) attend_patches(const VisionAttentionCudaArgs p) {
  __shared__ __align__(16) Shared<kColumns> shared;
  const int tx = threadIdx.x % kAcross;
  const int ty = threadIdx.x / kAcross;
  const int64_t first = int64_t{blockIdx.x} * kQueries;
  const int64_t head = int64_t{blockIdx.y} * p.head_dim;
  load_transposed<kColumns, kQueries>(p.q + head, p.token_stride, first, p.n_tokens, shared.q);
  Softmax softmax;
  float sums[kRows][kColumns] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) softmax.largest[i] = kNothing, softmax.sum[i] = 0.0f;
  for (int64_t key = 0; key < p.n_tokens; key += kKeys) {
    load_transposed<kColumns, kKeys>(p.k + head, p.token_stride, key, p.n_tokens, shared.k);
    load_values(p.v + head, p.token_stride, key, p.n_tokens, shared);
    __syncthreads();
    float scores[kRows][4] = {};
    float rescale[kRows];
    score(shared, ty, tx, scores);
    const int n_keys = static_cast<int>(min(p.n_tokens - key, int64_t{kKeys}));
    weigh(scores, p.scale, n_keys, tx, softmax, rescale);
    // The weights of a row group are written and read by one warp.
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      *reinterpret_cast<float4*>(&shared.p[4 * tx + j][kRows * ty]) =
          make_float4(scores[0][j], scores[1][j], scores[2][j], scores[3][j]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[i][c] *= rescale[i];
    }
    add_values(shared, ty, tx, sums);
    __syncthreads();
  }
  write_rows(p, first + kRows * ty, tx, softmax, sums);
}

}  // namespace

void launch_vision_attention_sm70(const VisionAttentionCudaArgs& args, cudaStream_t stream) {
  arm_mutant();
  const dim3 blocks(static_cast<unsigned>((args.n_tokens + kQueries - 1) / kQueries),
                    static_cast<unsigned>(args.n_heads));
  if (args.head_dim == 72) {
    attend_patches<9><<<blocks, kThreads, 0, stream>>>(args);
  } else {
    attend_patches<8><<<blocks, kThreads, 0, stream>>>(args);
  }
  cuda_check_launch("vision_attention");
}

}  // namespace lockstep::cuda

namespace lockstep {

void vision_attention_cuda(const VisionAttentionCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::vision_head, args.head_dim));
  if (args.n_tokens == 0) return;
  const auto native = static_cast<cudaStream_t>(stream.native());
  if (args.family == KernelFamily::sm70) {
    cuda::launch_vision_attention_sm70(args, native);
  } else {
    cuda::launch_vision_attention_sm80(args, native);
  }
}

}  // namespace lockstep
