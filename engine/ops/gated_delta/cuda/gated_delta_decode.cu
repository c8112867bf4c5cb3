// Recurrent form. A warp has 16 of the 128 state columns of one head in its registers for the whole
// launch: lane l rows 16 (l / 4)..+15 of columns 4 (l mod 4)..+3. States are read once and, where a
// row is committed, written once; warps meet only to share the rows' normalised q and k.
#include <cuda_runtime.h>

#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/gated_delta/cuda/delta_rows.cuh"
#include "engine/ops/gated_delta/cuda/gated_delta_params.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 2;
constexpr int kThreads = 32 * kWarps;
constexpr int kWarpColumns = 16;
constexpr int kBlockColumns = kWarpColumns * kWarps;
constexpr int kSplits = kDim / kBlockColumns;
constexpr int kGroupRows = 16;  // of the state, in one lane
// A group's rows lie 20 floats from the next group's: its eight lanes read different banks.
constexpr int kGroupStride = kGroupRows + 4;
constexpr int kRowFloats = kDim / kGroupRows * kGroupStride;
constexpr int kVectorsOfRow = kBlockColumns / 4;  // of values
constexpr int kValueLoads = kGdnRoundRows * kVectorsOfRow / kThreads;

struct SharedRows {
  float k[kGdnRoundRows][kRowFloats];
  float q[kGdnRoundColumns][kRowFloats];
  uint2 v[kGdnRoundRows][kVectorsOfRow];
  float decay[kGdnRoundRows];
  float beta[kGdnRoundRows];
};

struct Place {
  int64_t first_row;  // of the span
  int head;
  int column;  // of the block
};

// What a thread brings in of the rows; everything is in flight before anything is used.
struct RawRows {
  uint2 k[kGdnRoundRows / kWarps];
  uint2 q[kGdnRoundColumns / kWarps];
  uint2 v[kValueLoads];
  float log_decay;
  float beta;
};

__device__ __forceinline__ const uint2* vector_at(const uint16_t* p) {
  return reinterpret_cast<const uint2*>(p);
}

__device__ __forceinline__ void fetch_rows(const GatedDeltaParams& p, const GdnSpan& span,
                                           const Place& place, RawRows& raw) {
  const int warp = threadIdx.x / 32;
  const int n_rows = span.n_replayed + span.n_new;
  const int key_head = place.head / (p.n_v_heads / p.n_k_heads);
  const int64_t at = place.first_row * p.row_stride + key_head * kDim + threadIdx.x % 32 * 4;
#pragma unroll
  for (int i = 0; i < kGdnRoundRows / kWarps; ++i) {
    const int r = warp + i * kWarps;
    if (r < n_rows) raw.k[i] = *vector_at(p.k + at + r * p.row_stride);
  }
  const int first = span.n_replayed - (mutant(Mutant::delta_query_row) ? 1 : 0);
#pragma unroll
  for (int i = 0; i < kGdnRoundColumns / kWarps; ++i) {
    const int column = warp + i * kWarps;
    if (column < span.n_new) raw.q[i] = *vector_at(p.q + at + (first + column) * p.row_stride);
  }
  const int64_t values = place.first_row * p.row_stride + place.head * kDim + place.column;
#pragma unroll
  for (int i = 0; i < kValueLoads; ++i) {
    const int r = (i * kThreads + static_cast<int>(threadIdx.x)) / kVectorsOfRow;
    const int part = threadIdx.x % kVectorsOfRow;
    if (r < n_rows) raw.v[i] = *vector_at(p.v + values + r * p.row_stride + part * 4);
  }
  if (threadIdx.x < n_rows) {
    const int64_t gate = (place.first_row + threadIdx.x) * p.n_v_heads + place.head;
    raw.log_decay = p.log_decay[gate];
    raw.beta = p.beta[gate];
  }
}

__device__ __forceinline__ void share_rows(const GdnSpan& span, const RawRows& raw,
                                           SharedRows& shared) {
  const int warp = threadIdx.x / 32;
  const int n_rows = span.n_replayed + span.n_new;
  const int at = threadIdx.x % 32 / 4 * kGroupStride + threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < kGdnRoundRows / kWarps; ++i) {
    const int r = warp + i * kWarps;
    if (r < n_rows) {
      *reinterpret_cast<float4*>(&shared.k[r][at]) = normalised_part(raw.k[i], 1.0f);
    }
  }
#pragma unroll
  for (int i = 0; i < kGdnRoundColumns / kWarps; ++i) {
    const int column = warp + i * kWarps;
    if (column < span.n_new) {
      *reinterpret_cast<float4*>(&shared.q[column][at]) = normalised_part(raw.q[i], kQueryDivisor);
    }
  }
#pragma unroll
  for (int i = 0; i < kValueLoads; ++i) {
    const int r = (i * kThreads + static_cast<int>(threadIdx.x)) / kVectorsOfRow;
    if (r < n_rows) shared.v[r][threadIdx.x % kVectorsOfRow] = raw.v[i];
  }
  if (threadIdx.x < n_rows) {
    shared.decay[threadIdx.x] = exp_f32(raw.log_decay);
    shared.beta[threadIdx.x] = raw.beta;
  }
}

// Adds over the eight groups; every lane gets the sums of its four columns.
__device__ __forceinline__ void add_groups(float (&v)[4]) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) {
#pragma unroll
    for (int c = 0; c < 4; ++c) v[c] += __shfl_xor_sync(0xffffffffu, v[c], distance);
  }
}

