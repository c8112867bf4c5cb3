// Chunked form, what depends on the state. A block has 32 state columns of one value head and goes
// from chunk to chunk; a thread has 8 x 4 of its state values in registers, others read them from
// shared memory.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/gated_delta/cuda/delta_rows.cuh"
#include "engine/ops/gated_delta/cuda/gated_delta_params.h"

namespace lockstep::cuda {
namespace {

constexpr int kChunk = 64;
constexpr int kThreads = 128;
constexpr int kColumns = 32;  // of the state
constexpr int kSplits = kDim / kColumns;
constexpr int kRowStride = kDim + 4;
constexpr int kColumnStride = kColumns + 4;
constexpr int kTile = 4;  // rows and columns that a thread computes; rows are 16 apart

struct SharedScan {
  float k[kChunk][kRowStride];
  union {
    float q[kChunk][kRowStride];
    float values[kChunk][kColumnStride];  // V', once q has been read
  };
  float state[kDim][kColumnStride];
  float right[kChunk][kColumnStride];  // rhs, then exp(G_last - G) V'
};

static_assert(sizeof(SharedScan) == kGdnScanBytes);

using Tile = float[kTile][kTile];

struct Place {
  int head;
  int key_head;
  int column;  // first of the block

  __device__ __forceinline__ Place(const GatedDeltaParams& p)
      : head(blockIdx.x / kSplits),
        key_head(blockIdx.x / kSplits / (p.n_v_heads / p.n_k_heads)),
        column(static_cast<int>(blockIdx.x) % kSplits * kColumns) {}
};

// Normalised rows of q and k; rows beyond the chunk are zero.
__device__ __forceinline__ void load_rows(const GdnChunkParams& p, const Place& place, int chunk,
                                          int64_t first, int n, SharedScan& shared) {
  const float* scales =
      p.scales + (int64_t{chunk} * p.rows.n_k_heads + place.key_head) * 2 * kChunk;
  constexpr int kParts = kDim / kVector;
#pragma unroll 8
  for (int i = threadIdx.x; i < 2 * kChunk * kParts; i += kThreads) {
    const bool key = i >= kChunk * kParts;
    const int r = i / kParts % kChunk;
    const int part = i % kParts * kVector;
    float x[kVector] = {};
    if (r < n) {
      load_vector((key ? p.rows.k : p.rows.q) + (first + r) * p.rows.row_stride +
                      place.key_head * kDim + part,
                  x);
    }
    const float scale = scales[i / kParts];
    float* to = &(key ? shared.k : shared.q)[r][part];
    *reinterpret_cast<float4*>(to) =
        make_float4(x[0] * scale, x[1] * scale, x[2] * scale, x[3] * scale);
    *reinterpret_cast<float4*>(to + 4) =
        make_float4(x[4] * scale, x[5] * scale, x[6] * scale, x[7] * scale);
  }
}

__device__ __forceinline__ void add_product(const float4& a, const float4& b, float (&sum)[4],
                                            int step) {
  const float factor = step == 0 ? a.x : step == 1 ? a.y : step == 2 ? a.z : a.w;
  sum[0] = fmaf(factor, b.x, sum[0]);
  sum[1] = fmaf(factor, b.y, sum[1]);
  sum[2] = fmaf(factor, b.z, sum[2]);
  sum[3] = fmaf(factor, b.w, sum[3]);
}

// S^T kn and S^T qn, sums in order of dk.
__device__ __forceinline__ void read_state(const SharedScan& shared, int row, int column,
                                           Tile& k_read, Tile& q_read) {
#pragma unroll 2
  for (int d = 0; d < kDim; d += 4) {
    float4 s[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[e] = *reinterpret_cast<const float4*>(&shared.state[d + e][column]);
    }
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const float4 k = *reinterpret_cast<const float4*>(&shared.k[row + 16 * i][d]);
      const float4 q = *reinterpret_cast<const float4*>(&shared.q[row + 16 * i][d]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        add_product(k, s[e], k_read[i], e);
        add_product(q, s[e], q_read[i], e);
      }
    }
  }
}

// sum += lower-triangular matrix (in global memory) times rows in shared memory, in order of j.
__device__ __forceinline__ void add_lower(const float* lower,
                                          const float (&rows)[kChunk][kColumnStride], int row,
                                          int column, Tile& sum) {
#pragma unroll 4
  for (int j = 0; j < kChunk; j += 4) {
    float4 b[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) b[e] = *reinterpret_cast<const float4*>(&rows[j + e][column]);
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const float4 a = __ldg(reinterpret_cast<const float4*>(lower + (row + 16 * i) * kChunk + j));
#pragma unroll
      for (int e = 0; e < 4; ++e) add_product(a, b[e], sum[i], e);
    }
  }
}

// A thread's share of the state: rows 8 * (thread / 8)..+7, columns 4 * (thread % 8)..+3.
struct StatePart {
  float s[8][4];

  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 row = *reinterpret_cast<const float4*>(from + i * kDim);
      s[i][0] = row.x, s[i][1] = row.y, s[i][2] = row.z, s[i][3] = row.w;
    }
  }
  __device__ __forceinline__ void store(float* to, int stride) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      *reinterpret_cast<float4*>(to + i * stride) = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
    }
  }
  // S = decay S + sum_j kn_j right_j^T, in order of j.
  __device__ __forceinline__ void advance(const SharedScan& shared, float decay, int row,
                                          int column) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[i][c] *= decay;
    }
