// Decode attention over pages: what a block does, for the caches of sm_80 and of sm_90. A block has
// one KV head and one segment; its four warps go through it a page at a time. A page passes once
// through shared memory: a warp copies, reads and frees its own part of K and of V, so that one
// barrier a page is enough, and several blocks a multiprocessor keep the memory busy while others
// compute.
//   scores   warp w owns positions 16 w..16 w + 15 of the page: S^T = K Q^T, positions are the 16
//            rows of the matrix instruction, query rows its columns
//   weights  2^(score - reference) through shared memory. A row's reference, a whole number, moves
//            up to the page's maximum when a score of the row exceeds it by more than kHeadroom:
//            rarely, and that takes another two barriers. Older sums are rescaled exactly.
//   values   warp w owns 64 of the 256 values of all positions: O^T = V^T P^T
#pragma once

#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/attention/cuda/decode_common.cuh"
#include "engine/ops/common/cuda/early_launch.cuh"

namespace lockstep::cuda {

template <typename Cache, int kTiles>
struct DecodeShared {
  static constexpr int kRows = 8 * kTiles;
  static constexpr int kQueries = 2 * kPage * Cache::kRowBytes;
  static constexpr int kWeights = kQueries + kRows * Cache::kQueryStride;
  static constexpr int kScales = kWeights + 2 * kRows * Cache::kWeightStride;
  static constexpr int kMaxima = kScales + (Cache::kScales ? 2 * kScaleBytes : 0);
  static constexpr int kFactors = kMaxima + kRows * kDecodeWarps * 8;
  static constexpr int kNewest = kFactors + kRows * 4;
  static constexpr int kBytes = kNewest + kRows * 4;

  unsigned char* base;
  __device__ __forceinline__ unsigned char* keys(int warp) const {
    return base + warp * kWarpKeys * Cache::kRowBytes;
  }
  __device__ __forceinline__ unsigned char* values(int warp) const {
    return base + kPage * Cache::kRowBytes + warp * (kPage * Cache::kRowBytes / kDecodeWarps);
  }
  __device__ __forceinline__ unsigned char* queries() const { return base + kQueries; }
  __device__ __forceinline__ unsigned char* weights(int buffer) const {
    return base + kWeights + buffer * kRows * Cache::kWeightStride;
  }
  __device__ __forceinline__ unsigned char* scales(int buffer) const {
    return base + kScales + buffer * kScaleBytes;
  }
  // [row][warp]: largest score and how far it is above the reference; denominators in the end.
  __device__ __forceinline__ float2* maxima() const {
    return reinterpret_cast<float2*>(base + kMaxima);
  }
  __device__ __forceinline__ float* factors() const {
    return reinterpret_cast<float*>(base + kFactors);
  }
  // Last position that a row sees; -1: no such row.
  __device__ __forceinline__ int* newest() const { return reinterpret_cast<int*>(base + kNewest); }
};

// Query rows token * group + head; rows that are not there are zeros. As binary16 each is scaled by
// query_shift, which its factor takes back.
template <typename Cache, int kTiles>
__device__ __forceinline__ void load_queries(const AttentionParams& p,
                                             const DecodeShared<Cache, kTiles>& shared, LaneOf l) {
  constexpr int kWarpRows = 8 * kTiles / kDecodeWarps;
  uint32_t pairs[kWarpRows][4];
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const int row = l.warp + r * kDecodeWarps;
    const int64_t head = int64_t{blockIdx.x} * p.group + row % p.group;
    const uint16_t* q = p.q + (row / p.group) * p.q_stride + head * p.q_head_stride + 2 * l.lane;
    const bool inside = row < p.n_tokens * p.group;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[r][i] = inside ? *reinterpret_cast<const uint32_t*>(q + 64 * i) : 0u;
    }
  }
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const int row = l.warp + r * kDecodeWarps;
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      largest = max(largest, max(pairs[r][i] & 0x7fffu, pairs[r][i] >> 16 & 0x7fffu));
    }
    for (int d = 16; d > 0; d /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, d));
    const int shift = Cache::Numbers::kBf16 ? 0 : query_shift(largest);
    const float scale = power_of_two(shift);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t scaled = Cache::Numbers::kBf16
                                  ? pairs[r][i]
                                  : Fp16Numbers::pack(Bf16Numbers::low(pairs[r][i]) * scale,
                                                      Bf16Numbers::high(pairs[r][i]) * scale);
      *reinterpret_cast<uint32_t*>(shared.queries() + Cache::query_place(8 * kTiles, row, i, l)) =
          scaled;
    }
    const int ahead = mutant(Mutant::attention_mask) ? 1 : 0;
    if (l.lane == 0) {
      const bool inside = row < p.n_tokens * p.group;
      shared.factors()[row] = p.scale_log2 * power_of_two(-shift);
      shared.newest()[row] = inside ? *p.first_position + row / p.group + ahead : -1;
    }
  }
}

