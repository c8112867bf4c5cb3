// K and V of a page of attention_decode_sm80.cu: how they meet the matrix instruction of a warp.
#pragma once

#include "engine/ops/attention/cuda/decode_common.cuh"

namespace lockstep::cuda {

inline constexpr int kPaddedWeights = 160;  // bytes of a row of P

// Adds the weighted values of one page, 16 positions at a time.
template <typename Cache, int kTiles>
__device__ __forceinline__ void add_blocks(const unsigned char* values, const unsigned char* scales,
                                           const unsigned char* weights, LaneOf l,
                                           float (&sums)[4][kTiles][4]) {
#pragma unroll(kTiles <= 3 ? 2 : 1)
  for (int block = 0; block < kDecodeWarps; ++block) {
    uint2 pairs[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      pairs[tile] = *reinterpret_cast<const uint2*>(weights + (8 * tile + l.g) * kPaddedWeights +
                                                    block * (2 * kWarpKeys) + l.t * 8);
    }
    Cache::template add_block<kTiles>(values, scales, block, l, pairs, sums);
  }
}

struct Int8Cache {
  using Numbers = Fp16Numbers;
  static constexpr int kRowBytes = kWidth;
  static constexpr int kQueryStride = 528;  // bytes of a query row: 256 values, a shift of banks
  static constexpr int kWeightStride = kPaddedWeights;
  static constexpr bool kScales = true;

  // Bytes from the start of the query rows to values 64 i + 2 lane and + 1 of one of n_rows.
  __device__ __forceinline__ static int query_place(int, int row, int i, LaneOf l) {
    return row * kQueryStride + i * 128 + l.lane * 4;
  }
  // Bytes from the start of the weights to the lane's two positions of a row.
  __device__ __forceinline__ static int weight_place(int row, LaneOf l) {
    return row * kWeightStride + l.warp * (2 * kWarpKeys) + l.g * 4;
  }
  // Blocks of a multiprocessor.
  static constexpr int blocks(int n_tiles) {
    return n_tiles <= 1 ? 5 : n_tiles <= 3 ? 4 : n_tiles == 4 ? 3 : 2;
  }
  __device__ __forceinline__ static void publish() {}

  __device__ __forceinline__ static int value_mix(int row, int) { return row / 2 % 2 * 2; }

  using Scales = Int8Scales;

