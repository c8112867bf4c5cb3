#include <cuda_runtime.h>

#include "bench/cuda/device_kernels.h"
#include "engine/device/cuda/cuda_check.h"

namespace lockstep::bench_cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 8;

__global__ void __launch_bounds__(kThreads) read_all(const uint4* data, int64_t n, uint32_t* sink) {
  const int64_t step = int64_t{gridDim.x} * kThreads * kUnroll;
  uint32_t mixed = 0;
  for (int64_t at = (int64_t{blockIdx.x} * kUnroll) * kThreads + threadIdx.x; at < n; at += step) {
    uint4 v[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int64_t index = at + i * kThreads;
      v[i] = index < n ? __ldcs(data + index) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) mixed ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (mixed == 0x12345678u) *sink = mixed;
}

__global__ void __launch_bounds__(kThreads) update_all(uint4* data, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * kThreads * kUnroll;
  for (int64_t at = (int64_t{blockIdx.x} * kUnroll) * kThreads + threadIdx.x; at < n; at += step) {
    uint4 v[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int64_t index = at + i * kThreads;
      v[i] = index < n ? __ldcs(data + index) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int64_t index = at + i * kThreads;
      if (index < n) __stcs(data + index, uint4{v[i].x + 1, v[i].y + 1, v[i].z + 1, v[i].w + 1});
    }
  }
}

__device__ __forceinline__ uint32_t hash(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return static_cast<uint32_t>(x >> 32);
}

__global__ void __launch_bounds__(kThreads)
    fill_words(uint32_t* data, int64_t n, uint32_t keep, uint32_t set, uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    data[i] = (hash((static_cast<uint64_t>(seed) << 40) + static_cast<uint64_t>(i)) & keep) | set;
  }
}

}  // namespace

void launch_read(const void* data, int64_t n_bytes, uint32_t* sink, int n_multiprocessors,
                 cudaStream_t stream) {
  read_all<<<4 * n_multiprocessors, kThreads, 0, stream>>>(static_cast<const uint4*>(data),
                                                           n_bytes / 16, sink);
  cuda_check_launch("read_all");
}

void launch_update(void* data, int64_t n_bytes, int n_multiprocessors, cudaStream_t stream) {
  update_all<<<4 * n_multiprocessors, kThreads, 0, stream>>>(static_cast<uint4*>(data),
                                                             n_bytes / 16);
  cuda_check_launch("update_all");
}

void launch_fill(void* data, int64_t n_words, uint32_t keep, uint32_t set, uint32_t seed,
                 cudaStream_t stream) {
  fill_words<<<1024, kThreads, 0, stream>>>(static_cast<uint32_t*>(data), n_words, keep, set, seed);
  cuda_check_launch("fill_words");
}

}  // namespace lockstep::bench_cuda
