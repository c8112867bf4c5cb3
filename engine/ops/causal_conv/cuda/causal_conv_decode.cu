// A thread has two channels of one span: all inputs are in flight at once.
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/causal_conv/cuda/causal_conv_cuda.h"
#include "engine/ops/causal_conv/cuda/conv_taps.cuh"
#include "engine/ops/common/cuda/early_launch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 64;

__device__ __forceinline__ float low_value(uint32_t pair) {
  return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float high_value(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

__global__ void __launch_bounds__(kThreads) causal_conv_decode(const CausalConvCudaArgs p) {
  const int channel = 2 * (blockIdx.x * kThreads + threadIdx.x);
  const GdnSpan span = p.spans[blockIdx.y];
  const int n_rows = span.n_replayed + span.n_new;
  if (channel >= p.n_channels || n_rows == 0) {
    wait_for_earlier_kernels();
    return;
  }
  uint16_t* window = p.window + span.slot * p.slot_stride + channel;
  const uint16_t* fresh = p.m + int64_t{span.first_column - span.n_replayed} * p.m_stride + channel;
  uint32_t input[3 + kGdnRoundRows] = {};
#pragma unroll
  for (int j = 0; j < kConvWindowRows; ++j) {
    if (j >= 3 + span.n_replayed) break;
    input[j] = *reinterpret_cast<const uint32_t*>(window + int64_t{j} * p.n_channels);
  }
  const float4 weight0 = *reinterpret_cast<const float4*>(p.weight + int64_t{channel} * 4);
  const float4 weight1 = *reinterpret_cast<const float4*>(p.weight + int64_t{channel} * 4 + 4);
  wait_for_earlier_kernels();
  let_next_kernel_start();
#pragma unroll
  for (int j = 3; j < 3 + kGdnRoundRows; ++j) {
    if (j >= 3 + span.n_replayed && j < 3 + n_rows) {
      input[j] = *reinterpret_cast<const uint32_t*>(fresh + int64_t{j - 3} * p.m_stride);
    }
  }
  uint16_t* out = p.out + int64_t{blockIdx.y} * kGdnRoundRows * p.out_stride + channel;
  const int committed = span.n_committed - (mutant(Mutant::conv_committed_row) ? 1 : 0);
#pragma unroll
  for (int j = 0; j < 3 + kGdnRoundRows; ++j) {
    if (j >= 3 + n_rows) break;
    if (j >= committed) {
      *reinterpret_cast<uint32_t*>(window + int64_t{j - committed} * p.n_channels) = input[j];
    }
    if (j < 3) continue;
    const float low = convolve(weight0, low_value(input[j - 3]), low_value(input[j - 2]),
                               low_value(input[j - 1]), low_value(input[j]));
    const float high = convolve(weight1, high_value(input[j - 3]), high_value(input[j - 2]),
                                high_value(input[j - 1]), high_value(input[j]));
    *reinterpret_cast<uint32_t*>(out + (j - 3) * p.out_stride) = bf16_bits(low) | bf16_bits(high)
                                                                                      << 16;
  }
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void causal_conv_decode_cuda(const CausalConvCudaArgs& args, Stream& stream) {
  cuda_check(args.n_channels % 8 == 0 ? cudaSuccess : cudaErrorInvalidValue,
             "causal_conv: whole vectors of eight channels");
  if (args.n_spans == 0) return;
  cuda::arm_mutant();
  const int pairs = args.n_channels / 2;
  const dim3 blocks((pairs + cuda::kThreads - 1) / cuda::kThreads, args.n_spans);
  cuda::launch_early(cuda::causal_conv_decode, blocks, cuda::kThreads, 0,
                     static_cast<cudaStream_t>(stream.native()), args, "causal_conv_decode");
}

}  // namespace lockstep
