// What the machine can do at best: fused multiply-adds and reads.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/thread_pool.h"

namespace lockstep {

// Float32 FLOP/s of register-to-register fused multiply-adds with 256-bit ("avx2") or 512-bit
// ("avx512") vectors on all threads of the pool; the best of several samples. The processor must
// have the instructions (available_cpu_targets).
double fma_flops_per_s(const std::string& cpu_target, ThreadPool& pool);

// Bytes/s at which all threads of the pool together read a buffer of n_bytes, each its own part,
// again and again; the best of several samples. A buffer that fits a cache is read from there.
double read_bytes_per_s(int64_t n_bytes, ThreadPool& pool);

}  // namespace lockstep