// Largest score by which a row may exceed its reference, in powers of two; what weights carry
// beside it. 2^15 is the largest weight, and 2^-33 of the largest is what rounding may drop.
constexpr float kHeadroom = 6.0f;
constexpr float kShift = 9.0f;

// Rows 8 tile + 2 t and + 1, as this lane sees them.
template <typename Cache, int kTiles>
struct RowState {
  float offset[kTiles][2];       // kShift - reference; no reference yet: -kMasked
  float denominator[kTiles][2];  // of this lane's positions
  float page_sum[kTiles][2];     // the same of the page at hand

  __device__ __forceinline__ RowState() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      offset[tile][0] = offset[tile][1] = -kMasked;
      denominator[tile][0] = denominator[tile][1] = 0.0f;
    }
  }

  // Scores of this warp's 16 positions from `first` on become exponents of weights in base 2,
  // without their offset; what a row does not see becomes kMasked.
  __device__ __forceinline__ void mask(float (&scores)[kTiles][4], int first,
                                       const DecodeShared<Cache, kTiles>& shared, LaneOf l) const {
    const int position = first + l.near();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int2 newest = *reinterpret_cast<const int2*>(shared.newest() + 8 * tile + 2 * l.t);
      if (position > newest.x) scores[tile][0] = kMasked;
      if (position > newest.y) scores[tile][1] = kMasked;
      if (position + 8 > newest.x) scores[tile][2] = kMasked;
      if (position + 8 > newest.y) scores[tile][3] = kMasked;
    }
  }

  // Weights to shared memory. Whether a score of this lane is too far above its row's reference.
  __device__ __forceinline__ bool weigh(const float (&scores)[kTiles][4],
                                        const DecodeShared<Cache, kTiles>& shared, int buffer,
                                        LaneOf l) {
    float largest = kMasked;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * tile + 2 * l.t + i;
        const float near = scores[tile][i] + offset[tile][i];
        const float far = scores[tile][2 + i] + offset[tile][i];
        largest = fmaxf(largest, fmaxf(near, far));
        const float p_near = exp2_approx(near);
        const float p_far = exp2_approx(far);
        page_sum[tile][i] = p_near + p_far;
        *reinterpret_cast<uint32_t*>(shared.weights(buffer) + Cache::weight_place(row, l)) =
            Cache::Numbers::pack(p_near, p_far);
      }
    }
    return largest > kHeadroom + kShift;
  }

  // Moves the references of rows that have a score too far above them, by all warps together.
  __device__ __forceinline__ void raise(const float (&scores)[kTiles][4],
                                        const DecodeShared<Cache, kTiles>& shared, LaneOf l,
                                        float (&sums)[4][kTiles][4]) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float largest = fmaxf(scores[tile][i], scores[tile][2 + i]);
        for (int d = 4; d < 32; d *= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, d));
        }
        const int row = 8 * tile + 2 * l.t + i;
        if (l.g == 0) {
          shared.maxima()[row * kDecodeWarps + l.warp] =
              make_float2(largest, largest + offset[tile][i]);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2* maxima = shared.maxima() + (8 * tile + 2 * l.t + i) * kDecodeWarps;
        float largest = kMasked;
        float above = kMasked;
        for (int w = 0; w < kDecodeWarps; ++w) {
          largest = fmaxf(largest, maxima[w].x);
          above = fmaxf(above, maxima[w].y);
        }
        if (above <= kHeadroom + kShift) continue;
        const float next = kShift - reference_of(largest);
        const float by = exp2_whole(next - offset[tile][i]);
        offset[tile][i] = next;
        if (mutant(Mutant::attention_stale_maximum)) continue;
        denominator[tile][i] *= by;
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          sums[m][tile][i] *= by;
          sums[m][tile][2 + i] *= by;
        }
      }
    }
  }

  __device__ __forceinline__ void add_page_sums() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      denominator[tile][0] += page_sum[tile][0];
      denominator[tile][1] += page_sum[tile][1];
    }
  }
};

