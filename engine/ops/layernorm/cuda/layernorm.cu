// Layer normalisation: a block a row, the row in registers.
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/layernorm/cuda/layernorm_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kMostThreads = 512;

template <int kVectors>
__device__ __forceinline__ float plain_sum(const float (&v)[kVectors][kVector]) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum += v[j][i];
  }
  return sum;
}

// Takes the mean away; returns the sum of squares of what is left. Values beyond the row are zeros
// and stay so.
template <int kVectors>
__device__ __forceinline__ float centre(float (&v)[kVectors][kVector], float mean, int n_threads,
                                        int width) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const bool inside = (j * n_threads + static_cast<int>(threadIdx.x)) * kVector < width;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (inside || mutant(Mutant::layernorm_tail)) v[j][i] -= mean;
      sum = fmaf(v[j][i], v[j][i], sum);
    }
  }
  return sum;
}

template <int kVectors>
__global__ void __launch_bounds__(kMostThreads) layernorm_row(const LayerNormCudaArgs p) {
  __shared__ float of_warp[2][32];
  const int n_threads = static_cast<int>(blockDim.x);
  const int64_t first = int64_t{blockIdx.x} * p.width;
  const auto width = static_cast<float>(p.width);
  float v[kVectors][kVector] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = (j * n_threads + static_cast<int>(threadIdx.x)) * kVector;
    if (column < p.width) load_vector(p.x + first + column, v[j]);
  }
  const float mean = __fdiv_rn(block_sum(plain_sum(v), of_warp[0]), width);
  const int second = mutant(Mutant::layernorm_stale_buffer) ? 0 : 1;
  const float squares = block_sum(centre(v, mean, n_threads, p.width), of_warp[second]);
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, width) + p.eps));
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = (j * n_threads + static_cast<int>(threadIdx.x)) * kVector;
    if (column >= p.width) continue;
    float weight[kVector];
    float bias[kVector];
    load_vector(p.weight + column, weight);
    load_vector(p.bias + column, bias);
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[j][i] = fmaf(v[j][i] * inverse, weight[i], bias[i]);
    store_vector(v[j], p.out + first + column);
  }
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void layernorm_cuda(const LayerNormCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::layernorm, args.width));
  if (args.n_rows == 0) return;
  cuda::arm_mutant();
  const auto native = static_cast<cudaStream_t>(stream.native());
  const int vectors = args.width / cuda::kVector;
  const int per_thread = vectors > cuda::kMostThreads ? 2 : 1;
  const int threads = ((vectors + per_thread - 1) / per_thread + 31) / 32 * 32;
  const auto blocks = static_cast<unsigned>(args.n_rows);
  if (per_thread == 1) {
    cuda::layernorm_row<1><<<blocks, threads, 0, native>>>(args);
  } else {
    cuda::layernorm_row<2><<<blocks, threads, 0, native>>>(args);
  }
  cuda_check_launch("layernorm");
}

}  // namespace lockstep
