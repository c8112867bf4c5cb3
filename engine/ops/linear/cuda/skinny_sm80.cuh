// Tiles of the sm80 skinny kernel, one a codec: what a warp copies for 16 rows of one block of
// columns, and how it multiplies them with up to eight columns of activations.
//
// Lane (g, t) = (lane / 4, lane mod 4) holds rows g and g + 8 and a quarter of the block's columns;
// its quarter of a row of activations lies in chunks of eight values, kChunkBytes apart. What a
// lane copies to shared memory it alone reads back: no barrier stands between copies and products.
#pragma once

#include "engine/ops/common/cuda/copy_async.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/linear/cuda/skinny.cuh"

namespace lockstep::cuda {

inline constexpr int kChunkBytes = 64;
inline constexpr int kCodeBytes = 1024;  // of a tile and block

// Codes of rows g and g + 8, copied and read back.
struct Codes {
  uint4 rows[2];

  __device__ __forceinline__ static void copy(const SkinnyParams& p, int tile, int block, int lane,
                                              unsigned char* stage) {
    const uint4* from = p.codes + (int64_t{tile} * p.n_blocks + block) * 64 + lane;
    copy_async_16(stage + lane * 16, from);
    copy_async_16(stage + 512 + lane * 16, from + 32);
  }
  __device__ __forceinline__ void read(const unsigned char* stage, int lane) {
    rows[0] = *reinterpret_cast<const uint4*>(stage + lane * 16);
    rows[1] = *reinterpret_cast<const uint4*>(stage + 512 + lane * 16);
  }
};

__device__ __forceinline__ uint4 chunk_of(const unsigned char* x, int chunk) {
  return *reinterpret_cast<const uint4*>(x + chunk * kChunkBytes);
}

// Eight values of either row against one chunk: two products of 16 columns.
__device__ __forceinline__ void multiply_eight(float (&acc)[4], const uint32_t (&g)[4],
                                               const uint32_t (&h)[4], uint4 x) {
  mma_m16n8k16_f16(acc, g[0], h[0], g[1], h[1], x.x, x.y);
  mma_m16n8k16_f16(acc, g[2], h[2], g[3], h[3], x.z, x.w);
}

struct Nvfp4Tile {
  static constexpr int kColumns = 128;
  static constexpr int kStageBytes = kCodeBytes + 128;
  static constexpr float kFactor = kNvfp4Factor;
  Codes codes;
  uint32_t scales;

  __device__ __forceinline__ static void copy(const SkinnyParams& p, int tile, int block, int lane,
                                              unsigned char* stage) {
    Codes::copy(p, tile, block, lane, stage);
    copy_async_4(
        stage + kCodeBytes + lane * 4,
        static_cast<const uint32_t*>(p.scales) + (int64_t{tile} * p.n_blocks + block) * 32 + lane);
  }
  __device__ __forceinline__ void read(const unsigned char* stage, int lane) {
    codes.read(stage, lane);
    scales = *reinterpret_cast<const uint32_t*>(stage + kCodeBytes + lane * 4);
  }

  template <int kFirst>
  __device__ __forceinline__ void half(uint32_t g0, uint32_t g1, uint32_t h0, uint32_t h1,
                                       const unsigned char* x, float (&acc)[4]) const {
    const uint32_t g_scale = mutant(Mutant::linear_scale_index) ? nvfp4_scale<kFirst ^ 1>(scales)
                                                                : nvfp4_scale<kFirst>(scales);
    const uint32_t h_scale = nvfp4_scale<2 + kFirst>(scales);
    uint32_t g[4], h[4];
    nvfp4_values(g0, g_scale, g);
    nvfp4_values(h0, h_scale, h);
    multiply_eight(acc, g, h, chunk_of(x, 2 * kFirst));
    nvfp4_values(g1, g_scale, g);
    nvfp4_values(h1, h_scale, h);
    multiply_eight(acc, g, h, chunk_of(x, 2 * kFirst + 1));
  }

  __device__ __forceinline__ void multiply(const unsigned char* x, float (&acc)[4]) const {
    half<0>(codes.rows[0].x, codes.rows[0].y, codes.rows[1].x, codes.rows[1].y, x, acc);
    half<1>(codes.rows[0].z, codes.rows[0].w, codes.rows[1].z, codes.rows[1].w, x, acc);
  }
};

struct Fp8Tile {
  static constexpr int kColumns = 64;
  static constexpr int kStageBytes = kCodeBytes;
  static constexpr float kFactor = kE4m3Factor;
  Codes codes;

  __device__ __forceinline__ static void copy(const SkinnyParams& p, int tile, int block, int lane,
                                              unsigned char* stage) {
    Codes::copy(p, tile, block, lane, stage);
  }
  __device__ __forceinline__ void read(const unsigned char* stage, int lane) {
    codes.read(stage, lane);
  }
  __device__ __forceinline__ static void pair(uint32_t g_word, uint32_t h_word, uint32_t x0,
                                              uint32_t x1, float (&acc)[4]) {
    uint32_t g[2], h[2];
    decode_e4m3_word(g_word, g);
    decode_e4m3_word(h_word, h);
    mma_m16n8k16_f16(acc, g[0], h[0], g[1], h[1], x0, x1);
  }
  __device__ __forceinline__ void multiply(const unsigned char* x, float (&acc)[4]) const {
    const uint4 x0 = chunk_of(x, 0);
    const uint4 x1 = chunk_of(x, 1);
    pair(codes.rows[0].x, codes.rows[1].x, x0.x, x0.y, acc);
    pair(codes.rows[0].y, codes.rows[1].y, x0.z, x0.w, acc);
    pair(codes.rows[0].z, codes.rows[1].z, x1.x, x1.y, acc);
    pair(codes.rows[0].w, codes.rows[1].w, x1.z, x1.w, acc);
  }
};

// A block of 64 columns has one scale for all rows of a tile.
struct Fp8BlockTile {
  static constexpr int kColumns = 64;
  static constexpr int kStageBytes = kCodeBytes + 128;
  static constexpr float kFactor = kE4m3Factor;
  Fp8Tile tile8;
  float scale;