// Scores get the factor of their row.
template <typename Cache, int kTiles>
__device__ __forceinline__ void scale_scores(const DecodeShared<Cache, kTiles>& shared, LaneOf l,
                                             float (&scores)[kTiles][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float2 factor = *reinterpret_cast<const float2*>(shared.factors() + 8 * tile + 2 * l.t);
    scores[tile][0] *= factor.x;
    scores[tile][1] *= factor.y;
    scores[tile][2] *= factor.x;
    scores[tile][3] *= factor.y;
  }
}

// Denominators: lanes of a row by shuffles, then warps in order.
template <typename Cache, int kTiles>
__device__ __forceinline__ void store_statistics(const AttentionParams& p,
                                                 const BlockSegment& segment,
                                                 const DecodeShared<Cache, kTiles>& shared,
                                                 const RowState<Cache, kTiles>& rows, LaneOf l) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = rows.denominator[tile][i];
      for (int d = 4; d < 32; d *= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
      const int row = 8 * tile + 2 * l.t + i;
      if (l.g == 0) {
        shared.maxima()[row * kDecodeWarps + l.warp] = make_float2(rows.offset[tile][i], sum);
      }
    }
  }
  __syncthreads();
  const int row = threadIdx.x;
  if (row >= p.n_tokens * p.group) return;
  const float2* parts = shared.maxima() + row * kDecodeWarps;
  float* out = p.statistics + (segment.first_row(p, blockIdx.x) + row) * 2;
  out[0] = kShift - parts[0].x;
  out[1] = ((parts[0].y + parts[1].y) + parts[2].y) + parts[3].y;
}

template <typename Cache, int kTiles>
__device__ __forceinline__ void store_values(const AttentionParams& p, const BlockSegment& segment,
                                             LaneOf l, const float (&sums)[4][kTiles][4]) {
  float* out = p.values + segment.first_row(p, blockIdx.x) * kWidth + l.warp * kSlice;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 8 * tile + 2 * l.t + i;
      if (row >= p.n_tokens * p.group) continue;
      Cache::template store<kTiles>(out + row * kWidth, l, sums, tile, i);
    }
  }
}

// What the other warps read of a page: its scales, and zeros in place of values that are not there.
template <typename Cache, int kTiles>
__device__ __forceinline__ void publish_page(const DecodeShared<Cache, kTiles>& shared,
                                             const typename Cache::Scales& scales, int buffer,
                                             int n_valid, LaneOf l) {
  scales.publish(shared.scales(buffer), n_valid, l);
  copy_async_wait<1>();
  if (n_valid < kPage) {
    __syncwarp();
    Cache::clear_tail(shared.values(l.warp), n_valid, l);
  }
  Cache::publish();
}

// The barrier of a page. When a warp is `above` a row's reference, all move up and weigh again.
template <typename Cache, int kTiles>
__device__ __forceinline__ void meet(bool above, int step, const float (&scores)[kTiles][4],
                                     const DecodeShared<Cache, kTiles>& shared, LaneOf l,
                                     RowState<Cache, kTiles>& rows, float (&sums)[4][kTiles][4]) {
  if (mutant(Mutant::attention_missing_barrier) && step > 0) return;
  if (__syncthreads_or(above) == 0) return;
  rows.raise(scores, shared, l, sums);
  rows.weigh(scores, shared, step % 2, l);
  Cache::publish();
  __syncthreads();
}

