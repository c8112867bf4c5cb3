// chunk_prepare with the matrix unit: products of q and k rows are exact bfloat16 products, scaled
// afterwards; the inverse and the weights are left in bfloat16 parts.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/gated_delta/cuda/chunk_mma.cuh"
#include "engine/ops/gated_delta/cuda/chunk_prepare.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = kPrepareThreads;
constexpr int kColumnTiles = 4;  // of eight columns, in one warp

struct SharedChunk {
  union {
    struct {
      uint16_t q[kChunk * kDim];
      uint16_t k[kChunk * kDim];
    } rows;
    SolveMatrix solve[kHeadsAtOnce];
  };
  SharedGates gates;
  float scale[2][kChunk];  // of q, of k
};

// Rows beyond the chunk are zero.
__device__ __forceinline__ void load_rows(const GdnChunkParams& p, const Chunk& chunk,
                                          SharedChunk& shared) {
  const int lane = threadIdx.x % 32;
#pragma unroll 8
  for (int i = threadIdx.x / 32; i < 2 * kChunk; i += kThreads / 32) {
    const bool key = i >= kChunk;
    const int r = i % kChunk;
    uint2 packed{0, 0};
    if (r < chunk.n) {
      packed = *reinterpret_cast<const uint2*>((key ? p.rows.k : p.rows.q) +
                                               (chunk.first + r) * p.rows.row_stride +
                                               chunk.key_head * kDim + lane * 4);
    }
    float x[4];
    unpack_four(packed, x);
    const float scale = row_scale(x, key ? 1.0f : kQueryDivisor);
    if (lane == 0) shared.scale[key][r] = scale;
    const TileRows<kDim> tile{key ? shared.rows.k : shared.rows.q};
    *reinterpret_cast<uint2*>(tile.at(r, lane * 4) + lane % 2 * 4) = packed;
  }
}

// Rows 16 m..+15 of q and of k with rows 32 half..+31 of k.
__device__ __forceinline__ void multiply_pairs(const SharedChunk& shared, int m, int half,
                                               float (&qk)[kColumnTiles][4],
                                               float (&kk)[kColumnTiles][4]) {
  const int lane = threadIdx.x % 32;
  const TileRows<kDim> q{const_cast<uint16_t*>(shared.rows.q)};
  const TileRows<kDim> k{const_cast<uint16_t*>(shared.rows.k)};
  const int a_row = 16 * m + lane % 16;
  const int b_row = 32 * half + lane / 16 * 8 + lane % 8;
  for (int d = 0; d < kDim; d += 16) {
    uint32_t of_q[4];
    uint32_t of_k[4];
    q.load(a_row, d + lane / 16 * 8, of_q);
    k.load(a_row, d + lane / 16 * 8, of_k);
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      uint32_t b[4];
      k.load(b_row + n * 8, d + lane / 8 % 2 * 8, b);
      multiply(qk[n], of_q, b[0], b[1]);
      multiply(qk[n + 1], of_q, b[2], b[3]);
      multiply(kk[n], of_k, b[0], b[1]);
      multiply(kk[n + 1], of_k, b[2], b[3]);
    }
  }
}

// Products of raw rows to products of normalised ones.
__device__ __forceinline__ void scale_pairs(const SharedChunk& shared, int row, int column,
                                            float (&qk)[kColumnTiles][4],
                                            float (&kk)[kColumnTiles][4]) {
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int r = row + e / 2 * 8;
      const float of_column = shared.scale[1][column + n * 8 + e % 2];
      qk[n][e] = qk[n][e] * shared.scale[0][r] * of_column;
      kk[n][e] = kk[n][e] * shared.scale[1][r] * of_column;
    }
  }
}