  // [tile][row g: query rows 2 t, 2 t + 1; row g + 8: the same], without factors of query rows.
  template <int kTiles>
  __device__ __forceinline__ static void score(const unsigned char* keys,
                                               const unsigned char* queries, const Scales& scales,
                                               LaneOf l, float (&scores)[kTiles][4]) {
    const unsigned char* near = keys + l.near() * kRowBytes;
    const int mix = l.g % 2 * 4;
    const unsigned char* rows = queries + l.g * kQueryStride + l.t * 32;
#pragma unroll(kTiles <= 2 ? 2 : 1)
    for (int c = 0; c < 4; ++c) {
      const int chunk = ((4 * c + l.t) ^ mix) * 16;
      const uint4 gk = *reinterpret_cast<const uint4*>(near + chunk);
      const uint4 hk = *reinterpret_cast<const uint4*>(near + 8 * kRowBytes + chunk);
      float part[kTiles][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t a[8];
        int8_values(i == 0 ? gk.x : gk.z, a[0], a[2]);
        int8_values(i == 0 ? hk.x : hk.z, a[1], a[3]);
        int8_values(i == 0 ? gk.y : gk.w, a[4], a[6]);
        int8_values(i == 0 ? hk.y : hk.w, a[5], a[7]);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint4 q =
              *reinterpret_cast<const uint4*>(rows + tile * 8 * kQueryStride + c * 128 + i * 16);
          if (i == 0) {
            mma_m16n8k16_f16_first(part[tile], a[0], a[1], a[2], a[3], q.x, q.y);
          } else {
            mma_m16n8k16_f16(part[tile], a[0], a[1], a[2], a[3], q.x, q.y);
          }
          mma_m16n8k16_f16(part[tile], a[4], a[5], a[6], a[7], q.z, q.w);
        }
      }
      const float g_scale = Scales::of(scales.near, c);
      const float h_scale = Scales::of(scales.far, c);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        scores[tile][0] = fmaf(part[tile][0], g_scale, scores[tile][0]);
        scores[tile][1] = fmaf(part[tile][1], g_scale, scores[tile][1]);
        scores[tile][2] = fmaf(part[tile][2], h_scale, scores[tile][2]);
        scores[tile][3] = fmaf(part[tile][3], h_scale, scores[tile][3]);
      }
    }
  }

  // V^T of 16 positions times P^T. weights[tile]: words (positions r, r + 8) of r = 2 t, 2 t + 1.
  template <int kTiles>
  __device__ __forceinline__ static void add_block(const unsigned char* values,
                                                   const unsigned char* scales, int block, LaneOf l,
                                                   const uint2 (&weights)[kTiles],
                                                   float (&sums)[4][kTiles][4]) {
    const unsigned char* row = values + (block * kWarpKeys + l.t) * kSlice +
                               ((l.g / 2) ^ (l.t / 2 * 2)) * 16 + l.g % 2 * 8;
    const uint2 scale = *reinterpret_cast<const uint2*>(scales + l.warp * (kPage * 2) +
                                                        block * (kWarpKeys * 2) + l.t * 8);
    const uint2 v0 = *reinterpret_cast<const uint2*>(row);
    const uint2 v8 = *reinterpret_cast<const uint2*>(row + 8 * kSlice);
    const uint2 v4 = *reinterpret_cast<const uint2*>(row + 4 * kSlice);
    const uint2 v12 = *reinterpret_cast<const uint2*>(row + 12 * kSlice);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a[4];
      uint32_t b[4];
      value_pairs(half == 0 ? v0.x : v0.y, half == 0 ? v8.x : v8.y, scale.x, a);
      value_pairs(half == 0 ? v4.x : v4.y, half == 0 ? v12.x : v12.y, scale.y, b);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        mma_m16n8k16_f16(sums[2 * half][tile], a[0], a[1], b[0], b[1], weights[tile].x,
                         weights[tile].y);
        mma_m16n8k16_f16(sums[2 * half + 1][tile], a[2], a[3], b[2], b[3], weights[tile].x,
                         weights[tile].y);
      }
    }
  }
  // V^T of a page times P^T.
  template <int kTiles>
  __device__ __forceinline__ static void add(const unsigned char* values,
                                             const unsigned char* scales,
                                             const unsigned char* weights, LaneOf l,
                                             float (&sums)[4][kTiles][4]) {
    add_blocks<Int8Cache, kTiles>(values, scales, weights, l, sums);
  }
  template <int kTiles>
  __device__ __forceinline__ static void store(float* slice, LaneOf l,
                                               const float (&sums)[4][kTiles][4], int tile, int i) {
    store_int8_sums(slice, l, sums, tile, i);
  }
  __device__ __forceinline__ static void clear_tail(unsigned char*, int, LaneOf) {}
};

template <typename N>
struct HalfCache {
  using Numbers = N;
  static constexpr int kRowBytes = 2 * kWidth;
  static constexpr int kQueryStride = 576;
  static constexpr int kWeightStride = kPaddedWeights;
  static constexpr bool kScales = false;

  // Bytes from the start of the query rows to values 64 i + 2 lane and + 1 of one of n_rows.
  __device__ __forceinline__ static int query_place(int, int row, int i, LaneOf l) {
    return row * kQueryStride + i * 128 + l.lane * 4;
  }
  // Bytes from the start of the weights to the lane's two positions of a row.
  __device__ __forceinline__ static int weight_place(int row, LaneOf l) {
    return row * kWeightStride + l.warp * (2 * kWarpKeys) + l.g * 4;
  }
  // Blocks of a multiprocessor.
  static constexpr int blocks(int) { return 2; }
  __device__ __forceinline__ static void publish() {}

