// Kernel mutants: faults that the op tests must catch (see docs/v100.md). A normal build has no
// trace of them. With LOCKSTEP_KERNEL_MUTANTS the environment variable LOCKSTEP_KERNEL_MUTANT arms
// one by its number.
#pragma once

#ifdef LOCKSTEP_KERNEL_MUTANTS
#include <cuda_runtime.h>

#include <cstdlib>
#endif

namespace lockstep::cuda {

enum class Mutant : int {
  none = 0,
  linear_missing_barrier = 1,      // the sum over warps starts before they have written
  linear_accumulator_kept = 2,     // a tile starts from the sums of the one before
  linear_scale_index = 3,          // the scale of the neighbouring group
  linear_row_tail = 4,             // rows beyond the matrix are written
  linear_stale_buffer = 5,         // sums of two tiles share one buffer
  linear_token_tail = 6,           // columns beyond n_tokens are written
  linear_factor_lost = 7,          // the power of two of the activations stays in the result
  linear_last_block = 8,           // the last block of columns is left out
  linear_order_of_one = 9,         // warps added the other way round when there is one column
  linear_stale_stage = 10,         // a stage of the ring is used again before it is refilled
  prepare_maximum = 11,            // the row's largest magnitude ignores its last value
  attention_mask = 12,             // a column sees the position after its own
  attention_missing_barrier = 13,  // values are weighed before all weights are there
  attention_stale_maximum = 14,    // old sums are not rescaled when the maximum grows
  attention_v_scale = 15,          // the V scale of the neighbouring group
  attention_k_scale = 16,          // the K scale of the neighbouring group
  attention_page = 17,             // the page table is read one entry too far in the second page
  attention_segment_tail = 18,     // the last partial step of a segment is skipped
  attention_merge_order = 19,      // segments merged without rescaling the first one
  attention_denominator = 20,      // the denominator misses the merge factor

  // No faults but ablations, for lockstep-bench-ablate: what is left without half of the work.
  ablate_math = 101,
  ablate_loads = 102,
};

#ifdef LOCKSTEP_KERNEL_MUTANTS

static __constant__ int armed_mutant;

__device__ __forceinline__ bool mutant(Mutant which) {
  return armed_mutant == static_cast<int>(which);
}

// Before the first launch: hands the number to the kernels of this source.
static inline void arm_mutant() {
  static const bool armed = [] {
    const char* text = std::getenv("LOCKSTEP_KERNEL_MUTANT");
    const int number = text == nullptr ? 0 : std::atoi(text);
    cudaMemcpyToSymbol(armed_mutant, &number, sizeof(number));
    cudaDeviceSynchronize();
    return true;
  }();
  static_cast<void>(armed);
}

#else

__host__ __device__ constexpr bool mutant(Mutant) {
  return false;
}
static inline void arm_mutant() {}

#endif

}  // namespace lockstep::cuda
