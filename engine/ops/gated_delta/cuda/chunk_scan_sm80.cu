// chunk_scan with the matrix unit. A warp has 16 state columns of one value head; the whole chain
// of a chunk runs in its registers, transposed, so that each product's accumulators are the next
// one's first factor:
//   R^T = S^T K^T, O^T = S^T Q^T      [16 columns][64 rows]
//   V'^T = rhs^T X^T, O^T += V'^T P^T
//   S^T = exp(G_last) S^T + V''^T K   [16 columns][128 dk]
// Warps share what cp.async brings of a chunk: K, Q, the parts of X and P, V, decays. Rows of a
// fragment: lane l has columns l / 4 and l / 4 + 8, rows 2 (l mod 4) and the next.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/gated_delta/cuda/chunk_mma.cuh"
#include "engine/ops/gated_delta/cuda/delta_rows.cuh"
#include "engine/ops/gated_delta/cuda/gated_delta_params.h"

namespace lockstep::cuda {
namespace {

constexpr int kChunk = 64;
constexpr int kWarpColumns = 16;
constexpr int kRowTiles = kChunk / 8;
constexpr int kStateTiles = kDim / 8;
constexpr int kValueWidth = 64;  // of a row of values in shared memory; a block has no more
constexpr int kUpdateTiles = 4;  // state tiles whose update is summed at once

template <int kWarps>
struct Stage {
  static constexpr int kColumns = kWarps * kWarpColumns;
  uint16_t k[kChunk * kDim];
  uint16_t q[kChunk * kDim];
  uint16_t inverse[kParts * kChunk * kChunk];
  uint16_t weights[kWeightParts * kChunk * kChunk];
  uint16_t v[kChunk * kValueWidth];  // columns of the block alone
  float k_scale[kChunk];             // exp(G_i) scale of k_i
  float q_scale[kChunk];
  float end_scale[kChunk];  // exp(G_last - G_i) scale of k_i
  float beta[kChunk];
  float last[kChunk];  // exp(G_last), repeated
};
static_assert(2 * sizeof(Stage<4>) == kGdnScanSm80Bytes);

struct Place {
  int head;
  int key_head;
  int column;  // first of the block

  __device__ __forceinline__ Place(const GatedDeltaParams& p, int n_columns)
      : head(blockIdx.x / (kDim / n_columns)),
        key_head(head / (p.n_v_heads / p.n_k_heads)),
        column(static_cast<int>(blockIdx.x) % (kDim / n_columns) * n_columns) {}
};

template <int kWidth>
__device__ __forceinline__ TileRows<kWidth> rows_of(const uint16_t* rows) {
  return {const_cast<uint16_t*>(rows)};
}

// Copies rows of kWidth values, n of them, zeros up to kRows.
template <int kWidth, int kThreads>
__device__ __forceinline__ void fetch_rows(uint16_t* to, const uint16_t* from, int64_t stride,
                                           int n_columns, int n) {
  const int n_vectors = n_columns / 8;
  for (int i = threadIdx.x; i < kChunk * n_vectors; i += kThreads) {
    const int r = i / n_vectors;
    const int column = i % n_vectors * 8;
    copy_async_16_or_zero(rows_of<kWidth>(to).at(r, column),
                          from + (r < n ? r : 0) * stride + column, r < n);
  }
}

// The parts of a lower-triangular matrix, without the blocks of 16 x 16 above the diagonal.
template <int kThreads, int kCount>
__device__ __forceinline__ void fetch_lower(uint16_t* to, const uint16_t* from) {
#pragma unroll
  for (int i = threadIdx.x; i < 2 * kChunk; i += kThreads) {
    const int r = i / 2;
#pragma unroll
    for (int block = 0; block < kChunk / 16; ++block) {
      if (block > r / 16) break;
      const int column = block * 16 + i % 2 * 8;
      uint16_t* place = rows_of<kChunk>(to).at(r, column);
#pragma unroll
      for (int part = 0; part < kCount; ++part) {
        const int at = part * kChunk * kChunk;
        copy_async_16(place + at, from + at + r * kChunk + column);
      }
    }
  }
}

template <int kWarps>
__device__ __forceinline__ void fetch_chunk(const GdnChunkParams& p, const Place& place, int chunk,
                                            Stage<kWarps>& stage) {
  constexpr int kThreads = kWarps * 32;
  if (chunk < p.n_chunks) {
    const int64_t first = p.begin(chunk);
    const int n = static_cast<int>(min(p.n_tokens, p.begin(chunk + 1)) - first);
    const int64_t stride = p.rows.row_stride;
    const int64_t of_key = first * stride + place.key_head * kDim;
    fetch_rows<kDim, kThreads>(stage.k, p.rows.k + of_key, stride, kDim, n);
    fetch_rows<kDim, kThreads>(stage.q, p.rows.q + of_key, stride, kDim, n);
    fetch_rows<kValueWidth, kThreads>(stage.v,
                                      p.rows.v + first * stride + place.head * kDim + place.column,
                                      stride, Stage<kWarps>::kColumns, n);
    const int64_t of_head = p.of_head(chunk, place.head);
    const int64_t of_matrix = of_head * kChunk * kChunk;
    fetch_lower<kThreads, kParts>(stage.inverse,
                                  static_cast<const uint16_t*>(p.inverse) + of_matrix * kParts);
    fetch_lower<kThreads, kWeightParts>(
        stage.weights, static_cast<const uint16_t*>(p.weights) + of_matrix * kWeightParts);
    for (int i = threadIdx.x; i < 5 * kChunk / 4; i += kThreads) {
      copy_async_16(stage.k_scale + i * 4, p.decays + of_head * 5 * kChunk + i * 4);
    }
  }
  copy_async_commit();
}

// A warp's part of the state, transposed: [16 columns][128 dk].
struct State {
  float s[kStateTiles][4];

