// The k largest logits of a column, by a whole block of kColumnThreads: groups of 256 logits are
// known by their best. The k-th best group bounds the k-th largest logit from below, so only k
// groups need to be read.
#pragma once

#include "engine/ops/argmax/cuda/slices.cuh"
#include "engine/ops/sample/cuda/sample_cuda.h"

namespace lockstep::cuda {

inline constexpr int kColumnThreads = 1024;
inline constexpr int kShortList = 1024;

struct LargestShared {
  uint64_t list[kShortList];
  uint32_t total[32];
  int groups[kListedTopK];
  int n_groups;
  int n;
};

// Ranks that the threads of a block hold or reach: each(f) calls f(rank) for those of this thread.
// The largest threshold that at least `wanted` of them reach, bit by bit; 0 with fewer. Ends early
// at one that exactly `wanted` reach.
template <typename Each>
__device__ __forceinline__ uint64_t threshold_of(const Each& each, uint32_t wanted,
                                                 LargestShared& shared) {
  uint64_t threshold = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t candidate = threshold | uint64_t{1} << bit;
    uint32_t mine = 0;
    each([&](uint64_t rank) { mine += rank >= candidate ? 1 : 0; });
    const uint32_t n = block_total(mine, shared.total);
    __syncthreads();
    if (n >= wanted) threshold = candidate;
    if (n == wanted) break;
  }
  return threshold;
}

// The same for at most one rank a thread, 0 for none: one barrier a bit.
__device__ __forceinline__ uint64_t threshold_of(uint64_t rank, int wanted) {
  uint64_t threshold = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t candidate = threshold | uint64_t{1} << bit;
    const int n = __syncthreads_count(rank >= candidate ? 1 : 0);
    if (n >= wanted) threshold = candidate;
    if (n == wanted) break;
  }
  return threshold;
}

// Numbers of the groups whose best reach the k-th best to shared.groups; returns that bound.
__device__ __forceinline__ uint64_t find_groups(const uint64_t* groups, int n_groups, int k,
                                                LargestShared& shared) {
  const auto each = [&](auto&& f) {
    for (int i = threadIdx.x; i < n_groups; i += kColumnThreads) f(groups[i]);
  };
  if (threadIdx.x == 0) shared.n_groups = 0;
  uint64_t bound = 0;
  if (n_groups <= kColumnThreads) {
    const int i = threadIdx.x;
    bound = threshold_of(i < n_groups ? groups[i] : 0, k);
  } else {
    bound = threshold_of(each, static_cast<uint32_t>(k), shared);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n_groups; i += kColumnThreads) {
    if (groups[i] != 0 && groups[i] >= bound) shared.groups[atomicAdd(&shared.n_groups, 1)] = i;
  }
  if (threadIdx.x == 0) shared.n = 0;
  __syncthreads();
  return bound;
}

// Logits of those groups that reach the bound: to shared.list as far as they fit, and all of them
// to `spill` where they do not. shared.n: how many.
__device__ __forceinline__ void gather_groups(const float* logits, int64_t n, uint64_t bound,
                                              uint64_t* spill, LargestShared& shared) {
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < shared.n_groups; i += kColumnThreads / 32) {
    const int group = shared.groups[i];
    const SliceValues v =
        load_slice(logits, int64_t{group / kGroups} * kSlice, group % kGroups * 32 + lane, n);
#pragma unroll
    for (int j = 0; j < kSliceValues; ++j) {
      if (v.id[j] < 0 || v.value[j] != v.value[j]) continue;
      const uint64_t rank = rank_of(v.value[j], v.id[j]);
      if (rank < bound) continue;
      const int place = atomicAdd(&shared.n, 1);
      if (place < kShortList) shared.list[place] = rank;
      spill[place] = rank;
    }
  }
  __syncthreads();
}

// The k largest, in any order, to ranks[0, k); returns how many there are. k at most kListedTopK.
__device__ __forceinline__ int find_largest(const float* logits, int64_t n, const uint64_t* groups,
                                            int n_groups, int k, uint64_t* spill, uint64_t* ranks,
                                            LargestShared& shared) {
  const uint64_t bound = find_groups(groups, n_groups, k, shared);
  gather_groups(logits, n, bound, spill, shared);
  const int n_found = shared.n;
  __syncthreads();
  if (threadIdx.x == 0) shared.n = 0;
  const uint64_t* list = n_found <= kShortList ? shared.list : spill;
  const auto each = [&](auto&& f) {
    for (int i = threadIdx.x; i < n_found; i += kColumnThreads) f(list[i]);
  };
  const int i = threadIdx.x;
  const uint64_t smallest = n_found <= kShortList
                                ? threshold_of(i < n_found ? shared.list[i] : 0, k)
                                : threshold_of(each, static_cast<uint32_t>(k), shared);
  __syncthreads();
  each([&](uint64_t rank) {
    if (rank >= smallest) ranks[atomicAdd(&shared.n, 1)] = rank;
  });
  __syncthreads();
  return shared.n;
}

}  // namespace lockstep::cuda