  __device__ __forceinline__ static int value_mix(int row, int first) {
    return row % 4 + (first / 8 % 2) * 4;
  }

  struct Scales {
    __device__ __forceinline__ static int offset(const AttentionParams&, LaneOf) { return 0; }
    __device__ __forceinline__ void load(const AttentionParams&, const std::byte*, int, LaneOf) {}
    __device__ __forceinline__ void publish(unsigned char*, int, LaneOf) const {}
  };

  template <int kTiles>
  __device__ __forceinline__ static void score(const unsigned char* keys,
                                               const unsigned char* queries, const Scales&,
                                               LaneOf l, float (&scores)[kTiles][4]) {
    const unsigned char* near = keys + l.near() * kRowBytes;
    const int mix = l.g % 2 * 4;
    const unsigned char* rows = queries + l.g * kQueryStride + l.t * 16;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int chunk = ((4 * c + l.t) ^ mix) * 16;
      const uint4 gk = *reinterpret_cast<const uint4*>(near + chunk);
      const uint4 hk = *reinterpret_cast<const uint4*>(near + 8 * kRowBytes + chunk);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 q = *reinterpret_cast<const uint4*>(rows + tile * 8 * kQueryStride + c * 64);
        N::mma(scores[tile], gk.x, hk.x, gk.y, hk.y, q.x, q.y);
        N::mma(scores[tile], gk.z, hk.z, gk.w, hk.w, q.z, q.w);
      }
    }
  }

  template <int kTiles>
  __device__ __forceinline__ static void add_block(const unsigned char* values,
                                                   const unsigned char*, int block, LaneOf l,
                                                   const uint2 (&weights)[kTiles],
                                                   float (&sums)[4][kTiles][4]) {
    // Row `lane % 8` of matrix `lane / 8`: matrices 0 and 1 hold the positions of words 2 t, 2 and
    // 3 those of words 2 t + 1; odd ones the upper eight of 16 values.
    const int i = l.lane % 8;
    const int matrix = l.lane / 8;
    const int position = i / 2 + 8 * (i % 2) + 4 * (matrix / 2);
    const int mix = (i / 2) | (i % 2 * 4);
    const unsigned char* row = values + (block * kWarpKeys + position) * (2 * kSlice);
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      uint32_t a[4];
      load_matrices_transposed(row + (((2 * m) | (matrix % 2)) ^ mix) * 16, a);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        N::mma(sums[m][tile], a[0], a[1], a[2], a[3], weights[tile].x, weights[tile].y);
      }
    }
  }
  // V^T of a page times P^T.
  template <int kTiles>
  __device__ __forceinline__ static void add(const unsigned char* values,
                                             const unsigned char* scales,
                                             const unsigned char* weights, LaneOf l,
                                             float (&sums)[4][kTiles][4]) {
    add_blocks<HalfCache, kTiles>(values, scales, weights, l, sums);
  }
  // Sums of one query row, i = 0 or 1 of a tile's pair: eight lanes have neighbours.
  template <int kTiles>
  __device__ __forceinline__ static void store(float* slice, LaneOf l,
                                               const float (&sums)[4][kTiles][4], int tile, int i) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      slice[16 * m + l.g] = sums[m][tile][i];
      slice[16 * m + 8 + l.g] = sums[m][tile][2 + i];
    }
  }
  // Zeros for the positions from `n_valid` on: stale bytes may be NaN.
  __device__ __forceinline__ static void clear_tail(unsigned char* values, int n_valid, LaneOf l) {
    if (mutant(Mutant::attention_stale_values)) return;
    for (int i = n_valid * (2 * kSlice / 16) + l.lane; i < kPage * (2 * kSlice / 16); i += 32) {
      *reinterpret_cast<uint4*>(values + i * 16) = uint4{0, 0, 0, 0};
    }
  }
};

}  // namespace lockstep::cuda