  template <typename Body>
  __device__ __forceinline__ void each(float* home, Body body) {
    const int lane = threadIdx.x % 32;
    float* from = home + lane % 4 * 2 * kDim + lane / 4;
#pragma unroll
    for (int tile = 0; tile < kStateTiles; ++tile) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        body(s[tile][e], from[(tile * 8 + e % 2) * kDim + e / 2 * 8]);
      }
    }
  }
};

using RowSums = float[kRowTiles][4];  // [16 columns][64 rows]

// R^T and O^T.
template <int kWarps>
__device__ __forceinline__ void read_state(const Stage<kWarps>& stage, const State& state,
                                           RowSums& of_k, RowSums& of_q) {
  const int lane = threadIdx.x % 32;
  const int row = lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    PartFragment a;
    a.split(state.s[2 * step], state.s[2 * step + 1]);
    const int column = step * 16 + lane / 8 % 2 * 8;
    uint32_t k[kRowTiles / 2][4];
    uint32_t q[kRowTiles / 2][4];
#pragma unroll
    for (int n = 0; n < kRowTiles / 2; ++n) {
      rows_of<kDim>(stage.k).load(row + n * 16, column, k[n]);
      rows_of<kDim>(stage.q).load(row + n * 16, column, q[n]);
    }
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
      for (int n = 0; n < kRowTiles / 2; ++n) {
        multiply(of_k[2 * n], a.part[part], k[n][0], k[n][1]);
        multiply(of_k[2 * n + 1], a.part[part], k[n][2], k[n][3]);
        if (part >= kWeightParts) continue;
        multiply(of_q[2 * n], a.part[part], q[n][0], q[n][1]);
        multiply(of_q[2 * n + 1], a.part[part], q[n][2], q[n][3]);
      }
    }
  }
}

// rhs^T = beta (v - exp(G) R^T) in place of R^T; O^T times exp(G).
template <int kWarps>
__device__ __forceinline__ void right_side(const Stage<kWarps>& stage, int column, RowSums& of_k,
                                           RowSums& of_q) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kRowTiles; n += 2) {
    uint32_t v[4];  // tile n columns 0..7, 8..15, tile n + 1 the same
    rows_of<kValueWidth>(stage.v).load_transposed(n * 8 + lane / 16 * 8 + lane % 8,
                                                  column + lane / 8 % 2 * 8, v);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = (n + i) * 8 + lane % 4 * 2;
      const float2 k_scale = *reinterpret_cast<const float2*>(stage.k_scale + at);
      const float2 q_scale = *reinterpret_cast<const float2*>(stage.q_scale + at);
      const float2 beta = *reinterpret_cast<const float2*>(stage.beta + at);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pair = v[2 * i + half];
        float& low = of_k[n + i][2 * half];
        float& high = of_k[n + i][2 * half + 1];
        low = beta.x * fmaf(-k_scale.x, low, __uint_as_float(pair << 16));
        high = beta.y * fmaf(-k_scale.y, high, __uint_as_float(pair & 0xffff0000u));
        of_q[n + i][2 * half] *= q_scale.x;
        of_q[n + i][2 * half + 1] *= q_scale.y;
      }
    }
  }
}

// sum^T += rows^T L^T for a lower-triangular L in parts: all products of parts that reach
// 2^-24, or 2^-16 with two parts.
// Blocks of 16 x 16 above the diagonal are not read.
template <int kCount>
__device__ __forceinline__ void add_lower(const uint16_t* lower, const RowSums& rows,
                                          RowSums& sum) {
  const int lane = threadIdx.x % 32;
  const int row = lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) {
    PartFragment a;
    a.split(rows[2 * step], rows[2 * step + 1]);
    const int column = step * 16 + lane / 8 % 2 * 8;
#pragma unroll
    for (int plane = kCount - 1; plane >= 0; --plane) {
      uint32_t b[kRowTiles / 2][4];
#pragma unroll
      for (int n = step; n < kRowTiles / 2; ++n) {
        rows_of<kChunk>(lower + plane * kChunk * kChunk).load(row + n * 16, column, b[n]);
      }
#pragma unroll
      for (int part = kCount - 1 - plane; part >= 0; --part) {
#pragma unroll
        for (int n = step; n < kRowTiles / 2; ++n) {
          multiply(sum[2 * n], a.part[part], b[n][0], b[n][1]);
          multiply(sum[2 * n + 1], a.part[part], b[n][2], b[n][3]);
        }
      }
    }
  }
}

