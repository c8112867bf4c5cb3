// Root-mean-square normalisation: a block a row, the row in registers; heads: half a warp a row.
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/head_lanes.cuh"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/rmsnorm/cuda/rmsnorm_cuda.h"

namespace lockstep::cuda {
namespace {

// x plus its branch, stored back.
__device__ __forceinline__ void add_branch(const RmsNormCudaArgs& p, int64_t row, int column,
                                           uint16_t* x, float (&v)[kVector]) {
  float branch[kVector];
  load_vector(p.y0 + row * p.width + column, branch);
  if (p.y1 != nullptr) {
    float other[kVector];
    load_vector(p.y1 + row * p.width + column, other);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float sum = branch[i] + other[i];
      branch[i] = mutant(Mutant::norm_branch_unrounded) ? sum : round_bf16(sum);
    }
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float sum = v[i] + branch[i];
    v[i] = mutant(Mutant::norm_sum_unrounded) ? sum : round_bf16(sum);
  }
  store_vector(v, x + column);
}

// The same for a head in 16 lanes.
template <int kSteps>
__device__ __forceinline__ void add_branch(const RmsNormCudaArgs& p, int64_t row, int lane,
                                           float (&v)[kSteps]) {
  float branch[kSteps];
  head_load(p.y0 + row * p.width, lane, branch);
  if (p.y1 != nullptr) {
    float other[kSteps];
    head_load(p.y1 + row * p.width, lane, other);
#pragma unroll
    for (int j = 0; j < kSteps; ++j) branch[j] = round_bf16(branch[j] + other[j]);
  }
#pragma unroll
  for (int j = 0; j < kSteps; ++j) v[j] = round_bf16(v[j] + branch[j]);
  head_store(v, p.x + row * p.x_stride, lane);
}

template <int kVectors>
__device__ __forceinline__ float square_sum(const float (&v)[kVectors][kVector]) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum = fmaf(v[j][i], v[j][i], sum);
  }
  return sum;
}

template <int kVectors>
__global__ void __launch_bounds__(1024) rmsnorm_row(const RmsNormCudaArgs p) {
  __shared__ float of_warp[32];
  const int64_t row = blockIdx.x;
  uint16_t* x = p.x + row * p.x_stride;
  float v[kVectors][kVector] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
    if (column >= p.width) continue;
    load_vector(x + column, v[j]);
    if (p.y0 != nullptr) add_branch(p, row, column, x, v[j]);
  }
  const float sum = block_sum(square_sum(v), of_warp);
  const float mean = __fdiv_rn(sum, static_cast<float>(p.width));
  const float root = __fsqrt_rn(mean + (mutant(Mutant::norm_eps) ? 0.0f : p.eps));
  const float inverse = __fdiv_rn(1.0f, root);
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
    if (column >= p.width) continue;
    float w[kVector];
    load_vector(p.weight + column, w);
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[j][i] = v[j][i] * inverse * (p.weight_offset + w[i]);
    store_vector(v[j], p.out + row * p.out_stride + column);
  }
}

constexpr int kHeadThreads = 128;

template <int kSteps>
__global__ void __launch_bounds__(kHeadThreads) rmsnorm_heads(const RmsNormCudaArgs p) {
  const int64_t row = int64_t{blockIdx.x} * (kHeadThreads / kLanes) + threadIdx.x / kLanes;
  const bool inside = row < p.n_rows;
  const int lane = threadIdx.x % kLanes;
  float v[kSteps] = {};
  if (inside) {
    head_load(p.x + row * p.x_stride, lane, v);
    if (p.y0 != nullptr) add_branch(p, row, lane, v);
  }
  head_norm(v, p.weight, lane, p.eps, p.weight_offset);
  if (inside) head_store(v, p.out + row * p.out_stride, lane);
}

template <int kSteps>
void launch_heads(const RmsNormCudaArgs& args, cudaStream_t stream) {
  constexpr int kRows = kHeadThreads / kLanes;
  const auto blocks = static_cast<unsigned>((args.n_rows + kRows - 1) / kRows);
  rmsnorm_heads<kSteps><<<blocks, kHeadThreads, 0, stream>>>(args);
}

void launch_rows(const RmsNormCudaArgs& args, cudaStream_t stream) {
  const int vectors = args.width / kVector;
  const int per_thread = vectors > 1024 ? 2 : 1;
  const int threads = ((vectors + per_thread - 1) / per_thread + 31) / 32 * 32;
  const auto blocks = static_cast<unsigned>(args.n_rows);
  if (per_thread == 1) {
    rmsnorm_row<1><<<blocks, threads, 0, stream>>>(args);
  } else {
    rmsnorm_row<2><<<blocks, threads, 0, stream>>>(args);
  }
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void rmsnorm_cuda(const RmsNormCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::rmsnorm, args.width));
  if (args.n_rows == 0) return;
  cuda::arm_mutant();
  const auto native = static_cast<cudaStream_t>(stream.native());
  if (has_row_route(RowOp::head, args.width)) {
    cuda::with_head_steps(
        args.width, [&](auto steps) { cuda::launch_heads<decltype(steps)::value>(args, native); });
  } else {
    cuda::launch_rows(args, native);
  }
  cuda_check_launch("rmsnorm");
}

}  // namespace lockstep