__device__ __forceinline__ void weigh_pairs(const GdnChunkParams& p, const Chunk& chunk, int head,
                                            int place, int row, int column,
                                            const float (&qk)[kColumnTiles][4],
                                            const float (&kk)[kColumnTiles][4],
                                            SharedChunk& shared) {
  auto* weights =
      static_cast<uint16_t*>(p.weights) + p.of_head(chunk.index, head) * kParts * kChunk * kChunk;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = row + i * 8;
      const int c = column + n * 8;
      SolveMatrix& solve = shared.solve[place];
      const float low = weigh_pair(shared.gates, place, r, c, qk[n][2 * i], kk[n][2 * i], solve);
      const float high =
          weigh_pair(shared.gates, place, r, c + 1, qk[n][2 * i + 1], kk[n][2 * i + 1], solve);
      uint32_t parts[kParts];
      split_pair(low, high, parts);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        *reinterpret_cast<uint32_t*>(weights + (part * kChunk + r) * kChunk + c) = parts[part];
      }
    }
  }
}

__device__ __forceinline__ void share_gates(const GdnChunkParams& p, const Chunk& chunk, int head,
                                            int place, SharedChunk& shared) {
  const RowDecays decays = load_gates(p, chunk, head, place, shared.gates);
  const float last = __shfl_sync(0xffffffffu, decays.from_start[1], 31);
  float* to = p.decays + p.of_head(chunk.index, head) * 5 * kChunk;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int r = threadIdx.x % 32 * 2 + e;
    to[r] = decays.from_start[e] * shared.scale[1][r];
    to[kChunk + r] = decays.from_start[e] * shared.scale[0][r];
    const float to_end = mutant(Mutant::chunk_decay_to_end) ? 1.0f : decays.to_end[e];
    to[2 * kChunk + r] = to_end * shared.scale[1][r];
    to[3 * kChunk + r] = shared.gates.beta[place][r];
    to[4 * kChunk + r] = last;
  }
}

__global__ void __launch_bounds__(kThreads) gdn_chunk_prepare_sm80(const GdnChunkParams p) {
  extern __shared__ __align__(128) unsigned char memory[];
  SharedChunk& shared = *reinterpret_cast<SharedChunk*>(memory);
  const Chunk chunk(p);
  load_rows(p, chunk, shared);
  __syncthreads();
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int row = warp % 4 * 16 + lane / 4;
  const int column = warp / 4 * 32 + lane % 4 * 2;
  float qk[kColumnTiles][4] = {};
  float kk[kColumnTiles][4] = {};
  multiply_pairs(shared, warp % 4, warp / 4, qk, kk);
  scale_pairs(shared, row, column, qk, kk);
  const int group = p.rows.n_v_heads / p.rows.n_k_heads;
  for (int first = 0; first < group; first += kHeadsAtOnce) {
    const int n_heads = min(group - first, kHeadsAtOnce);
    const int head = chunk.key_head * group + first;
    __syncthreads();
    if (warp < n_heads) share_gates(p, chunk, head + warp, warp, shared);
    __syncthreads();
    for (int place = 0; place < n_heads; ++place) {
      weigh_pairs(p, chunk, head + place, place, row, column, qk, kk, shared);
    }
    __syncthreads();
    const int place = threadIdx.x / kChunk;
    if (place >= n_heads) continue;
    const int of = threadIdx.x % kChunk;
    auto* inverse = static_cast<uint16_t*>(p.inverse) +
                    p.of_head(chunk.index, head + place) * kParts * kChunk * kChunk + of;
    invert_column(shared.solve[place], of, [&](int j, float x) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint32_t bits = pack_pair(x, 0.0f);
        inverse[(part * kChunk + j) * kChunk] = static_cast<uint16_t>(bits);
        x -= __uint_as_float(bits << 16);
      }
    });
  }
}

}  // namespace

void launch_gdn_chunk_prepare_sm80(const GdnChunkParams& p, cudaStream_t stream) {
  arm_mutant();
  constexpr int kBytes = sizeof(SharedChunk);
  cuda_check(cudaFuncSetAttribute(gdn_chunk_prepare_sm80,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "gdn_chunk_prepare_sm80: dynamic shared memory");
  const dim3 blocks(p.n_chunks, p.rows.n_k_heads);
  gdn_chunk_prepare_sm80<<<blocks, kThreads, kBytes, stream>>>(p);
  cuda_check_launch("gdn_chunk_prepare_sm80");
}

}  // namespace lockstep::cuda
