// Kernels that only benchmarks need.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::bench_cuda {

// Reads n_bytes (a multiple of 16) with wide loads and writes next to nothing: the roof of every
// kernel that streams weights.
void launch_read(const void* data, int64_t n_bytes, uint32_t* sink, int n_multiprocessors,
                 cudaStream_t stream);

// Adds 1 to n_bytes (a multiple of 16) of words in place: the roof of kernels that advance states.
void launch_update(void* data, int64_t n_bytes, int n_multiprocessors, cudaStream_t stream);

// Seeded words: (hash & keep) | set.
void launch_fill(void* data, int64_t n_words, uint32_t keep, uint32_t set, uint32_t seed,
                 cudaStream_t stream);

}  // namespace lockstep::bench_cuda
