// The uniform number of ops/sample.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/ops/common/cuda/mutant.cuh"

namespace lockstep::cuda {

// 53 bits of Philox4x32-10 with key seed and counter position.
__device__ __forceinline__ double uniform_at(uint64_t seed, int64_t position) {
  uint32_t c[4] = {static_cast<uint32_t>(position),
                   static_cast<uint32_t>(static_cast<uint64_t>(position) >> 32), 0, 0};
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = mutant(Mutant::sample_rounds) ? 1 : 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * c[2];
    c[0] = static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(product1);
    c[2] = static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return static_cast<double>((uint64_t{c[0]} << 21) ^ (c[1] >> 11)) * 0x1p-53;
}

}  // namespace lockstep::cuda
