// Sixteen lanes a head, eight values a lane.
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/gated_rmsnorm/cuda/gated_rmsnorm_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = kGatedNormWidth / kVector;

__global__ void __launch_bounds__(kThreads) gated_rmsnorm(const GatedRmsNormCudaArgs p) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  const bool inside = row < p.n_tokens * p.n_heads;
  const int64_t token = inside ? row / p.n_heads : 0;
  const int64_t column =
      (inside ? row % p.n_heads : 0) * kGatedNormWidth + threadIdx.x % kLanes * kVector;
  float x[kVector];
  float z[kVector];
  float weight[kVector];
  load_vector(p.z + token * p.z_stride + column, z);
  load_vector(p.weight + threadIdx.x % kLanes * kVector, weight);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    z[i] = mutant(Mutant::gated_norm_sigmoid) ? silu_f32(z[i]) / z[i] : silu_f32(z[i]);
  }
  wait_for_earlier_kernels();
  let_next_kernel_start();
  load_vector(p.x + token * p.x_stride + column, x);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum = fmaf(x[i], x[i], sum);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    if (mutant(Mutant::gated_norm_tree) && distance == 1) break;
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (!inside) return;
  const float root = __fsqrt_rn(sum * (1.0f / kGatedNormWidth) + p.eps);
  const float inverse = __fdiv_rn(1.0f, root);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = x[i] * inverse * weight[i] * z[i];
  store_vector(x, p.out + token * p.out_stride + column);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void gated_rmsnorm_cuda(const GatedRmsNormCudaArgs& args, Stream& stream) {
  if (args.n_tokens == 0) return;
  cuda::arm_mutant();
  constexpr int kRows = cuda::kThreads / cuda::kLanes;
  const int64_t blocks = (args.n_tokens * args.n_heads + kRows - 1) / kRows;
  cuda::launch_early(cuda::gated_rmsnorm, static_cast<unsigned>(blocks), cuda::kThreads, 0,
                     static_cast<cudaStream_t>(stream.native()), args, "gated_rmsnorm");
}

}  // namespace lockstep
