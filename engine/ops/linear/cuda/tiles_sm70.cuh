// Tiles of the sm70 kernels, one a codec: what a warp loads for 32 rows of one block of columns and
// how the codes become fragments of mma.m8n8k4, a chunk of eight columns of the lane's row at a
// time. The four quadpairs stand side by side over the rows; columns of activations are the eight
// rows of the other operand. Weights come in the order of fragments and never touch shared memory.
#pragma once

#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/linear/cuda/skinny.cuh"

namespace lockstep::cuda::sm70 {

// Two vectors of 16 bytes: `kColumns` columns of this lane's row.
struct Codes {
  uint4 vectors[2];

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    const uint4* from = p.codes + (int64_t{tile} * p.n_blocks + block) * 64 + lane;
    vectors[0] = load_streaming(from);
    vectors[1] = load_streaming(from + 32);
  }
  __device__ __forceinline__ uint32_t word(int i) const {
    const uint4& v = vectors[i / 4];
    return i % 4 == 0 ? v.x : i % 4 == 1 ? v.y : i % 4 == 2 ? v.z : v.w;
  }
};

// Eight columns of the lane's row against eight activations of the lane's token.
__device__ __forceinline__ void multiply_eight(float (&acc)[8], const uint32_t (&v)[4], uint4 x) {
  mma_m8n8k4_f16(acc, x.x, x.y, v[0], v[1]);
  mma_m8n8k4_f16(acc, x.z, x.w, v[2], v[3]);
}

// Row of the tile whose sums accumulator i of this lane holds: this + (i & 4) + (i & 1).
__device__ __forceinline__ int accumulator_row(int lane) {
  return 8 * (lane % 16 / 4) + (lane & 2);
}
__device__ __forceinline__ int accumulator_token(int lane, int i) {
  return (lane & 1) + (i & 2) + 4 * (lane / 16);
}

// What all tiles have:
//   kColumns, kChunks  columns of a block, chunks of eight
//   kFactor            power of two that fragments lack
//   kScaledGroups      groups of columns whose sums are scaled; 0: fragments are complete
//   load, chunk        global memory to registers, to fragments
//   Scale, scale       what a group's sums are multiplied by
struct NoScale {};

struct Nvfp4Tile {
  static constexpr int kColumns = 64;
  static constexpr int kChunks = 8;
  static constexpr float kFactor = kNvfp4Factor;
  static constexpr int kScaledGroups = 0;
  using Scale = NoScale;
  Codes codes;
  uint32_t scales;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
    scales = load_streaming(static_cast<const uint32_t*>(p.scales) +
                            (int64_t{tile} * p.n_blocks + block) * 32 + lane);
  }
  template <int kChunk>
  __device__ __forceinline__ void chunk(NoScale, uint32_t (&v)[4]) const {
    constexpr int kGroup = kChunk / 2;
    const uint32_t pair = decode_nvfp4_scales(scales, kGroup / 2);
    const uint32_t scale = mutant(Mutant::linear_scale_index) ? spread_scale<(kGroup ^ 1) % 2>(pair)
                                                              : spread_scale<kGroup % 2>(pair);
    nvfp4_values(codes.word(kChunk), scale, v);
  }
};

template <bool kBlockScale>
struct Fp8Tile {
  static constexpr int kColumns = 32;
  static constexpr int kChunks = 4;
  static constexpr float kFactor = kE4m3Factor;
  static constexpr int kScaledGroups = kBlockScale ? 1 : 0;
  struct Scale {
    float value;
    __device__ __forceinline__ float of(int) const { return value; }
  };
  Codes codes;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
  }
  __device__ __forceinline__ static Scale scale(const SkinnyParams& p, int tile, int block, int,
                                                int) {
    return {static_cast<const float*>(p.scales)[tile / 4 * p.scale_stride + block / 4]};
  }
  template <int kChunk>
  __device__ __forceinline__ void chunk(Scale, uint32_t (&v)[4]) const {
    decode_e4m3_word(codes.word(2 * kChunk), v);
    decode_e4m3_word(codes.word(2 * kChunk + 1), v + 2);
  }
};

struct HalfTile {
  static constexpr int kColumns = 16;
  static constexpr int kChunks = 2;
  static constexpr float kFactor = 1.0f;
  static constexpr int kScaledGroups = 0;
  using Scale = NoScale;
  Codes codes;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
  }
  template <int kChunk>
  __device__ __forceinline__ void chunk(NoScale, uint32_t (&v)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = codes.word(4 * kChunk + i);
  }
};

// One scale a vector of 32 columns, on the sums: a scaled code would not fit binary16 exactly.
struct Int4Tile {
  static constexpr int kColumns = 64;
  static constexpr int kChunks = 8;
  static constexpr float kFactor = 1.0f;
  static constexpr int kScaledGroups = 2;
  struct Scale {
    Int4Zero zero;
    uint4 low;
    uint4 high;
    __device__ __forceinline__ float of(int i) const {
      const uint4& pair = i < 4 ? low : high;
      return __uint_as_float(i % 2 == 0 ? pair.x : pair.z);
    }
  };
  Codes codes;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
  }
  __device__ __forceinline__ static Scale scale(const SkinnyParams& p, int tile, int block,
                                                int lane, int group) {
    const int64_t base = int64_t{(2 * block + group) >> p.group_shift} * p.scale_stride + tile * 32;
    const auto* groups = static_cast<const uint2*>(p.scales) + base;
    const auto* scales = reinterpret_cast<const uint4*>(groups + accumulator_row(lane));
    return {Int4Zero(groups[8 * (lane % 16 / 4) + lane % 4 + 4 * (lane / 16)].y), scales[0],
            scales[2]};
  }
  template <int kChunk>
  __device__ __forceinline__ void chunk(const Scale& scale, uint32_t (&v)[4]) const {
    int4_values(codes.word(kChunk), scale.zero, v);
  }
};

}  // namespace lockstep::cuda::sm70
