// INT8 K and V of a page of attention_decode_sm90.cu: how they meet the matrix instruction of a
// warp group. Codes become numbers in registers; query rows and weights lie in panels of shared
// memory as that instruction reads them: rows of 128 bytes whose 16-byte vectors are mixed with the
// row.
#pragma once

#include "engine/ops/attention/cuda/decode_common.cuh"
#include "engine/ops/common/cuda/wgmma.cuh"

namespace lockstep::cuda {

struct Int8GroupCache {
  using Numbers = Fp16Numbers;
  using Scales = Int8Scales;
  static constexpr int kRowBytes = kWidth;
  static constexpr int kQueryStride = 2 * kWidth;
  static constexpr int kWeightStride = 2 * kPage;
  static constexpr bool kScales = true;

  __device__ __forceinline__ static int value_mix(int row, int) { return row / 2 % 2 * 2; }

  // Bytes from the start of the query rows to values 64 i + 2 lane and + 1 of one of n_rows: panel
  // i. Step j of 16 values of K has values 16 t + 4 j.. of the lanes t.
  __device__ __forceinline__ static int query_place(int n_rows, int row, int i, LaneOf l) {
    return i * n_rows * 128 + row * 128 + ((l.lane % 8) ^ (row % 8)) * 16 + l.lane / 8 * 4;
  }
  // Bytes from the start of the weights to the lane's two positions of a row.
  __device__ __forceinline__ static int weight_place(int row, LaneOf l) {
    return row * 128 + ((2 * l.warp + l.g % 2) ^ (row % 8)) * 16 + l.g / 2 * 4;
  }
  // Blocks of a multiprocessor.
  static constexpr int blocks(int n_tiles) { return n_tiles <= 1 ? 4 : n_tiles <= 3 ? 3 : 2; }
  // Before a barrier: what this thread wrote is there for matrix instructions.
  __device__ __forceinline__ static void publish() { fence_for_wgmma(); }

  template <int kTiles>
  __device__ __forceinline__ static float (&columns_of(float (&sums)[kTiles][4]))[4 * kTiles] {
    return reinterpret_cast<float(&)[4 * kTiles]>(sums);
  }

  // 64 values of two positions, as four steps of 16.
  __device__ __forceinline__ static void numbers_of(uint4 near, uint4 far, uint32_t (&a)[16]) {
    int8_values(near.x, a[0], a[2]);
    int8_values(far.x, a[1], a[3]);
    int8_values(near.y, a[4], a[6]);
    int8_values(far.y, a[5], a[7]);
    int8_values(near.z, a[8], a[10]);
    int8_values(far.z, a[9], a[11]);
    int8_values(near.w, a[12], a[14]);
    int8_values(far.w, a[13], a[15]);
  }

  // [tile][row g: query rows 2 t, 2 t + 1; row g + 8: the same], without factors of query rows. The
  // next 64 values are made while the ones before are multiplied.
  template <int kTiles>
  __device__ __forceinline__ static void score(const unsigned char* keys,
                                               const unsigned char* queries, const Scales& scales,
                                               LaneOf l, float (&scores)[kTiles][4]) {
    const unsigned char* near = keys + l.near() * kRowBytes;
    const int mix = l.g % 2 * 4;
    const uint64_t rows = wgmma_descriptor(shared_address(queries));
    const auto chunk = [&](int c, int row) {
      return *reinterpret_cast<const uint4*>(near + row * kRowBytes + ((4 * c + l.t) ^ mix) * 16);
    };
    uint32_t a[2][16];
    numbers_of(chunk(0, 0), chunk(0, 8), a[0]);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float part[4 * kTiles];
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        wgmma_columns<kTiles>(part, a[c % 2] + 4 * j, rows + c * kTiles * 64 + j * 2, j > 0);
      }
      wgmma_commit();
      if (c < 3) numbers_of(chunk(c + 1, 0), chunk(c + 1, 8), a[(c + 1) % 2]);
      const float g_scale = Scales::of(scales.near, c);
      const float h_scale = Scales::of(scales.far, c);
      wgmma_wait<0>();
      hold_sums(part);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        scores[tile][0] = fmaf(part[4 * tile], g_scale, scores[tile][0]);
        scores[tile][1] = fmaf(part[4 * tile + 1], g_scale, scores[tile][1]);
        scores[tile][2] = fmaf(part[4 * tile + 2], h_scale, scores[tile][2]);
        scores[tile][3] = fmaf(part[4 * tile + 3], h_scale, scores[tile][3]);
      }
    }
  }

  // V^T of a page times P^T.
  template <int kTiles>
  __device__ __forceinline__ static void add(const unsigned char* values,
                                             const unsigned char* scales,
                                             const unsigned char* weights, LaneOf l,
                                             float (&sums)[4][kTiles][4]) {
    const unsigned char* rows =
        values + l.t * kSlice + ((l.g / 2) ^ (l.t / 2 * 2)) * 16 + l.g % 2 * 8;
    const uint64_t columns = wgmma_descriptor(shared_address(weights));
    uint32_t a[2][16];
#pragma unroll
    for (int block = 0; block < kDecodeWarps; ++block) {
      const unsigned char* row = rows + block * kWarpKeys * kSlice;
      const uint2 scale = *reinterpret_cast<const uint2*>(scales + l.warp * (kPage * 2) +
                                                          block * (kWarpKeys * 2) + l.t * 8);
      const uint2 v0 = *reinterpret_cast<const uint2*>(row);
      const uint2 v8 = *reinterpret_cast<const uint2*>(row + 8 * kSlice);
      const uint2 v4 = *reinterpret_cast<const uint2*>(row + 4 * kSlice);
      const uint2 v12 = *reinterpret_cast<const uint2*>(row + 12 * kSlice);
      uint32_t(&b)[16] = a[block % 2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t x[4];
        uint32_t y[4];
        value_pairs(half == 0 ? v0.x : v0.y, half == 0 ? v8.x : v8.y, scale.x, x);
        value_pairs(half == 0 ? v4.x : v4.y, half == 0 ? v12.x : v12.y, scale.y, y);
        b[8 * half] = x[0];
        b[8 * half + 1] = x[1];
        b[8 * half + 2] = y[0];
        b[8 * half + 3] = y[1];
        b[8 * half + 4] = x[2];
        b[8 * half + 5] = x[3];
        b[8 * half + 6] = y[2];
        b[8 * half + 7] = y[3];
      }
      wgmma_fence();
#pragma unroll
      for (int m = 0; m < 4; ++m)
        wgmma_columns<kTiles>(columns_of(sums[m]), b + 4 * m, columns + block * 2, 1);
      wgmma_commit();
      wgmma_wait<1>();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int m = 0; m < 4; ++m) hold_sums(columns_of(sums[m]));
  }
  template <int kTiles>
  __device__ __forceinline__ static void store(float* slice, LaneOf l,
                                               const float (&sums)[4][kTiles][4], int tile, int i) {
    store_int8_sums(slice, l, sums, tile, i);
  }
  __device__ __forceinline__ static void clear_tail(unsigned char*, int, LaneOf) {}
};

}  // namespace lockstep::cuda
