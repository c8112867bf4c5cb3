#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/gelu/cuda/gelu.cuh"
#include "engine/ops/gelu/cuda/gelu_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float gelu_of(float x, bool exact) {
  return exact ? gelu_exact_f32(x) : gelu_tanh_f32(x);
}

__global__ void __launch_bounds__(kThreads) gelu_values(uint16_t* x, int64_t n, bool exact) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at + kVector <= n) {
    float v[kVector];
    load_vector(x + at, v);
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] = gelu_of(v[i], exact);
    store_vector(v, x + at);
    return;
  }
  for (int64_t i = at; i < n; ++i) {
    x[i] = static_cast<uint16_t>(bf16_bits(gelu_of(bf16_value(x[i]), exact)));
  }
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void gelu_cuda(uint16_t* x, int64_t n, GeluKind kind, Stream& stream) {
  if (n == 0) return;
  cuda::arm_mutant();
  constexpr int64_t kBlock = int64_t{cuda::kThreads} * cuda::kVector;
  const auto blocks = static_cast<unsigned>((n + kBlock - 1) / kBlock);
  cuda::gelu_values<<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(
      x, n, kind == GeluKind::exact);
  cuda_check_launch("gelu");
}

}  // namespace lockstep
