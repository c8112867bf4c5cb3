// Kernels' side of slice_summary.h. The order of every sum depends on an id's place in its slice
// and on the slice alone.
#pragma once

#include <cuda_runtime.h>

#include "engine/ops/argmax/cuda/slice_summary.h"
#include "engine/ops/common/cuda/mutant.cuh"

namespace lockstep::cuda {

// One number that orders values from small to large and, among equal ones, ids from high to low:
// the greatest is what argmax wants. Never 0. Both zeros are one value.
__device__ __forceinline__ uint64_t rank_of(float value, int32_t id) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  const uint32_t key = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  const uint32_t low = static_cast<uint32_t>(id);
  return uint64_t{key} << 32 | (mutant(Mutant::argmax_tie) ? low + 1 : ~low);
}

__device__ __forceinline__ int32_t id_of(uint64_t rank) {
  const auto low = static_cast<uint32_t>(rank);
  return static_cast<int32_t>(mutant(Mutant::argmax_tie) ? low - 1 : ~low);
}

__device__ __forceinline__ float value_of(uint64_t rank) {
  const auto key = static_cast<uint32_t>(rank >> 32);
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// exp(x) for x <= 0 within 2^-50; for masses and sums that no CPU bits depend on.
__device__ __forceinline__ double exp_fast(double x) {
  if (x < -745.0) return 0.0;
  const double n = rint(x * 1.4426950408889634);
  double r = fma(n, -0x1.62e42fefa3800p-1, x);
  r = fma(n, -0x1.ef35793c76730p-45, r);
  double p = 1.0 / 6227020800.0;
  p = fma(p, r, 1.0 / 479001600.0);
  p = fma(p, r, 1.0 / 39916800.0);
  p = fma(p, r, 1.0 / 3628800.0);
  p = fma(p, r, 1.0 / 362880.0);
  p = fma(p, r, 1.0 / 40320.0);
  p = fma(p, r, 1.0 / 5040.0);
  p = fma(p, r, 1.0 / 720.0);
  p = fma(p, r, 1.0 / 120.0);
  p = fma(p, r, 1.0 / 24.0);
  p = fma(p, r, 1.0 / 6.0);
  p = fma(p, r, 0.5);
  p = fma(p, r, 1.0);
  p = fma(p, r, 1.0);
  return ldexp(p, static_cast<int>(n));
}

__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

// Over all threads of a block of whole warps; the same result in each. A barrier stands before
// of_warp is read; it may be written again after the next one.
__device__ __forceinline__ uint64_t block_max(uint64_t value, uint64_t (&of_warp)[32]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = larger(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  if (lane == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / 32 ? of_warp[lane] : 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = larger(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

template <typename Number>
__device__ __forceinline__ Number block_total(Number value, Number (&of_warp)[32]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  if (lane == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / 32 ? of_warp[lane] : Number{0};
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// Ids of thread t: first + 4 t + i and first + 1024 + 4 t + i.
struct SliceValues {
  float value[kSliceValues];
  int32_t id[kSliceValues];  // -1: none
};

__device__ __forceinline__ SliceValues load_slice(const float* logits, int64_t first, int thread,
                                                  int64_t n) {
  SliceValues v;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t at = first + half * (kSlice / 2) + 4 * thread;
    float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (at + 4 <= n) {
      four = *reinterpret_cast<const float4*>(logits + at);
    } else {
      if (at < n) four.x = logits[at];
      if (at + 1 < n) four.y = logits[at + 1];
      if (at + 2 < n) four.z = logits[at + 2];
    }
    const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v.value[4 * half + i] = values[i];
      v.id[4 * half + i] = at + i < n ? static_cast<int32_t>(at + i) : -1;
    }
  }
  return v;
}

struct SliceShared {
  uint64_t best[32];
  double sum[32];
};

// groups: null, or where the best of each warp go.
__device__ __forceinline__ SliceSummary summarise(const SliceValues& v, bool want_sum,
                                                  uint64_t* groups, SliceShared& shared) {
  uint64_t best = 0;
  bool has_nan = false;
#pragma unroll
  for (int i = 0; i < kSliceValues; ++i) {
    if (v.id[i] < 0) continue;
    const bool is_nan = v.value[i] != v.value[i];
    has_nan |= is_nan;
    if (!is_nan) best = larger(best, rank_of(v.value[i], v.id[i]));
  }
  SliceSummary summary{};
  summary.has_nan = __syncthreads_or(has_nan && !mutant(Mutant::argmax_nan) ? 1 : 0);
  summary.best = block_max(best, shared.best);
  if (groups != nullptr && threadIdx.x < kGroups) groups[threadIdx.x] = shared.best[threadIdx.x];
  if (!want_sum) return summary;
  const double largest = value_of(summary.best);
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kSliceValues; ++i) {
    // Equal values first: infinity minus itself is no number.
    const double value = v.value[i];
    if (v.id[i] >= 0) sum += value == largest ? 1.0 : exp_fast(value - largest);
  }
  summary.exp_sum = block_total(sum, shared.sum);
  return summary;
}

struct ColumnSummary {
  uint64_t best;
  bool has_nan;
};

// Of all slices of a column, by a whole block.
__device__ __forceinline__ ColumnSummary merge_slices(const SliceSummary* slices, int n_slices,
                                                      uint64_t (&of_warp)[32]) {
  uint64_t best = 0;
  int has_nan = 0;
  for (int i = threadIdx.x; i < n_slices; i += blockDim.x) {
    best = larger(best, slices[i].best);
    has_nan |= slices[i].has_nan;
  }
  ColumnSummary column;
  column.has_nan = __syncthreads_or(has_nan) != 0;
  column.best = block_max(best, of_warp);
  return column;
}

// log of the sum of all exponentials; infinite and NaN as the CPU op has them.
__device__ __forceinline__ double merge_log_sum(const SliceSummary* slices, int n_slices,
                                                const ColumnSummary& column,
                                                double (&of_warp)[32]) {
  const double largest = value_of(column.best);
  double sum = 0.0;
  for (int i = threadIdx.x; i < n_slices; i += blockDim.x) {
    const double of_slice = value_of(slices[i].best);
    sum += slices[i].exp_sum * (of_slice == largest ? 1.0 : exp_fast(of_slice - largest));
  }
  sum = block_total(sum, of_warp);
  if (column.has_nan) return __longlong_as_double(0x7ff8000000000000ll);
  return isinf(largest) ? largest : largest + log(sum);
}

}  // namespace lockstep::cuda
