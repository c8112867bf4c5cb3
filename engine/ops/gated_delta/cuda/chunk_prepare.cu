// Chunked form, what does not depend on the state. A block has one chunk of one key head: products
// of its rows of q and k with k, then for each value head of it the decays, (I + A)^-1 and the
// weights of the read-out.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/gated_delta/cuda/chunk_prepare.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeadsAtOnce = kThreads / kChunk;  // value heads that are solved side by side
constexpr int kRowStride = kDim + 4;             // four rows apart are four banks apart

struct SharedChunk {
  union {
    struct {
      float q[kChunk][kRowStride];
      float k[kChunk][kRowStride];
    } rows;
    SolveMatrix solve[kHeadsAtOnce];
  };
  SharedGates<kHeadsAtOnce> gates;
};

// Rows beyond the chunk are zero.
__device__ __forceinline__ void load_rows(const GdnChunkParams& p, const Chunk& chunk,
                                          SharedChunk& shared) {
  const int lane = threadIdx.x % 32;
  float* scales =
      p.scales + (int64_t{chunk.index} * p.rows.n_k_heads + chunk.key_head) * 2 * kChunk;
#pragma unroll 4
  for (int i = threadIdx.x / 32; i < 2 * kChunk; i += kThreads / 32) {
    const bool key = i >= kChunk;
    const int r = i % kChunk;
    float x[4] = {};
    if (r < chunk.n) {
      const uint16_t* from = (key ? p.rows.k : p.rows.q) + (chunk.first + r) * p.rows.row_stride +
                             chunk.key_head * kDim + lane * 4;
      unpack_four(*reinterpret_cast<const uint2*>(from), x);
    }
    const float scale = row_scale(x, key ? 1.0f : kQueryDivisor);
    if (lane == 0) scales[i] = scale;
    *reinterpret_cast<float4*>(&(key ? shared.rows.k : shared.rows.q)[r][lane * 4]) =
        make_float4(x[0] * scale, x[1] * scale, x[2] * scale, x[3] * scale);
  }
}

// Products of four rows of q and of k with four rows of k, summed in order of dk. Rows of a tile
// are 16 apart.
__device__ __forceinline__ void multiply_pairs(const SharedChunk& shared, int row, int column,
                                               float (&qk)[4][4], float (&kk)[4][4]) {
  for (int d = 0; d < kDim; d += 4) {
    float4 b[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      b[j] = *reinterpret_cast<const float4*>(&shared.rows.k[column + 16 * j][d]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 q = *reinterpret_cast<const float4*>(&shared.rows.q[row + 16 * i][d]);
      const float4 k = *reinterpret_cast<const float4*>(&shared.rows.k[row + 16 * i][d]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        qk[i][j] = fmaf(q.x, b[j].x, qk[i][j]);
        qk[i][j] = fmaf(q.y, b[j].y, qk[i][j]);
        qk[i][j] = fmaf(q.z, b[j].z, qk[i][j]);
        qk[i][j] = fmaf(q.w, b[j].w, qk[i][j]);
        kk[i][j] = fmaf(k.x, b[j].x, kk[i][j]);
        kk[i][j] = fmaf(k.y, b[j].y, kk[i][j]);
        kk[i][j] = fmaf(k.z, b[j].z, kk[i][j]);
        kk[i][j] = fmaf(k.w, b[j].w, kk[i][j]);
      }
    }
  }
}

// Four rows, 16 apart, with four others.
__device__ __forceinline__ void weigh_pairs(const GdnChunkParams& p, const Chunk& chunk, int head,
                                            int place, int row, int column, const float (&qk)[4][4],
                                            const float (&kk)[4][4], SharedChunk& shared) {
  auto* weights =
      reinterpret_cast<float*>(p.weights) + p.of_head(chunk.index, head) * kChunk * kChunk;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = row + 16 * i;
      const int c = column + 16 * j;
      weights[r * kChunk + c] =
          weigh_pair(shared.gates, place, r, c, qk[i][j], kk[i][j], shared.solve[place]);
    }
  }
}

__device__ __forceinline__ void share_gates(const GdnChunkParams& p, const Chunk& chunk, int head,
                                            int place, SharedChunk& shared) {
  const RowDecays decays = load_gates(p, chunk, head, place, shared.gates);
  float* to = p.decays + p.of_head(chunk.index, head) * 2 * kChunk + threadIdx.x % 32 * 2;
  *reinterpret_cast<float2*>(to) = make_float2(decays.from_start[0], decays.from_start[1]);
  *reinterpret_cast<float2*>(to + kChunk) = make_float2(decays.to_end[0], decays.to_end[1]);
}

__global__ void __launch_bounds__(kThreads) gdn_chunk_prepare(const GdnChunkParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  SharedChunk& shared = *reinterpret_cast<SharedChunk*>(memory);
  const Chunk chunk(p, blockIdx.y);
  load_rows(p, chunk, shared);
  __syncthreads();
  const int row = threadIdx.x / 16;
  const int column = threadIdx.x % 16;
  float qk[4][4] = {};
  float kk[4][4] = {};
  multiply_pairs(shared, row, column, qk, kk);
  const int group = p.rows.n_v_heads / p.rows.n_k_heads;
  for (int first = 0; first < group; first += kHeadsAtOnce) {
    const int n_heads = min(group - first, kHeadsAtOnce);
    const int head = chunk.key_head * group + first;
    __syncthreads();
    const int warp = threadIdx.x / 32;
    if (warp < n_heads) share_gates(p, chunk, head + warp, warp, shared);
    __syncthreads();
    for (int place = 0; place < n_heads; ++place) {
      weigh_pairs(p, chunk, head + place, place, row, column, qk, kk, shared);
    }
    __syncthreads();
    const int place = threadIdx.x / kChunk;
    if (place < n_heads) {
      const int of = threadIdx.x % kChunk;
      auto* inverse = reinterpret_cast<float*>(p.inverse) +
                      p.of_head(chunk.index, head + place) * kChunk * kChunk + of;
      invert_column(shared.solve[place], of, [&](int j, float x) { inverse[j * kChunk] = x; });
    }
  }
}

}  // namespace

void launch_gdn_chunk_prepare(const GdnChunkParams& p, cudaStream_t stream) {
  arm_mutant();
  constexpr int kBytes = sizeof(SharedChunk);
  cuda_check(
      cudaFuncSetAttribute(gdn_chunk_prepare, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "gdn_chunk_prepare: dynamic shared memory");
  const dim3 blocks(p.n_chunks, p.rows.n_k_heads);
  gdn_chunk_prepare<<<blocks, kThreads, kBytes, stream>>>(p);
  cuda_check_launch("gdn_chunk_prepare");
}

}  // namespace lockstep::cuda
