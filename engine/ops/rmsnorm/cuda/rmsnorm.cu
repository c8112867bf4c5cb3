// Root-mean-square normalisation: a block a row, the row in registers; heads: half a warp a row.
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/common/cuda/head_lanes.cuh"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/rmsnorm/cuda/rmsnorm_cuda.h"

namespace lockstep::cuda {
namespace {

// x plus its branch, rounded.
__device__ __forceinline__ void add_branch(const uint4& packed0, const uint4& packed1, bool both,
                                           float (&v)[kVector]) {
  float y0[kVector];
  float y1[kVector];
  unpack(packed0, y0);
  unpack(packed1, y1);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float pair = y0[i] + y1[i];
    const float rounded = mutant(Mutant::norm_branch_unrounded) ? pair : round_bf16(pair);
    const float sum = v[i] + (both ? rounded : y0[i]);
    v[i] = mutant(Mutant::norm_sum_unrounded) ? sum : round_bf16(sum);
  }
}

__device__ __forceinline__ uint4 load_packed(const uint16_t* from) {
  return *reinterpret_cast<const uint4*>(from);
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

// Everything is loaded before anything is used, weights before the kernel ahead has ended.
template <int kVectors, int kBranches>
__global__ void __launch_bounds__(1024) rmsnorm_row(const RmsNormCudaArgs p) {
  __shared__ float of_warp[32];
  const int64_t row = blockIdx.x;
  uint16_t* x = p.x + row * p.x_stride;
  uint4 packed[kVectors] = {};
  uint4 y0[kVectors] = {};
  uint4 y1[kVectors] = {};
  float w[kVectors][kVector] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
    if (column < p.width) load_vector(p.weight + column, w[j]);
  }
  wait_for_earlier_kernels();
  let_next_kernel_start();  // late, so that nothing starts beside what is ahead of this kernel
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
    if (column >= p.width || mutant(Mutant::ablate_loads)) continue;
    packed[j] = load_packed(x + column);
    if constexpr (kBranches > 0) y0[j] = load_packed(p.y0 + row * p.width + column);
    if constexpr (kBranches > 1) y1[j] = load_packed(p.y1 + row * p.width + column);
  }
  float v[kVectors][kVector];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    unpack(packed[j], v[j]);
    if constexpr (kBranches > 0) add_branch(y0[j], y1[j], kBranches > 1, v[j]);
  }
  const float sum = mutant(Mutant::ablate_math) ? 1.0f : block_sum(square_sum(v), of_warp);
  const float mean = __fdiv_rn(sum, static_cast<float>(p.width));
  const float root = __fsqrt_rn(mean + (mutant(Mutant::norm_eps) ? 0.0f : p.eps));
  const float inverse = __fdiv_rn(1.0f, root);
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
    if (column >= p.width) continue;
    if constexpr (kBranches > 0) store_vector(v[j], x + column);
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[j][i] = v[j][i] * inverse * (p.weight_offset + w[j][i]);
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

template <int kVectors>
void launch_rows(const RmsNormCudaArgs& args, cudaStream_t stream) {
  const int vectors = args.width / kVector;
  const int threads = ((vectors + kVectors - 1) / kVectors + 31) / 32 * 32;
  const auto blocks = static_cast<unsigned>(args.n_rows);
  if (args.y0 == nullptr) {
    launch_early(rmsnorm_row<kVectors, 0>, blocks, threads, 0, stream, args, "rmsnorm");
  } else if (args.y1 == nullptr) {
    launch_early(rmsnorm_row<kVectors, 1>, blocks, threads, 0, stream, args, "rmsnorm");
  } else {
    launch_early(rmsnorm_row<kVectors, 2>, blocks, threads, 0, stream, args, "rmsnorm");
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
  } else if (args.width <= kOneVectorNormWidth) {
    cuda::launch_rows<1>(args, native);
  } else {
    cuda::launch_rows<2>(args, native);
  }
  cuda_check_launch("rmsnorm");
}

}  // namespace lockstep
