// The token of greedy columns and of those with a short list, which is drawn with the CPU's
// arithmetic. One block a column.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/math_f64.cuh"
#include "engine/ops/sample/cuda/largest.cuh"
#include "engine/ops/sample/cuda/masses.cuh"
#include "engine/ops/sample/cuda/uniform.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = kColumnThreads;

struct Candidate {
  double mass;
  int32_t id;
};

struct ChooseShared {
  uint64_t best[32];
  LargestShared largest;
  uint64_t ranks[kListedTopK];
  Candidate candidates[kListedTopK];
  Candidate sorted[kListedTopK];
};

__device__ __forceinline__ bool heavier(const Candidate& a, const Candidate& b) {
  return a.mass != b.mass ? a.mass > b.mass : a.id < b.id;
}

// Masses of the listed candidates in the order of ops/sample; returns how many.
__device__ __forceinline__ int sort_candidates(const MassScale& scale, int n_listed,
                                               ChooseShared& shared) {
  const int i = threadIdx.x;
  bool counts = false;
  Candidate mine{};
  if (i < n_listed) {
    const double x = exponent_of(scale, value_of(shared.ranks[i]));
    counts = x >= scale.cut;
    mine = {counts ? exp_f64(x) : -1.0, id_of(shared.ranks[i])};
    shared.candidates[i] = mine;
  }
  const int n = __syncthreads_count(counts ? 1 : 0);
  if (counts) {
    int place = 0;
    for (int j = 0; j < n_listed; ++j) place += heavier(shared.candidates[j], mine) ? 1 : 0;
    shared.sorted[place] = mine;
  }
  __syncthreads();
  return n;
}

// One thread: the sums of ops/sample in its order.
__device__ __forceinline__ int32_t draw_listed(const Candidate* sorted, int n, double top_p,
                                               double u) {
  if (n == 0) return -1;
  if (top_p < 1.0) {
    double total = 0.0;
    for (int i = 0; i < n; ++i) total += sorted[i].mass;
    double sum = 0.0;
    for (int i = 0; i < n; ++i) {
      sum += sorted[i].mass;
      if (sum >= top_p * total) {
        n = i + 1;
        break;
      }
    }
  }
  double total = 0.0;
  for (int i = 0; i < n; ++i) total += sorted[i].mass;
  const double target = u * total;
  double sum = 0.0;
  for (int i = 0; i < n; ++i) {
    sum += sorted[i].mass;
    if (sum > target) return sorted[i].id;
  }
  return sorted[n - 1].id;
}

__device__ __forceinline__ int32_t choose(const SampleParams& p, const SampleColumn& params,
                                          ChooseShared& shared) {
  const ColumnSummary summary =
      merge_slices(p.summaries + int64_t{blockIdx.x} * p.n_slices, p.n_slices, shared.best);
  if (summary.has_nan) return -1;
  if (params.temperature == 0.0f) return id_of(summary.best);
  const int n_listed =
      find_largest(p.logits + blockIdx.x * p.stride, p.n_live,
                   p.groups + int64_t{blockIdx.x} * p.n_slices * kGroups, p.n_slices * kGroups,
                   params.top_k, p.gathered + blockIdx.x * p.n_vocab, shared.ranks, shared.largest);
  const int n = sort_candidates(mass_scale(params, summary.best), n_listed, shared);
  if (threadIdx.x != 0) return -1;
  return draw_listed(shared.sorted, n, static_cast<double>(params.top_p),
                     uniform_at(params.seed, params.position));
}

__global__ void __launch_bounds__(kThreads) choose_tokens(const SampleParams p) {
  __shared__ ChooseShared shared;
  const SampleColumn params = p.columns[blockIdx.x];
  if (params.temperature != 0.0f && !is_listed(params)) return;
  const int32_t token = choose(p, params, shared);
  if (threadIdx.x != 0) return;
  SampleResult& out = p.out[blockIdx.x];
  out.token = token;
  out.chosen_value = token >= 0 ? p.logits[blockIdx.x * p.stride + token] : 0.0f;
}

}  // namespace

void launch_choose(const SampleParams& p, cudaStream_t stream) {
  arm_mutant();
  choose_tokens<<<p.n_columns, kThreads, 0, stream>>>(p);
  cuda_check_launch("sample, tokens");
}

}  // namespace lockstep::cuda