// S^T = exp(G_last) S^T + V''^T K; V'' = exp(G_last - G) times the scale of k times V'.
template <int kWarps>
__device__ __forceinline__ void advance(const Stage<kWarps>& stage, RowSums& values, State& state) {
  const int lane = threadIdx.x % 32;
  PartFragment a[kChunk / 16];
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) {
#pragma unroll
    for (int n = 2 * step; n < 2 * step + 2; ++n) {
      const float2 scale = *reinterpret_cast<const float2*>(stage.end_scale + n * 8 + lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) values[n][e] *= e % 2 == 0 ? scale.x : scale.y;
    }
    a[step].split(values[2 * step], values[2 * step + 1]);
  }
  const float last = stage.last[0];
#pragma unroll
  for (int tile = 0; tile < kStateTiles; tile += kUpdateTiles) {
    float update[kUpdateTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      uint32_t k[kUpdateTiles / 2][4];
#pragma unroll
      for (int n = 0; n < kUpdateTiles / 2; ++n) {
        rows_of<kDim>(stage.k).load_transposed(step * 16 + lane % 16,
                                               tile * 8 + n * 16 + lane / 16 * 8, k[n]);
      }
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
        for (int n = 0; n < kUpdateTiles / 2; ++n) {
          multiply(update[2 * n], a[step].part[part], k[n][0], k[n][1]);
          multiply(update[2 * n + 1], a[step].part[part], k[n][2], k[n][3]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kUpdateTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        state.s[tile + n][e] = fmaf(state.s[tile + n][e], last, update[n][e]);
      }
    }
  }
}

__device__ __forceinline__ void store_outputs(const GdnChunkParams& p, int64_t first, int n,
                                              int column, const RowSums& out) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
    const int r = tile * 8 + lane / 4;
    uint16_t* to = p.rows.out + (first + r) * p.rows.out_stride + column + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t packed = pack_pair(out[tile][2 * half], out[tile][2 * half + 1]);
      uint32_t turned;
      asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(packed));
      if (r < n || mutant(Mutant::chunk_tail)) {
        *reinterpret_cast<uint32_t*>(to + half * 8) = turned;
      }
    }
  }
}

template <int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 1) gdn_chunk_scan_sm80(const GdnChunkParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto* stages = reinterpret_cast<Stage<kWarps>*>(memory);
  const Place place(p.rows, Stage<kWarps>::kColumns);
  const int warp_column = static_cast<int>(threadIdx.x) / 32 * kWarpColumns;
  fetch_chunk<kWarps>(p, place, 0, stages[0]);
  float* home = p.rows.state + int64_t{place.head} * kDim * kDim + place.column + warp_column;
  State state;
  state.each(home, [](float& s, float& from) { s = from; });
  for (int chunk = 0; chunk < p.n_chunks; ++chunk) {
    const Stage<kWarps>& stage = stages[chunk % 2];
    copy_async_wait<0>();
    if (!mutant(Mutant::chunk_missing_barrier)) __syncthreads();
    fetch_chunk<kWarps>(p, place, chunk + 1, stages[(chunk + 1) % 2]);
    RowSums of_k = {};
    RowSums out = {};
    read_state<kWarps>(stage, state, of_k, out);
    right_side<kWarps>(stage, warp_column, of_k, out);
    RowSums values = {};
    add_lower<kParts>(stage.inverse, of_k, values);
    add_lower<kWeightParts>(stage.weights, values, out);
    const int64_t first = p.begin(chunk);
    store_outputs(p, first, static_cast<int>(min(p.n_tokens, p.begin(chunk + 1)) - first),
                  place.head * kDim + place.column + warp_column, out);
    advance<kWarps>(stage, values, state);
  }
  state.each(home, [](float& s, float& to) { to = s; });
}

template <int kWarps>
void launch(const GdnChunkParams& p, cudaStream_t stream) {
  constexpr int kBytes = 2 * sizeof(Stage<kWarps>);
  cuda_check(cudaFuncSetAttribute(gdn_chunk_scan_sm80<kWarps>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "gdn_chunk_scan_sm80: dynamic shared memory");
  const int blocks = p.rows.n_v_heads * (kDim / Stage<kWarps>::kColumns);
  gdn_chunk_scan_sm80<kWarps><<<blocks, kWarps * 32, kBytes, stream>>>(p);
  cuda_check_launch("gdn_chunk_scan_sm80");
}

}  // namespace

// Few heads: blocks of fewer columns, so that more multiprocessors have one. A column's bits do not
// depend on it.
void launch_gdn_chunk_scan_sm80(const GdnChunkParams& p, int n_multiprocessors,
                                cudaStream_t stream) {
  arm_mutant();
  if (p.rows.n_v_heads * 4 <= n_multiprocessors) return launch<2>(p, stream);
  launch<4>(p, stream);
}

}  // namespace lockstep::cuda
