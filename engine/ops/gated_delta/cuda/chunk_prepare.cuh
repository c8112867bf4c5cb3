// What the chunk_prepare kernels of both families share: the chunk of a block, its gates and the
// inverse of its triangular matrix.
#pragma once

#include "engine/ops/gated_delta/cuda/delta_rows.cuh"
#include "engine/ops/gated_delta/cuda/gated_delta_params.h"

namespace lockstep::cuda {

inline constexpr int kChunk = 64;
inline constexpr int kSolveStride = kChunk + 4;

using SolveMatrix = float[kChunk][kSolveStride];

template <int kHeads>
struct SharedGates {
  double sum[kHeads][kChunk];  // G
  float beta[kHeads][kChunk];
};

struct Chunk {
  int index;
  int key_head;
  int64_t first;
  int n;

  __device__ __forceinline__ Chunk(const GdnChunkParams& p, int head)
      : index(blockIdx.x),
        key_head(head),
        first(p.begin(blockIdx.x)),
        n(static_cast<int>(min(p.n_tokens, p.begin(blockIdx.x + 1)) - p.begin(blockIdx.x))) {}
};

// exp(G_i) and exp(G_last - G_i) of rows 2 l and 2 l + 1 of lane l.
struct RowDecays {
  float from_start[2];
  float to_end[2];
};

// One warp a value head: sums of the decays in float64, so that differences of large ones keep
// their digits. Rows beyond the chunk repeat the last sum.
template <int kHeads>
__device__ __forceinline__ RowDecays load_gates(const GdnChunkParams& p, const Chunk& chunk,
                                                int head, int place, SharedGates<kHeads>& shared) {
  const int lane = threadIdx.x % 32;
  double value[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int r = 2 * lane + e;
    const int64_t at = (chunk.first + r) * p.rows.n_v_heads + head;
    value[e] = r < chunk.n ? double{p.rows.log_decay[at]} : 0.0;
    shared.beta[place][r] = r < chunk.n ? p.rows.beta[at] : 0.0f;
  }
  double sum = value[0] + value[1];
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const double before = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += before;
  }
  const double last = __shfl_sync(0xffffffffu, sum, 31);
  double before = __shfl_up_sync(0xffffffffu, sum, 1);
  if (lane == 0) before = 0.0;
  const double sums[2] = {before + value[0], sum};
  RowDecays decays;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    shared.sum[place][2 * lane + e] = sums[e];
    decays.from_start[e] = exp_f32(static_cast<float>(sums[e]));
    decays.to_end[e] = exp_f32(static_cast<float>(last - sums[e]));
  }
  return decays;
}

// Weight of row c for row r: (qn_r . kn_c) D_rc for c <= r. Puts -A_rc = -beta_r (kn_r . kn_c) D_rc
// transposed in place for the inverse, which reads it for c < r.
template <int kHeads>
__device__ __forceinline__ float weigh_pair(const SharedGates<kHeads>& gates, int place, int r,
                                            int c, float qk, float kk, SolveMatrix& solve) {
  const bool inside = mutant(Mutant::chunk_mask) ? c < r : c <= r;
  const float decay =
      inside ? exp_f32(static_cast<float>(gates.sum[place][r] - gates.sum[place][c])) : 0.0f;
  solve[c][r] = kk * decay * -gates.beta[place][r];
  return inside ? qk * decay : 0.0f;
}

// Column `column` of (I + A)^-1 by forward substitution: as soon as x_j is known, every row below
// gets its share, so sums run in order of j. Calls store(j, x_j).
template <typename Store>
__device__ __forceinline__ void invert_column(const SolveMatrix& solve, int column, Store store) {
  float x[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; ++i) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
  for (int j = 0; j < kChunk; ++j) {
    store(j, x[j]);
#pragma unroll
    for (int i = j / 4 * 4; i < kChunk; i += 4) {
      const float4 a = *reinterpret_cast<const float4*>(&solve[j][i]);
      if (i + 0 > j) x[i + 0] = fmaf(a.x, x[j], x[i + 0]);
      if (i + 1 > j) x[i + 1] = fmaf(a.y, x[j], x[i + 1]);
      if (i + 2 > j) x[i + 2] = fmaf(a.z, x[j], x[i + 2]);
      if (i + 3 > j) x[i + 3] = fmaf(a.w, x[j], x[i + 3]);
    }
  }
}

}  // namespace lockstep::cuda