#pragma unroll 4
    for (int j = 0; j < kChunk; ++j) {
      const float4 low = *reinterpret_cast<const float4*>(&shared.k[j][row]);
      const float4 high = *reinterpret_cast<const float4*>(&shared.k[j][row + 4]);
      const float4 b = *reinterpret_cast<const float4*>(&shared.right[j][column]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        add_product(low, b, s[e], e);
        add_product(high, b, s[4 + e], e);
      }
    }
  }
};

__device__ __forceinline__ void store_row(const Tile& tile, int i, float scale,
                                          float (&rows)[kChunk][kColumnStride], int r, int column) {
  *reinterpret_cast<float4*>(&rows[r][column]) =
      make_float4(tile[i][0] * scale, tile[i][1] * scale, tile[i][2] * scale, tile[i][3] * scale);
}

// rhs = beta (v - exp(G) S^T kn) to shared memory; q_read = exp(G) S^T qn.
__device__ __forceinline__ void right_side(const GdnChunkParams& p, const Place& place,
                                           const float* decays, int64_t first, int n, int row,
                                           int column, Tile& k_read, Tile& q_read,
                                           SharedScan& shared) {
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const int r = row + 16 * i;
    float v[4] = {};
    float beta = 0.0f;
    if (r < n) {
      const int64_t at = first + r;
      unpack_four(*reinterpret_cast<const uint2*>(p.rows.v + at * p.rows.row_stride +
                                                  place.head * kDim + place.column + column),
                  v);
      beta = p.rows.beta[at * p.rows.n_v_heads + place.head];
    }
    const float decay = decays[r];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      k_read[i][c] = fmaf(-decay, k_read[i][c], v[c]);
      q_read[i][c] *= decay;
    }
    store_row(k_read, i, beta, shared.right, r, column);
  }
}

__device__ __forceinline__ void store_outputs(const GdnChunkParams& p, const Place& place,
                                              int64_t first, int n, int row, int column,
                                              const Tile& out) {
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const int r = row + 16 * i;
    if (r >= n && !mutant(Mutant::chunk_tail)) continue;
    uint16_t* to =
        p.rows.out + (first + r) * p.rows.out_stride + place.head * kDim + place.column + column;
    *reinterpret_cast<uint2*>(to) = make_uint2(bf16_bits(out[i][0]) | bf16_bits(out[i][1]) << 16,
                                               bf16_bits(out[i][2]) | bf16_bits(out[i][3]) << 16);
  }
}

__global__ void __launch_bounds__(kThreads, 2) gdn_chunk_scan(const GdnChunkParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  SharedScan& shared = *reinterpret_cast<SharedScan*>(memory);
  const Place place(p.rows);
  const int row = threadIdx.x / 8;
  const int column = threadIdx.x % 8 * 4;
  float* home =
      p.rows.state + (int64_t{place.head} * kDim + row * 8) * kDim + place.column + column;
  StatePart state;
  state.load(home);
  for (int chunk = 0; chunk < p.n_chunks; ++chunk) {
    const int64_t first = p.begin(chunk);
    const int n = static_cast<int>(min(p.n_tokens, p.begin(chunk + 1)) - first);
    const int64_t of_head = p.of_head(chunk, place.head);
    const float* decays = p.decays + of_head * 2 * kChunk;
    state.store(&shared.state[row * 8][column], kColumnStride);
    load_rows(p, place, chunk, first, n, shared);
    __syncthreads();
    Tile k_read = {};
    Tile out = {};
    read_state(shared, row, column, k_read, out);
    right_side(p, place, decays, first, n, row, column, k_read, out, shared);
    __syncthreads();
    Tile values = {};
    add_lower(static_cast<const float*>(p.inverse) + of_head * kChunk * kChunk, shared.right, row,
              column, values);
    if (!mutant(Mutant::chunk_missing_barrier)) __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const int r = row + 16 * i;
      store_row(values, i, 1.0f, shared.values, r, column);
      const float decay = mutant(Mutant::chunk_decay_to_end) ? 1.0f : decays[kChunk + r];
      store_row(values, i, decay, shared.right, r, column);
    }
    __syncthreads();
    add_lower(static_cast<const float*>(p.weights) + of_head * kChunk * kChunk, shared.values, row,
              column, out);
    store_outputs(p, place, first, n, row, column, out);
    state.advance(shared, decays[kChunk - 1], row * 8, column);
    __syncthreads();
  }
  state.store(home, kDim);
}

}  // namespace

void launch_gdn_chunk_scan(const GdnChunkParams& p, cudaStream_t stream) {
  arm_mutant();
  constexpr int kBytes = sizeof(SharedScan);
  cuda_check(
      cudaFuncSetAttribute(gdn_chunk_scan, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "gdn_chunk_scan: dynamic shared memory");
  gdn_chunk_scan<<<p.rows.n_v_heads * kSplits, kThreads, kBytes, stream>>>(p);
  cuda_check_launch("gdn_chunk_scan");
}

}  // namespace lockstep::cuda