template <typename Cache, int kTiles>
__global__ void __launch_bounds__(kDecodeThreads, Cache::blocks(kTiles))
    attention_decode(const AttentionParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const DecodeShared<Cache, kTiles> shared{memory};
  const LaneOf l;
  const BlockSegment segment(p);
  let_next_kernel_start();  // the merge, which waits for all of this
  if (segment.empty()) return;
  const int n_steps = segment.n_steps(kPage);
  const int first_page = segment.first / kPage;
  const int first_position = segment.last + 1 - p.n_tokens;
  const LaneCopies<Cache> copies(p, shared.keys(l.warp), shared.values(l.warp), l);
  const int scales_at = Cache::Scales::offset(p, l);
  // An entry of the page table is read a step before its page is asked for, and becomes an address
  // only then: a warp waits where it first touches what it has read.
  const auto entry_of = [&](int step) { return page_at(p, first_page + min(step, n_steps - 1)); };
  const auto bytes_of = [&](uint32_t entry) {
    return p.pool + uint64_t{entry} * static_cast<uint32_t>(p.page_bytes);
  };

  const std::byte* page = bytes_of(entry_of(0));
  typename Cache::Scales next_scales;
  copies.start_keys(page);
  next_scales.load(p, page, scales_at, l);
  copies.start_values(page);
  uint32_t entry = entry_of(1);
  load_queries<Cache, kTiles>(p, shared, l);
  Cache::publish();
  __syncthreads();

  RowState<Cache, kTiles> rows;
  float sums[4][kTiles][4] = {};
  for (int step = 0; step < n_steps; ++step) {
    const int first = segment.first + step * kPage;
    const int buffer = step % 2;
    const bool more = step + 1 < n_steps;
    const typename Cache::Scales scales = next_scales;
    copy_async_wait<1>();
    __syncwarp();
    float scores[kTiles][4] = {};
    if (!mutant(Mutant::ablate_math)) {
      Cache::template score<kTiles>(shared.keys(l.warp), shared.queries(), scales, l, scores);
    }
    __syncwarp();
    page = bytes_of(entry);
    copies.start_keys(more ? page : nullptr);
    if (more) next_scales.load(p, page, scales_at, l);
    entry = entry_of(step + 2);
    scale_scores(shared, l, scores);
    if (first + kPage > first_position + 1) {
      rows.mask(scores, first + l.warp * kWarpKeys, shared, l);
    }
    const bool above = rows.weigh(scores, shared, buffer, l);
    publish_page(shared, scales, buffer, segment.end - first, l);
    meet(above, step, scores, shared, l, rows, sums);
    rows.add_page_sums();
    if (!mutant(Mutant::ablate_math)) {
      Cache::template add<kTiles>(shared.values(l.warp), shared.scales(buffer),
                                  shared.weights(buffer), l, sums);
    }
    __syncwarp();
    copies.start_values(more ? page : nullptr);
  }
  __syncthreads();
  store_statistics<Cache, kTiles>(p, segment, shared, rows, l);
  store_values<Cache, kTiles>(p, segment, l, sums);
}

template <typename Cache, int kTiles>
void launch_decode_tiles(const AttentionParams& p, cudaStream_t stream) {
  arm_mutant();
  constexpr int kBytes = DecodeShared<Cache, kTiles>::kBytes;
  cuda_check(cudaFuncSetAttribute(attention_decode<Cache, kTiles>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "attention: dynamic shared memory");
  cuda_check(cudaFuncSetAttribute(attention_decode<Cache, kTiles>,
                                  cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "attention: share of the first-level cache");
  const dim3 blocks(p.n_kv_heads, p.n_segments);
  attention_decode<Cache, kTiles><<<blocks, kDecodeThreads, kBytes, stream>>>(p);
  cuda_check_launch("attention_decode");
}

template <typename Cache>
void launch_decode(const AttentionParams& p, cudaStream_t stream) {
  switch ((p.n_tokens * p.group + 7) / 8) {
    case 1:
      return launch_decode_tiles<Cache, 1>(p, stream);
    case 2:
      return launch_decode_tiles<Cache, 2>(p, stream);
    case 3:
      return launch_decode_tiles<Cache, 3>(p, stream);
    case 4:
      return launch_decode_tiles<Cache, 4>(p, stream);
    case 5:
      return launch_decode_tiles<Cache, 5>(p, stream);
    default:
      return launch_decode_tiles<Cache, 6>(p, stream);
  }
}

}  // namespace lockstep::cuda
