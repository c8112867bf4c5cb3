// Passes over slices of the logits: their best values, penalties, log-probabilities, and the masses
// of columns without a short list.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/sample/cuda/largest.cuh"
#include "engine/ops/sample/cuda/masses.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kAdjustThreads = 256;

__global__ void __launch_bounds__(kSliceThreads) scan_slices(const SampleParams p, bool describe) {
  __shared__ SliceShared shared;
  const int64_t slice = int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  const SliceValues values =
      load_slice(p.logits + blockIdx.y * p.stride, int64_t{blockIdx.x} * kSlice,
                 static_cast<int>(threadIdx.x), describe ? p.n_vocab : p.n_live);
  const SliceSummary summary = summarise(values, describe, p.groups + slice * kGroups, shared);
  if (threadIdx.x == 0) p.summaries[slice] = summary;
}

// The largest logits in order, and the sum of all exponentials.
__global__ void __launch_bounds__(kColumnThreads) describe_columns(const SampleParams p) {
  __shared__ SliceShared shared;
  __shared__ LargestShared largest;
  __shared__ uint64_t top[kMostTop];
  const int n_slices = p.n_vocab_slices;
  const SliceSummary* slices = p.summaries + int64_t{blockIdx.x} * n_slices;
  const ColumnSummary column = merge_slices(slices, n_slices, shared.best);
  const double log_sum = merge_log_sum(slices, n_slices, column, shared.sum);
  SampleResult& out = p.out[blockIdx.x];
  if (threadIdx.x == 0) out.log_sum_exp = log_sum;
  const int n_found =
      find_largest(p.logits + blockIdx.x * p.stride, p.n_vocab,
                   p.groups + int64_t{blockIdx.x} * n_slices * kGroups, n_slices * kGroups, p.n_top,
                   p.gathered + blockIdx.x * p.n_vocab, top, largest);
  if (static_cast<int>(threadIdx.x) >= n_found) return;
  const uint64_t mine = top[threadIdx.x];
  int place = 0;
  for (int i = 0; i < n_found; ++i) place += top[i] > mine ? 1 : 0;
  out.top_ids[place] = id_of(mine);
  out.top_values[place] = value_of(mine);
}

__device__ __forceinline__ float adjusted(float logit, const SampleColumn& column,
                                          const LogitAdjustment& adjustment) {
  if ((adjustment.flags & kRepeated) != 0) {
    logit = logit > 0.0f ? __fdiv_rn(logit, column.repetition_penalty)
                         : logit * column.repetition_penalty;
  }
  if ((adjustment.flags & kPenalised) != 0) {
    logit -= column.presence_penalty +
             column.frequency_penalty * static_cast<float>(adjustment.output_count);
  }
  return (adjustment.flags & kBiased) != 0 ? logit + adjustment.bias : logit;
}

__global__ void __launch_bounds__(kAdjustThreads) adjust_logits(const SampleParams p) {
  const SampleColumn column = p.columns[blockIdx.x];
  for (int i = threadIdx.x; i < column.n_adjustments; i += kAdjustThreads) {
    const int at = column.first_adjustment + i;
    const LogitAdjustment adjustment = p.adjustments[at];
    float& logit = p.logits[blockIdx.x * p.stride + adjustment.id];
    p.saved[at] = logit;
    logit = adjusted(logit, column, adjustment);
  }
}

__global__ void __launch_bounds__(kAdjustThreads) restore_logits(const SampleParams p) {
  const SampleColumn column = p.columns[blockIdx.x];
  if (mutant(Mutant::sample_not_restored)) return;
  for (int i = threadIdx.x; i < column.n_adjustments; i += kAdjustThreads) {
    const int at = column.first_adjustment + i;
    p.logits[blockIdx.x * p.stride + p.adjustments[at].id] = p.saved[at];
  }
  __syncthreads();
  SampleResult& out = p.out[blockIdx.x];
  if (threadIdx.x == 0 && out.token >= 0) {
    out.chosen_value = p.logits[blockIdx.x * p.stride + out.token];
  }
}

__global__ void __launch_bounds__(kSliceThreads) collect_masses(const SampleParams p) {
  __shared__ SliceShared shared;
  const SampleColumn column = p.columns[blockIdx.y];
  if (column.temperature == 0.0f || is_listed(column)) return;
  const ColumnSummary summary =
      merge_slices(p.summaries + int64_t{blockIdx.y} * p.n_slices, p.n_slices, shared.best);
  const MassScale scale = mass_scale(column, summary.best);
  const SliceValues v = load_slice(p.logits + blockIdx.y * p.stride, int64_t{blockIdx.x} * kSlice,
                                   static_cast<int>(threadIdx.x), p.n_live);
#pragma unroll
  for (int i = 0; i < kSliceValues; ++i) {
    if (v.id[i] < 0) continue;
    const double x = exponent_of(scale, v.value[i]);
    if (!(x >= scale.cut)) continue;
    const int64_t bin = int64_t{blockIdx.y} * kMassBins + mass_bin(x);
    const uint64_t mass = mass_of(x);
    if (mass > 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(p.masses + bin),
                static_cast<unsigned long long>(mass));
    }
    if (column.top_k > 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(p.counts + bin), 1ull);
    }
  }
}

dim3 blocks_of(int n_slices, int n_columns) {
  return {static_cast<unsigned>(n_slices), static_cast<unsigned>(n_columns)};
}

}  // namespace

void launch_describe(const SampleParams& p, cudaStream_t stream) {
  arm_mutant();
  scan_slices<<<blocks_of(p.n_vocab_slices, p.n_columns), kSliceThreads, 0, stream>>>(p, true);
  describe_columns<<<p.n_columns, kColumnThreads, 0, stream>>>(p);
  cuda_check_launch("sample, largest logits");
}

void launch_scan(const SampleParams& p, cudaStream_t stream) {
  arm_mutant();
  scan_slices<<<blocks_of(p.n_slices, p.n_columns), kSliceThreads, 0, stream>>>(p, false);
  cuda_check_launch("sample, slices");
}

void launch_adjust(const SampleParams& p, cudaStream_t stream) {
  adjust_logits<<<p.n_columns, kAdjustThreads, 0, stream>>>(p);
  cuda_check_launch("sample, penalties");
}

void launch_restore(const SampleParams& p, cudaStream_t stream) {
  restore_logits<<<p.n_columns, kAdjustThreads, 0, stream>>>(p);
  cuda_check_launch("sample, logits restored");
}

void launch_masses(const SampleParams& p, cudaStream_t stream) {
  collect_masses<<<blocks_of(p.n_slices, p.n_columns), kSliceThreads, 0, stream>>>(p);
  cuda_check_launch("sample, masses");
}

}  // namespace lockstep::cuda
