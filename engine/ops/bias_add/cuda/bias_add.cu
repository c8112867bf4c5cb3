#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/bias_add/cuda/bias_add_cuda.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/gelu/cuda/gelu.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

template <AfterBias kAfter>
__global__ void __launch_bounds__(kThreads) bias_rows(const BiasAddCudaArgs p) {
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVector;
  if (column >= p.width) return;
  const int64_t at = blockIdx.x * p.width + column;
  float v[kVector];
  float bias[kVector];
  load_vector(p.x + at, v);
  load_vector(p.bias + column, bias);
  float base[kVector] = {};
  if constexpr (kAfter == AfterBias::residual) load_vector(p.out + at, base);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float sum = v[i] + bias[i];
    v[i] = mutant(Mutant::bias_unrounded) ? sum : round_bf16(sum);
    if constexpr (kAfter == AfterBias::gelu_exact) v[i] = gelu_exact_f32(v[i]);
    if constexpr (kAfter == AfterBias::gelu_tanh) v[i] = gelu_tanh_f32(v[i]);
    if constexpr (kAfter == AfterBias::residual) v[i] = base[i] + v[i];
  }
  store_vector(v, p.out + at);
}

template <AfterBias kAfter>
void launch_bias(const BiasAddCudaArgs& args, cudaStream_t stream) {
  constexpr int64_t kBlock = int64_t{kThreads} * kVector;
  const dim3 blocks(static_cast<unsigned>(args.n_rows),
                    static_cast<unsigned>((args.width + kBlock - 1) / kBlock));
  bias_rows<kAfter><<<blocks, kThreads, 0, stream>>>(args);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void bias_add_cuda(const BiasAddCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::bias_add, args.width));
  if (args.n_rows == 0) return;
  cuda::arm_mutant();
  const auto native = static_cast<cudaStream_t>(stream.native());
  switch (args.after) {
    case AfterBias::store:
      cuda::launch_bias<AfterBias::store>(args, native);
      break;
    case AfterBias::gelu_exact:
      cuda::launch_bias<AfterBias::gelu_exact>(args, native);
      break;
    case AfterBias::gelu_tanh:
      cuda::launch_bias<AfterBias::gelu_tanh>(args, native);
      break;
    case AfterBias::residual:
      cuda::launch_bias<AfterBias::residual>(args, native);
      break;
  }
  cuda_check_launch("bias_add");
}

}  // namespace lockstep
