// The token of each column, one block a column: the argmax, a draw from a short list with the CPU's
// arithmetic, or a draw from bins of masses.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/math_f64.cuh"
#include "engine/ops/sample/cuda/masses.cuh"
#include "engine/ops/sample/cuda/select.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kBinsEach = kMassBins / kThreads;

struct Candidate {
  double mass;
  int32_t id;
};

struct ChooseShared {
  uint64_t best[32];
  uint64_t total[32];
  SelectShared select;
  uint64_t ranks[kListedTopK];
  Candidate candidates[kListedTopK];
  Candidate sorted[kListedTopK];
  int n;
  int bin;
  uint64_t before;
};

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

// ---- A short list
// --------------------------------------------------------------------------------

// Ranks of the top_k largest logits to shared.ranks; their number to shared.n.
__device__ __forceinline__ void gather_listed(const SampleParams& p, int top_k,
                                              ChooseShared& shared) {
  const int n_slices = p.n_slices;
  const uint64_t* lists = p.lists + int64_t{blockIdx.x} * n_slices * kListedTopK;
  const auto for_each = [&](auto&& f) {
    for (int i = threadIdx.x; i < n_slices * top_k; i += kThreads) {
      f(lists[i / top_k * kListedTopK + i % top_k]);
    }
  };
  const auto one = [](uint64_t) { return uint64_t{1}; };
  if (threadIdx.x == 0) shared.n = 0;
  const uint64_t smallest =
      select_from_top<false>(for_each, one, static_cast<uint64_t>(top_k), shared.select).rank;
  for_each([&](uint64_t rank) {
    if (rank != 0 && rank >= smallest) shared.ranks[atomicAdd(&shared.n, 1)] = rank;
  });
  __syncthreads();
}

__device__ __forceinline__ bool heavier(const Candidate& a, const Candidate& b) {
  return a.mass != b.mass ? a.mass > b.mass : a.id < b.id;
}

// Masses of the listed candidates in the order of ops/sample; returns how many.
__device__ __forceinline__ int sort_candidates(const MassScale& scale, ChooseShared& shared) {
  const int n_listed = shared.n;
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

// ---- All candidates
// ------------------------------------------------------------------------------

// The first bin at which the weight from the largest logits down reaches `wanted`, which the bins
// hold at least.
__device__ __forceinline__ void find_bin(const uint64_t* bins, uint64_t wanted,
                                         ChooseShared& shared) {
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
  const uint64_t* masses;
  const uint64_t* counts;
  uint64_t* gathered;
  MassScale scale;
};

// Candidates of one bin to column.gathered; their number to shared.n.
__device__ __forceinline__ void gather_bin(const Column& column, int bin, ChooseShared& shared) {
  if (threadIdx.x == 0) shared.n = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < column.n; i += kThreads) {
    const float logit = column.logits[i];
    const double x = exponent_of(column.scale, logit);
    if (!(x >= column.scale.cut) || mass_bin(x) != bin) continue;
    column.gathered[atomicAdd(&shared.n, 1)] = rank_of(logit, static_cast<int32_t>(i));
  }
  __syncthreads();
}

// Where the weight (masses, or ones: by_count) from the top reaches `wanted`.
__device__ __forceinline__ Cut locate(const Column& column, bool by_count, uint64_t wanted,
                                      ChooseShared& shared) {
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
  cut.rank = select_from_top<true>(for_each, weight, wanted - before, shared.select).rank;
  uint64_t inside = 0;
  for_each([&](uint64_t rank) { inside += rank >= cut.rank ? mass(rank) : 0; });
  for (int i = threadIdx.x; i < bin; i += kThreads) inside += column.masses[i];
  cut.mass_through = block_total(inside, shared.total);
  __syncthreads();
  return cut;
}

__device__ __forceinline__ uint64_t sum_of_bins(const uint64_t* bins, ChooseShared& shared) {
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
                                            double u, ChooseShared& shared) {
  uint64_t kept = sum_of_bins(column.masses, shared);
  if (kept == 0) return -1;
  const uint64_t n_candidates = sum_of_bins(column.counts, shared);
  if (params.top_k > 0 && static_cast<uint64_t>(params.top_k) < n_candidates) {
    kept = locate(column, true, static_cast<uint64_t>(params.top_k), shared).mass_through;
  }
  if (params.top_p < 1.0f) {
    const double share = static_cast<double>(params.top_p) * static_cast<double>(kept);
    const uint64_t wanted = between(__double2ull_ru(share), 1, kept);
    kept = locate(column, false, wanted, shared).mass_through;
  }
  const uint64_t wanted = between(__double2ull_rd(u * static_cast<double>(kept)) + 1, 1, kept);
  return id_of(locate(column, false, wanted, shared).rank);
}

// ---- One column
// ----------------------------------------------------------------------------------

__device__ __forceinline__ int32_t choose(const SampleParams& p, const SampleColumn& params,
                                          ChooseShared& shared) {
  const int n_slices = p.n_slices;
  const ColumnSummary summary =
      merge_slices(p.summaries + int64_t{blockIdx.x} * n_slices, n_slices, shared.best);
  if (summary.has_nan) return -1;
  if (params.temperature == 0.0f) return id_of(summary.best);
  const double u = uniform_at(params.seed, params.position);
  const MassScale scale = mass_scale(params, summary.best);
  if (params.top_k >= 1 && params.top_k <= kListedTopK) {
    gather_listed(p, params.top_k, shared);
    const int n = sort_candidates(scale, shared);
    if (threadIdx.x != 0) return -1;
    return draw_listed(shared.sorted, n, static_cast<double>(params.top_p), u);
  }
  const Column column{
      p.logits + blockIdx.x * p.stride,           p.n_live,
      p.masses + int64_t{blockIdx.x} * kMassBins, p.counts + int64_t{blockIdx.x} * kMassBins,
      p.gathered + blockIdx.x * p.n_vocab,        scale};
  return draw_all(column, params, u, shared);
}

__global__ void __launch_bounds__(kThreads) choose_tokens(const SampleParams p) {
  __shared__ ChooseShared shared;
  const int32_t token = choose(p, p.columns[blockIdx.x], shared);
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
