// A thread has eight channels of eight tokens: eleven loads of 16 bytes in flight. The blocks of
// the first tokens are the only ones that read the window, so they also write it.
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/causal_conv/cuda/causal_conv_cuda.h"
#include "engine/ops/causal_conv/cuda/conv_taps.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kTokens = 8;

// Input of a token; those before the first are in the window.
__device__ __forceinline__ uint4 load_input(const CausalConvCudaArgs& p, int64_t token,
                                            int channel) {
  if (token >= p.n_tokens) return {0, 0, 0, 0};
  const uint16_t* from =
      token < 0 ? p.window + (3 + token) * p.n_channels : p.m + token * p.m_stride;
  return *reinterpret_cast<const uint4*>(from + channel);
}

__device__ __forceinline__ void advance_window(const CausalConvCudaArgs& p, int channel) {
  uint4 last[3];
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    const int64_t shift = mutant(Mutant::conv_window_shift) ? 1 : 0;
    last[j] = load_input(p, p.n_tokens - 3 + j - shift, channel);
  }
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    *reinterpret_cast<uint4*>(p.window + int64_t{j} * p.n_channels + channel) = last[j];
  }
}

__global__ void __launch_bounds__(kThreads) causal_conv_prefill(const CausalConvCudaArgs p) {
  const int channel = kVector * (blockIdx.x * kThreads + threadIdx.x);
  if (channel >= p.n_channels) return;
  const int64_t first = int64_t{blockIdx.y} * kTokens;
  uint4 packed[3 + kTokens];
#pragma unroll
  for (int j = 0; j < 3 + kTokens; ++j) {
    const int64_t token = first + j - 3;
    packed[j] =
        load_input(p, mutant(Mutant::conv_tile_border) && j < 3 ? token + 3 : token, channel);
  }
  float4 weight[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    weight[i] = *reinterpret_cast<const float4*>(p.weight + int64_t{channel + i} * 4);
  }
  float x[4][kVector];
#pragma unroll
  for (int j = 0; j < 3; ++j) unpack(packed[j], x[j]);
#pragma unroll
  for (int j = 0; j < kTokens; ++j) {
    if (first + j >= p.n_tokens) break;
    unpack(packed[3 + j], x[(3 + j) % 4]);
    float y[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      y[i] =
          convolve(weight[i], x[j % 4][i], x[(j + 1) % 4][i], x[(j + 2) % 4][i], x[(j + 3) % 4][i]);
    }
    store_vector(y, p.out + (first + j) * p.out_stride + channel);
  }
  if (blockIdx.y == 0) advance_window(p, channel);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void causal_conv_prefill_cuda(const CausalConvCudaArgs& args, Stream& stream) {
  cuda_check(args.n_channels % 8 == 0 ? cudaSuccess : cudaErrorInvalidValue,
             "causal_conv: whole vectors of eight channels");
  if (args.n_tokens == 0) return;
  cuda::arm_mutant();
  const int vectors = args.n_channels / cuda::kVector;
  const dim3 blocks((vectors + cuda::kThreads - 1) / cuda::kThreads,
                    static_cast<unsigned>((args.n_tokens + cuda::kTokens - 1) / cuda::kTokens));
  cuda::causal_conv_prefill<<<blocks, cuda::kThreads, 0,
                              static_cast<cudaStream_t>(stream.native())>>>(args);
  cuda_check_launch("causal_conv_prefill");
}

}  // namespace lockstep
