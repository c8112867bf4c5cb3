// What the timings of linear multiply: matrices and activations filled on the card.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "bench/cuda/ops_run.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"

namespace lockstep::bench_cuda {

cudaStream_t native(const OpsRun& run);

// Throws Error when there is no such codec.
Codec codec_of(const std::string& name);

KernelFamily bench_family(const OpsRun& run);

// Random codes with scales that keep sums finite: what a packed matrix of this shape looks like.
void fill_weight(OpsRun& run, const LinearCudaPlan& plan, std::byte* weight, uint32_t seed);

// Enough copies of `stride` bytes that the oldest has left the second-level cache when its turn
// comes.
int copies_for(const OpsRun& run, int64_t stride);

// bfloat16.
DeviceMemory random_activations(OpsRun& run, int64_t n_values);

}  // namespace lockstep::bench_cuda