// The same sums with a third of the exchanges: a lane gets that of column `column_of(lane)` alone.
__device__ __forceinline__ float fold_groups(const float (&v)[4]) {
  const int lane = threadIdx.x % 32;
  const bool second = lane & 4;
  const bool upper = lane & 8;
  float low = second ? v[1] : v[0];
  float high = second ? v[3] : v[2];
  low += __shfl_xor_sync(0xffffffffu, second ? v[0] : v[1], 4);
  high += __shfl_xor_sync(0xffffffffu, second ? v[2] : v[3], 4);
  float sum = upper ? high : low;
  sum += __shfl_xor_sync(0xffffffffu, upper ? low : high, 8);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 16);
}

__device__ __forceinline__ int column_of(int lane) {
  return lane / 4 % 4;
}

// A lane's part of the state.
struct State {
  float s[kGroupRows][4];

  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < kGroupRows; ++i) {
      const float4 row = __ldcs(reinterpret_cast<const float4*>(from + i * kDim));
      s[i][0] = row.x, s[i][1] = row.y, s[i][2] = row.z, s[i][3] = row.w;
    }
  }
  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int i = 0; i < kGroupRows; ++i) {
      __stcs(reinterpret_cast<float4*>(to + i * kDim),
             make_float4(s[i][0], s[i][1], s[i][2], s[i][3]));
    }
  }
  // S = decay S; returns this lane's share of S^T k.
  __device__ __forceinline__ void decay_and_read(float decay, const float (&key)[kGroupRows],
                                                 float (&read)[4]) {
#pragma unroll
    for (int i = 0; i < kGroupRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[i][c] *= decay;
        read[c] = fmaf(s[i][c], key[i], read[c]);
      }
    }
  }
  // S = S + k u^T
  __device__ __forceinline__ void add(const float (&key)[kGroupRows], const float (&update)[4]) {
#pragma unroll
    for (int i = 0; i < kGroupRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[i][c] = fmaf(key[i], update[c], s[i][c]);
    }
  }
  // This lane's share of S^T q.
  __device__ __forceinline__ void read(const float (&query)[kGroupRows], float (&sum)[4]) const {
#pragma unroll
    for (int i = 0; i < kGroupRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[c] = fmaf(s[i][c], query[i], sum[c]);
    }
  }
};

__device__ __forceinline__ void load_group(const float* row, float (&x)[kGroupRows]) {
#pragma unroll
  for (int i = 0; i < kGroupRows; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(row + i);
    x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
  }
}

__device__ __forceinline__ void step(State& state, const SharedRows& shared, int r, int group,
                                     int part) {
  float key[kGroupRows];
  load_group(shared.k[r] + group * kGroupStride, key);
  float update[4] = {};
  state.decay_and_read(shared.decay[r], key, update);
  add_groups(update);
  float v[4];
  unpack_four(shared.v[r][part], v);
  const float beta = mutant(Mutant::delta_beta) ? 1.0f : shared.beta[r];
#pragma unroll
  for (int c = 0; c < 4; ++c) update[c] = beta * (v[c] - update[c]);
  state.add(key, update);
}

__device__ __forceinline__ void read_out(const State& state, const float* query_row, uint16_t* to) {
  float query[kGroupRows];
  load_group(query_row, query);
  float out[4] = {};
  state.read(query, out);
  const float sum = fold_groups(out);
  const int lane = threadIdx.x % 32;
  if (lane < 16) to[column_of(lane)] = static_cast<uint16_t>(bf16_bits(sum));
}

__global__ void __launch_bounds__(kThreads) gated_delta_decode(const GdnDecodeParams params) {
  __shared__ __align__(16) SharedRows shared;
  const GatedDeltaParams& p = params.rows;
  const GdnSpan span = params.spans[blockIdx.y];
  const int n_rows = span.n_replayed + span.n_new;
  if (n_rows == 0) {
    wait_for_earlier_kernels();
    return;
  }
  const Place place{int64_t{blockIdx.y} * kGdnRoundRows, static_cast<int>(blockIdx.x) / kSplits,
                    static_cast<int>(blockIdx.x) % kSplits * kBlockColumns};
  const int lane = threadIdx.x % 32;
  const int group = lane / 4;
  const int part = threadIdx.x / 32 * (kWarpColumns / 4) + lane % 4;
  const int column = place.column + part * 4;
  float* home = p.state + span.slot * params.slot_stride + int64_t{place.head} * kDim * kDim +
                group * kGroupRows * kDim + column;
  State state{};
  if (!mutant(Mutant::ablate_loads)) state.load(home);
  wait_for_earlier_kernels();
  let_next_kernel_start();
  RawRows raw;
  fetch_rows(p, span, place, raw);
  share_rows(span, raw, shared);
  if (!mutant(Mutant::delta_missing_barrier)) __syncthreads();
  const int committed = span.n_committed + (mutant(Mutant::delta_committed_row) ? 1 : 0);
  for (int r = 0; r < n_rows; ++r) {
    const int fresh = r - span.n_replayed;
    uint16_t* out =
        p.out + int64_t{span.first_column + fresh} * p.out_stride + place.head * kDim + column;
    const float* query = shared.q[max(fresh, 0)] + group * kGroupStride;
    if (fresh >= 0 && mutant(Mutant::delta_stale_read)) read_out(state, query, out);
    if (!mutant(Mutant::ablate_math)) step(state, shared, r, group, part);
    if (r + 1 == committed) state.store(home);
    if (mutant(Mutant::ablate_math)) continue;
    if (fresh >= 0 && !mutant(Mutant::delta_stale_read)) read_out(state, query, out);
  }
}

}  // namespace

void launch_gdn_decode(const GdnDecodeParams& p, int n_spans, cudaStream_t stream) {
  arm_mutant();
  const dim3 blocks(p.rows.n_v_heads * kSplits, n_spans);
  launch_early(gated_delta_decode, blocks, kThreads, 0, stream, p, "gated_delta_decode");
}

}  // namespace lockstep::cuda
