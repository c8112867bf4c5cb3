// The token of each column that has no short list, from bins of masses. One block a column.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/sample/cuda/masses.cuh"
#include "engine/ops/sample/cuda/select.cuh"
#include "engine/ops/sample/cuda/uniform.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kBinsEach = kMassBins / kThreads;

struct DrawShared {
  uint64_t best[32];
  uint64_t total[32];
  SelectShared select;
  int n;
  int bin;
  uint64_t before;
};

// ------------------------------------------------------------------------------

// The first bin at which the weight from the largest logits down reaches `wanted`, which the bins
// hold at least.
__device__ __forceinline__ void find_bin(const uint64_t* bins, uint64_t wanted,
                                         DrawShared& shared) {
  const int lane = threadIdx.x % 32;
  const int first = static_cast<int>(threadIdx.x) * kBinsEach;
  uint64_t mine = 0;
  for (int i = 0; i < kBinsEach; ++i) mine += bins[first + i];
  uint64_t through = mine;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t lower = __shfl_up_sync(0xffffffffu, through, distance);
    if (lane >= distance) through += lower;
  }
  if (lane == 31) shared.total[threadIdx.x / 32] = through;
  __syncthreads();
  for (int warp = 0; warp < static_cast<int>(threadIdx.x) / 32; ++warp) {
    through += shared.total[warp];
  }
  uint64_t before = through - mine;
  if (before < wanted && wanted <= through) {
    int bin = first;
    while (before + bins[bin] < wanted) before += bins[bin++];
    shared.bin = bin;
    shared.before = before;
  }
  __syncthreads();
}

struct Cut {
  uint64_t rank;          // the last candidate that belongs
  uint64_t mass_through;  // of all down to it
};

struct Column {
  const float* logits;
  int64_t n;
  const uint64_t* groups;
  int n_groups;
  const uint64_t* masses;
  const uint64_t* counts;
  uint64_t* gathered;
  MassScale scale;
};

// Candidates of one bin to column.gathered; their number to shared.n. Groups whose best is too
// small are not read.
__device__ __forceinline__ void gather_bin(const Column& column, int bin, DrawShared& shared) {
  if (threadIdx.x == 0) shared.n = 0;
  __syncthreads();
  const BinRange range = bin_range(column.scale, bin);
  const auto largest = static_cast<float>(column.scale.largest);
  const int lane = threadIdx.x % 32;
  for (int group = threadIdx.x / 32; group < column.n_groups; group += kThreads / 32) {
    const uint64_t best = column.groups[group];
    if (best == 0 || largest - value_of(best) > range.furthest) continue;
    const SliceValues v = load_slice(column.logits, int64_t{group / kGroups} * kSlice,
                                     group % kGroups * 32 + lane, column.n);
#pragma unroll
    for (int i = 0; i < kSliceValues; ++i) {
      const float distance = largest - v.value[i];
      if (v.id[i] < 0 || distance < range.nearest || distance > range.furthest) continue;
      const double x = exponent_of(column.scale, v.value[i]);
      if (!(x >= column.scale.cut) || mass_bin(x) != bin) continue;
      column.gathered[atomicAdd(&shared.n, 1)] = rank_of(v.value[i], v.id[i]);
    }
  }
  __syncthreads();
}

