// Where the weight of distinct ranks (slices.cuh), added from the largest down, reaches a
// threshold: found by a whole block digit by digit.
#pragma once

#include "engine/ops/argmax/cuda/slices.cuh"

namespace lockstep::cuda {

inline constexpr int kDigits = 256;

struct SelectShared {
  uint64_t weight[kDigits];
  int digit;
  uint64_t before;  // weight of larger digits
};

// In the first warp: the largest digit at which the weight from the top reaches `wanted`; none:
// digit -1.
__device__ __forceinline__ void find_digit(SelectShared& shared, uint64_t wanted) {
  const int lane = threadIdx.x;
  uint64_t mine = 0;
  for (int i = 0; i < 8; ++i) mine += shared.weight[kDigits - 1 - 8 * lane - i];
  uint64_t through = mine;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t lower = __shfl_up_sync(0xffffffffu, through, distance);
    if (lane >= distance) through += lower;
  }
  uint64_t before = through - mine;
  if (lane == 0) shared.digit = -1;
  __syncwarp();
  if (before >= wanted || through < wanted) return;
  for (int digit = kDigits - 1 - 8 * lane;; --digit) {
    if (before + shared.weight[digit] < wanted) {
      before += shared.weight[digit];
      continue;
    }
    shared.digit = digit;
    shared.before = before;
    return;
  }
}

struct Selected {
  uint64_t rank;    // the element at which the weight reaches what was wanted
  uint64_t before;  // weight of the larger ones
};

// for_each(f) calls f(rank) for every element of this thread; weight_of(rank) is a whole number.
// Rank 0: there is less than `wanted`.
template <typename ForEach, typename WeightOf>
__device__ __forceinline__ Selected select_from_top(const ForEach& for_each,
                                                    const WeightOf& weight_of, uint64_t wanted,
                                                    SelectShared& shared) {
  Selected selected{0, 0};
  uint64_t mask = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kDigits; i += blockDim.x) shared.weight[i] = 0;
    __syncthreads();
    for_each([&](uint64_t rank) {
      if (rank == 0 || (rank & mask) != selected.rank) return;
      const auto digit = static_cast<int>(rank >> shift & (kDigits - 1));
      atomicAdd(reinterpret_cast<unsigned long long*>(&shared.weight[digit]),
                static_cast<unsigned long long>(weight_of(rank)));
    });
    __syncthreads();
    if (threadIdx.x < 32) find_digit(shared, wanted - selected.before);
    __syncthreads();
    if (shared.digit < 0) return {0, 0};
    selected.rank |= static_cast<uint64_t>(shared.digit) << shift;
    selected.before += shared.before;
    mask |= uint64_t{kDigits - 1} << shift;
    // Nothing of `shared` may change before all have read it.
    __syncthreads();
  }
  return selected;
}

}  // namespace lockstep::cuda
