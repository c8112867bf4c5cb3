// Tiles of the sm80 skinny kernel, one a codec: what a warp loads for 16 rows of one block of
// columns, and how it multiplies them with up to eight columns of activations.
//
// Lane (g, t) = (lane / 4, lane mod 4) holds rows g and g + 8 and a quarter of the block's columns;
// its quarter of a row of activations lies in chunks of eight values, kChunkBytes apart.
#pragma once

#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/linear/cuda/skinny.cuh"

namespace lockstep::cuda {

inline constexpr int kChunkBytes = 64;

struct Codes {
  uint4 rows[2];  // g and g + 8

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    const uint4* from = p.codes + (int64_t{tile} * p.n_blocks + block) * 64 + lane;
    rows[0] = load_streaming(from);
    rows[1] = load_streaming(from + 32);
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
  static constexpr float kFactor = kNvfp4Factor;
  Codes codes;
  uint32_t scales;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
    scales = load_streaming(static_cast<const uint32_t*>(p.scales) +
                            (int64_t{tile} * p.n_blocks + block) * 32 + lane);
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
  static constexpr float kFactor = kE4m3Factor;
  Codes codes;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
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
  static constexpr float kFactor = kE4m3Factor;
  Fp8Tile tile8;
  float scale;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    tile8.load(p, tile, block, lane);
    scale = static_cast<const float*>(p.scales)[tile / 8 * p.scale_stride + block / 2];
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
  static constexpr float kFactor = 1.0f;
  Codes codes;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
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
  static constexpr float kFactor = 1.0f;
  Codes codes;
  float scales[2][kGroups];
  uint32_t zeros[2][kGroups];

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int group = kGroups == 1 ? block >> p.group_shift : block * kGroups + j;
      const int64_t index = int64_t{group} * p.scale_stride + tile * 16 + lane / 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        scales[h][j] = static_cast<const float*>(p.scales)[index + 8 * h];
        zeros[h][j] = p.zeros[index + 8 * h];
      }
    }
  }

  __device__ __forceinline__ void multiply(const unsigned char* x, float (&acc)[4]) const {
    const uint32_t g_words[4] = {codes.rows[0].x, codes.rows[0].y, codes.rows[0].z,
                                 codes.rows[0].w};
    const uint32_t h_words[4] = {codes.rows[1].x, codes.rows[1].y, codes.rows[1].z,
                                 codes.rows[1].w};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const Int4Zero g_zero(zeros[0][j]);
      const Int4Zero h_zero(zeros[1][j]);
      float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int w = j * 4 / kGroups; w < (j + 1) * 4 / kGroups; ++w) {
        uint32_t g[4], h[4];
        int4_values(g_words[w], g_zero, g);
        int4_values(h_words[w], h_zero, h);
        multiply_eight(part, g, h, chunk_of(x, w));
      }
      acc[0] = fmaf(part[0], scales[0][j], acc[0]);
      acc[1] = fmaf(part[1], scales[0][j], acc[1]);
      acc[2] = fmaf(part[2], scales[1][j], acc[2]);
      acc[3] = fmaf(part[3], scales[1][j], acc[3]);
    }
  }
};

}  // namespace lockstep::cuda