// Where the weight (masses, or ones: by_count) from the top reaches `wanted`.
__device__ __forceinline__ Cut locate(const Column& column, bool by_count, uint64_t wanted,
                                      DrawShared& shared) {
  find_bin(by_count ? column.counts : column.masses, wanted, shared);
  const int bin = shared.bin;
  const uint64_t before = mutant(Mutant::sample_mass_before) ? 0 : shared.before;
  gather_bin(column, bin, shared);
  const int n = shared.n;
  const auto for_each = [&](auto&& f) {
    for (int i = threadIdx.x; i < n; i += kThreads) f(column.gathered[i]);
  };
  const auto mass = [&](uint64_t rank) {
    return mass_of(exponent_of(column.scale, value_of(rank)));
  };
  const auto weight = [&](uint64_t rank) { return by_count ? uint64_t{1} : mass(rank); };
  Cut cut{};
  cut.rank = select_from_top(for_each, weight, wanted - before, shared.select).rank;
  uint64_t inside = 0;
  for_each([&](uint64_t rank) { inside += rank >= cut.rank ? mass(rank) : 0; });
  for (int i = threadIdx.x; i < bin; i += kThreads) inside += column.masses[i];
  cut.mass_through = block_total(inside, shared.total);
  __syncthreads();
  return cut;
}

__device__ __forceinline__ uint64_t sum_of_bins(const uint64_t* bins, DrawShared& shared) {
  uint64_t sum = 0;
  for (int i = threadIdx.x; i < kMassBins; i += kThreads) sum += bins[i];
  sum = block_total(sum, shared.total);
  __syncthreads();
  return sum;
}

__device__ __forceinline__ uint64_t between(uint64_t value, uint64_t low, uint64_t high) {
  return value < low ? low : value > high ? high : value;
}

__device__ __forceinline__ int32_t draw_all(const Column& column, const SampleColumn& params,
                                            double u, DrawShared& shared) {
  uint64_t kept = sum_of_bins(column.masses, shared);
  if (kept == 0) return -1;
  const uint64_t n_candidates = params.top_k > 0 ? sum_of_bins(column.counts, shared) : 0;
  int32_t token = -1;
  // What top_k keeps, what top_p keeps of that, the draw.
#pragma unroll 1
  for (int cut = 0; cut < 3; ++cut) {
    uint64_t wanted = static_cast<uint64_t>(params.top_k);
    if (cut == 0 && wanted >= n_candidates) continue;
    if (cut == 1) {
      if (params.top_p >= 1.0f) continue;
      const double share = static_cast<double>(params.top_p) * static_cast<double>(kept);
      wanted = between(__double2ull_ru(share), 1, kept);
    }
    if (cut == 2) wanted = between(__double2ull_rd(u * static_cast<double>(kept)) + 1, 1, kept);
    const Cut found = locate(column, cut == 0, wanted, shared);
    kept = found.mass_through;
    token = id_of(found.rank);
  }
  return token;
}

__global__ void __launch_bounds__(kThreads, 1) draw_tokens(const SampleParams p) {
  __shared__ DrawShared shared;
  const SampleColumn params = p.columns[blockIdx.x];
  if (params.temperature == 0.0f || is_listed(params)) return;
  const ColumnSummary summary =
      merge_slices(p.summaries + int64_t{blockIdx.x} * p.n_slices, p.n_slices, shared.best);
  const Column column{p.logits + blockIdx.x * p.stride,
                      p.n_live,
                      p.groups + int64_t{blockIdx.x} * p.n_slices * kGroups,
                      p.n_slices * kGroups,
                      p.masses + int64_t{blockIdx.x} * kMassBins,
                      p.counts + int64_t{blockIdx.x} * kMassBins,
                      p.gathered + blockIdx.x * p.n_vocab,
                      mass_scale(params, summary.best)};
  const double u = uniform_at(params.seed, params.position);
  const int32_t token = summary.has_nan ? -1 : draw_all(column, params, u, shared);
  if (threadIdx.x != 0) return;
  SampleResult& out = p.out[blockIdx.x];
  out.token = token;
  out.chosen_value = token >= 0 ? p.logits[blockIdx.x * p.stride + token] : 0.0f;
}

}  // namespace

void launch_draw(const SampleParams& p, cudaStream_t stream) {
  arm_mutant();
  draw_tokens<<<p.n_columns, kThreads, 0, stream>>>(p);
  cuda_check_launch("sample, draw");
}

}  // namespace lockstep::cuda
