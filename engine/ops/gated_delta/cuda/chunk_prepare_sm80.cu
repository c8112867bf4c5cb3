// chunk_prepare with the matrix unit. A block has one chunk of one value head: products of its rows
// of q and k with k are exact bfloat16 products, scaled afterwards; the inverse and the weights are
// left in bfloat16 parts, without the blocks of 16 x 16 above the diagonal.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/gated_delta/cuda/chunk_mma.cuh"
#include "engine/ops/gated_delta/cuda/chunk_prepare.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kColumnTiles = kChunk / 8;  // of a warp's 16 rows
constexpr int kRowLanes = kDim / kVector;
constexpr int kSolveRows = 4;  // that a thread solves at once

struct SharedChunk {
  union {
    struct {
      uint16_t q[kChunk * kDim];
      uint16_t k[kChunk * kDim];
    } rows;
    struct {
      SolveMatrix kk;  // products of k rows, then -A
      SolveMatrix qk;  // products of q and k rows, then the inverse
    };
  };
  SharedGates<1> gates;
  float scale[2][kChunk];  // of q, of k
};

// Half a warp a row. Rows beyond the chunk are zero.
__device__ __forceinline__ void load_rows(const GdnChunkParams& p, const Chunk& chunk,
                                          SharedChunk& shared) {
  const int lane = threadIdx.x % kRowLanes;
#pragma unroll 8
  for (int i = threadIdx.x / kRowLanes; i < 2 * kChunk; i += kThreads / kRowLanes) {
    const bool key = i >= kChunk;
    const int r = i % kChunk;
    uint4 packed{0, 0, 0, 0};
    if (r < chunk.n) {
      packed = *reinterpret_cast<const uint4*>((key ? p.rows.k : p.rows.q) +
                                               (chunk.first + r) * p.rows.row_stride +
                                               chunk.key_head * kDim + lane * kVector);
    }
    const TileRows<kDim> tile{key ? shared.rows.k : shared.rows.q};
    *reinterpret_cast<uint4*>(tile.at(r, lane * kVector)) = packed;
    float x[kVector];
    unpack(packed, x);
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < kVector; ++e) sum = fmaf(x[e], x[e], sum);
#pragma unroll
    for (int distance = kRowLanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (lane == 0) shared.scale[key][r] = scale_of_square_sum(sum, key ? 1.0f : kQueryDivisor);
  }
}

using PairSums = float[kColumnTiles][4];

// Rows 16 m..+15 of q and of k with the rows of k up to them.
__device__ __forceinline__ void multiply_pairs(const SharedChunk& shared, int m, PairSums& qk,
                                               PairSums& kk) {
  const int lane = threadIdx.x % 32;
  const TileRows<kDim> q{const_cast<uint16_t*>(shared.rows.q)};
  const TileRows<kDim> k{const_cast<uint16_t*>(shared.rows.k)};
  const int a_row = 16 * m + lane % 16;
  const int b_row = lane / 16 * 8 + lane % 8;
#pragma unroll 1
  for (int d = 0; d < kDim; d += 16) {
    uint32_t of_q[4];
    uint32_t of_k[4];
    q.load(a_row, d + lane / 16 * 8, of_q);
    k.load(a_row, d + lane / 16 * 8, of_k);
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      if (n > 2 * m) continue;
      uint32_t b[4];
      k.load(b_row + n * 8, d + lane / 8 % 2 * 8, b);
      multiply(qk[n], of_q, b[0], b[1]);
      multiply(qk[n + 1], of_q, b[2], b[3]);
      multiply(kk[n], of_k, b[0], b[1]);
      multiply(kk[n + 1], of_k, b[2], b[3]);
    }
  }
}

__device__ __forceinline__ void share_pairs(const PairSums& sums, int m, SolveMatrix& pairs) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    if (n > 2 * m + 1) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* to = &pairs[16 * m + lane / 4 + i * 8][n * 8 + lane % 4 * 2];
      *reinterpret_cast<float2*>(to) = make_float2(sums[n][2 * i], sums[n][2 * i + 1]);
    }
  }
}

// A thread takes eight neighbouring pairs at a time; blocks of 16 x 16 above the diagonal are left
// out.
__device__ __forceinline__ void weigh_pairs(uint16_t* weights, SharedChunk& shared) {
#pragma unroll 1
  for (int i = threadIdx.x; i < kChunk * kColumnTiles; i += kThreads) {
    const int r = i / kColumnTiles;
    const int first = i % kColumnTiles * 8;
    if (first / 16 > r / 16) continue;
    const float q_scale = shared.scale[0][r];
    const float k_scale = shared.scale[1][r];
    const double sum = shared.gates.sum[0][r];
    const float minus_beta = -shared.gates.beta[0][r];
    float w[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int c = first + e;
      const bool inside = mutant(Mutant::chunk_mask) ? c < r : c <= r;
      const float decay = inside ? exp_f32(static_cast<float>(sum - shared.gates.sum[0][c])) : 0.0f;
      const float of_column = shared.scale[1][c];
      w[e] = inside ? shared.qk[r][c] * q_scale * of_column * decay : 0.0f;
      shared.kk[r][c] = shared.kk[r][c] * k_scale * of_column * decay * minus_beta;
    }
    store_parts<kWeightParts>(w, weights + r * kChunk + first);
  }
}

