// Logits of one column, cut into slices of kSlice: one block a slice, eight values a thread.
#pragma once

#include <cstdint>

namespace lockstep::cuda {

inline constexpr int kSliceThreads = 256;
inline constexpr int kSliceValues = 8;  // of a thread
inline constexpr int kSlice = kSliceThreads * kSliceValues;
inline constexpr int kGroups = kSliceThreads / 32;  // of a slice: the values of one warp

struct SliceSummary {
  uint64_t best;   // rank_of (slices.cuh) its best value
  double exp_sum;  // sum of exp(x - largest); 0 unless asked for
  int32_t has_nan;
  int32_t unused;
};

constexpr int n_slices_of(int64_t n) {
  return static_cast<int>((n + kSlice - 1) / kSlice);
}

}  // namespace lockstep::cuda

namespace lockstep {

constexpr int64_t argmax_workspace_bytes(int64_t n, int n_columns) {
  return int64_t{n_columns} * cuda::n_slices_of(n) *
         static_cast<int64_t>(sizeof(cuda::SliceSummary));
}

}  // namespace lockstep
