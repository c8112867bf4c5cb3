#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/residual_add/cuda/residual_add_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// A thread adds eight values; the last thread the rest one by one.
__global__ void __launch_bounds__(kThreads)
    add_rows(const uint16_t* a, const uint16_t* b, uint16_t* out, int64_t n) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (at + kVector <= n) {
    float x[kVector];
    float y[kVector];
    load_vector(a + at, x);
    load_vector(b + at, y);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] += y[i];
    store_vector(x, out + at);
    return;
  }
  if (mutant(Mutant::add_tail)) return;
  for (int64_t i = at; i < n; ++i) {
    out[i] = static_cast<uint16_t>(bf16_bits(bf16_value(a[i]) + bf16_value(b[i])));
  }
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void sum_partials_cuda(const uint16_t* p0, const uint16_t* p1, uint16_t* out, int64_t n,
                       Stream& stream) {
  if (n == 0) return;
  cuda::arm_mutant();
  constexpr int64_t kBlock = int64_t{cuda::kThreads} * cuda::kVector;
  const auto blocks = static_cast<unsigned>((n + kBlock - 1) / kBlock);
  cuda::add_rows<<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(p0, p1,
                                                                                            out, n);
  cuda_check_launch("residual_add");
}

void residual_add_cuda(uint16_t* x, const uint16_t* y, int64_t n, Stream& stream) {
  sum_partials_cuda(x, y, x, n, stream);
}

}  // namespace lockstep