__device__ __forceinline__ void share_gates(const GdnChunkParams& p, const Chunk& chunk, int head,
                                            SharedChunk& shared) {
  const RowDecays decays = load_gates(p, chunk, head, 0, shared.gates);
  const float last = __shfl_sync(0xffffffffu, decays.from_start[1], 31);
  float* to = p.decays + p.of_head(chunk.index, head) * 5 * kChunk;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int r = threadIdx.x % 32 * 2 + e;
    to[r] = decays.from_start[e] * shared.scale[1][r];
    to[kChunk + r] = decays.from_start[e] * shared.scale[0][r];
    const float to_end = mutant(Mutant::chunk_decay_to_end) ? 1.0f : decays.to_end[e];
    to[2 * kChunk + r] = to_end * shared.scale[1][r];
    to[3 * kChunk + r] = shared.gates.beta[0][r];
    to[4 * kChunk + r] = last;
  }
}

// Columns 16 w..+15 of (I + A)^-1 by forward substitution, four rows at a time, sums in order of
// columns of A; both halves of warp w do the same. In loops: straight code for all 64 rows would
// spend its time fetching instructions.
__device__ __forceinline__ void invert_columns(SharedChunk& shared, int w) {
  const int column = 16 * w + threadIdx.x % 16;
  const SolveMatrix& a = shared.kk;
  SolveMatrix& x = shared.qk;
#pragma unroll 1
  for (int row = 16 * w; row < kChunk; row += kSolveRows) {
    float sum[kSolveRows];
#pragma unroll
    for (int i = 0; i < kSolveRows; ++i) sum[i] = row + i == column ? 1.0f : 0.0f;
#pragma unroll 2
    for (int j = 16 * w; j < row; j += 4) {
      float known[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) known[e] = x[j + e][column];
#pragma unroll
      for (int i = 0; i < kSolveRows; ++i) {
        const float4 f = *reinterpret_cast<const float4*>(&a[row + i][j]);
        sum[i] = fmaf(f.x, known[0], sum[i]);
        sum[i] = fmaf(f.y, known[1], sum[i]);
        sum[i] = fmaf(f.z, known[2], sum[i]);
        sum[i] = fmaf(f.w, known[3], sum[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kSolveRows; ++i) {
#pragma unroll
      for (int j = 0; j < i; ++j) sum[i] = fmaf(a[row + i][row + j], sum[j], sum[i]);
    }
    __syncwarp();
    if (threadIdx.x % 32 < 16) {
#pragma unroll
      for (int i = 0; i < kSolveRows; ++i) x[row + i][column] = sum[i];
    }
    __syncwarp();
  }
}

__device__ __forceinline__ void store_inverse(uint16_t* inverse, const SharedChunk& shared) {
#pragma unroll 1
  for (int i = threadIdx.x; i < kChunk * kColumnTiles; i += kThreads) {
    const int r = i / kColumnTiles;
    const int first = i % kColumnTiles * 8;
    if (first / 16 > r / 16) continue;
    float x[8];
    load_vector(&shared.qk[r][first], x);
    store_parts<kParts>(x, inverse + r * kChunk + first);
  }
}

__global__ void __launch_bounds__(kThreads, 4) gdn_chunk_prepare_sm80(const GdnChunkParams p) {
  __shared__ __align__(128) SharedChunk shared;
  const int head = blockIdx.y;
  const Chunk chunk(p, head / (p.rows.n_v_heads / p.rows.n_k_heads));
  load_rows(p, chunk, shared);
  __syncthreads();
  const int warp = threadIdx.x / 32;
  if (warp == 0) share_gates(p, chunk, head, shared);
  PairSums qk = {};
  PairSums kk = {};
  multiply_pairs(shared, warp, qk, kk);
  __syncthreads();
  share_pairs(qk, warp, shared.qk);
  share_pairs(kk, warp, shared.kk);
  __syncthreads();
  const int64_t of_head = p.of_head(chunk.index, head) * kChunk * kChunk;
  weigh_pairs(static_cast<uint16_t*>(p.weights) + of_head * kWeightParts, shared);
  __syncthreads();
  invert_columns(shared, warp);
  __syncthreads();
  store_inverse(static_cast<uint16_t*>(p.inverse) + of_head * kParts, shared);
}

}  // namespace

void launch_gdn_chunk_prepare_sm80(const GdnChunkParams& p, cudaStream_t stream) {
  arm_mutant();
  const dim3 blocks(p.n_chunks, p.rows.n_v_heads);
  gdn_chunk_prepare_sm80<<<blocks, kThreads, 0, stream>>>(p);
  cuda_check_launch("gdn_chunk_prepare_sm80");
}

}  // namespace lockstep::cuda