  __device__ __forceinline__ static void copy(const SkinnyParams& p, int tile, int block, int lane,
                                              unsigned char* stage) {
    Codes::copy(p, tile, block, lane, stage);
    copy_async_4(stage + kCodeBytes + lane * 4,
                 static_cast<const float*>(p.scales) + tile / 8 * p.scale_stride + block / 2);
  }
  __device__ __forceinline__ void read(const unsigned char* stage, int lane) {
    tile8.read(stage, lane);
    scale = *reinterpret_cast<const float*>(stage + kCodeBytes + lane * 4);
  }
  __device__ __forceinline__ void multiply(const unsigned char* x, float (&acc)[4]) const {
    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    tile8.multiply(x, part);
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[i] = fmaf(part[i], scale, acc[i]);
  }
};

template <bool kBf16>
struct HalfTile {
  static constexpr int kColumns = 32;
  static constexpr int kStageBytes = kCodeBytes;
  static constexpr float kFactor = 1.0f;
  Codes codes;

  __device__ __forceinline__ static void copy(const SkinnyParams& p, int tile, int block, int lane,
                                              unsigned char* stage) {
    Codes::copy(p, tile, block, lane, stage);
  }
  __device__ __forceinline__ void read(const unsigned char* stage, int lane) {
    codes.read(stage, lane);
  }
  __device__ __forceinline__ void multiply(const unsigned char* x, float (&acc)[4]) const {
    const uint4 v = chunk_of(x, 0);
    const uint4 g = codes.rows[0];
    const uint4 h = codes.rows[1];
    if constexpr (kBf16) {
      mma_m16n8k16_bf16(acc, g.x, h.x, g.y, h.y, v.x, v.y);
      mma_m16n8k16_bf16(acc, g.z, h.z, g.w, h.w, v.z, v.w);
    } else {
      mma_m16n8k16_f16(acc, g.x, h.x, g.y, h.y, v.x, v.y);
      mma_m16n8k16_f16(acc, g.z, h.z, g.w, h.w, v.z, v.w);
    }
  }
};

// kGroups groups of columns in a block of 128: 4, 2, or 1 for groups of 128 and more.
template <int kGroups>
struct Int4Tile {
  static constexpr int kColumns = 128;
  static constexpr int kStageBytes = sm80_int4_stage_bytes(kGroups);
  static constexpr float kFactor = 1.0f;
  Codes codes;
  uint2 groups[2][kGroups];  // scale, zero point

  __device__ __forceinline__ static void copy(const SkinnyParams& p, int tile, int block, int lane,
                                              unsigned char* stage) {
    Codes::copy(p, tile, block, lane, stage);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int group = kGroups == 1 ? block >> p.group_shift : block * kGroups + j;
      const uint2* from = static_cast<const uint2*>(p.scales) + int64_t{group} * p.scale_stride +
                          tile * 16 + lane / 4;
      unsigned char* to = stage + kCodeBytes + j * 512 + lane * 8;
      copy_async_8(to, from);
      copy_async_8(to + 256, from + 8);
    }
  }
  __device__ __forceinline__ void read(const unsigned char* stage, int lane) {
    codes.read(stage, lane);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const unsigned char* from = stage + kCodeBytes + j * 512 + lane * 8;
      groups[0][j] = *reinterpret_cast<const uint2*>(from);
      groups[1][j] = *reinterpret_cast<const uint2*>(from + 256);
    }
  }

  __device__ __forceinline__ void multiply(const unsigned char* x, float (&acc)[4]) const {
    const uint32_t g_words[4] = {codes.rows[0].x, codes.rows[0].y, codes.rows[0].z,
                                 codes.rows[0].w};
    const uint32_t h_words[4] = {codes.rows[1].x, codes.rows[1].y, codes.rows[1].z,
                                 codes.rows[1].w};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const Int4Zero g_zero(groups[0][j].y);
      const Int4Zero h_zero(groups[1][j].y);
      float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int w = j * 4 / kGroups; w < (j + 1) * 4 / kGroups; ++w) {
        uint32_t g[4], h[4];
        int4_values(g_words[w], g_zero, g);
        int4_values(h_words[w], h_zero, h);
        multiply_eight(part, g, h, chunk_of(x, w));
      }
      const float g_scale = __uint_as_float(groups[0][j].x);
      const float h_scale = __uint_as_float(groups[1][j].x);
      acc[0] = fmaf(part[0], g_scale, acc[0]);
      acc[1] = fmaf(part[1], g_scale, acc[1]);
      acc[2] = fmaf(part[2], h_scale, acc[2]);
      acc[3] = fmaf(part[3], h_scale, acc[3]);
    }
  }
};

}  // namespace lockstep::cuda
