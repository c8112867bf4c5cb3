#include <cmath>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/head_lanes.cuh"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/hadamard/cuda/hadamard_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kThreads / kLanes;

template <int kSteps>
__global__ void __launch_bounds__(kThreads)
    transform_heads(uint16_t* x, int64_t row_stride, int64_t n_rows, float factor) {
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  float v[kSteps] = {};
  if (row < n_rows) head_load(x + row * row_stride, lane, v);
  head_hadamard(v, lane, factor);
  if (row < n_rows) head_store(v, x + row * row_stride, lane);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

float hadamard_factor(int width) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
}

void hadamard_cuda(uint16_t* x, int64_t row_stride, int64_t n_rows, int width, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::head, width));
  if (n_rows == 0) return;
  cuda::arm_mutant();
  const auto blocks = static_cast<unsigned>((n_rows + cuda::kRows - 1) / cuda::kRows);
  cuda::with_head_steps(width, [&](auto steps) {
    cuda::transform_heads<decltype(steps)::value>
        <<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(
            x, row_stride, n_rows, hadamard_factor(width));
  });
  cuda_check_launch("hadamard");
}

}  // namespace lockstep
