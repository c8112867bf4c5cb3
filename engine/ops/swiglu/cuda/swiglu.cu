#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/swiglu/cuda/swiglu_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) swiglu_rows(const SwigluCudaArgs p) {
  const int64_t row = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVector;
  if (column >= p.width) return;
  float gate[kVector];
  float up[kVector];
  load_vector(p.gate + row * p.gate_stride + column, gate);
  load_vector(p.up + row * (mutant(Mutant::swiglu_stride) ? p.width : p.up_stride) + column, up);
#pragma unroll
  for (int i = 0; i < kVector; ++i) gate[i] = silu_f32(gate[i]) * up[i];
  store_vector(gate, p.out + row * p.out_stride + column);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void swiglu_cuda(const SwigluCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::swiglu, args.width));
  if (args.n_tokens == 0) return;
  cuda::arm_mutant();
  constexpr int64_t kBlock = int64_t{cuda::kThreads} * cuda::kVector;
  const dim3 blocks(static_cast<unsigned>(args.n_tokens),
                    static_cast<unsigned>((args.width + kBlock - 1) / kBlock));
  cuda::swiglu_rows<<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(
      args);
  cuda_check_launch("swiglu");
}

}  // namespace lockstep
