// Tiles of the sm80 kernels, one a codec: what a warp copies for 16 rows of one block of columns
// and how the codes become fragments of the matrix instruction, a chunk of eight values a row at a
// time.
//
// Lane (g, t) = (lane / 4, lane mod 4) holds rows g and g + 8 and a quarter of the block's columns;
// its quarter of a row of activations lies in chunks of eight values, kChunkBytes apart. What a
// lane copies to shared memory the same lane of a warp reads back.
#pragma once

#include "engine/ops/common/cuda/copy_async.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/linear/cuda/skinny.cuh"

namespace lockstep::cuda {

inline constexpr int kChunkBytes = 64;
inline constexpr int kCodeBytes = 1024;  // of a tile and block

// A block of columns of a tile.
struct Cursor {
  int tile;  // of the matrix
  int block;
  int record;  // tile * n_blocks + block
};

// Where a matrix lies: this lane's codes, and scales.
struct Source {
  const unsigned char* codes;
  const unsigned char* scales;
  int scale_stride;
  int group_shift;

  Source() = default;
  __device__ __forceinline__ Source(const StoredMatrix& matrix, int shift, int lane)
      : codes(reinterpret_cast<const unsigned char*>(matrix.codes) + lane * 16),
        scales(static_cast<const unsigned char*>(matrix.scales)),
        scale_stride(matrix.scale_stride),
        group_shift(shift) {}
};

// Codes of rows g and g + 8, copied and read back. Shared addresses are those of the stage.
struct Codes {
  uint4 rows[2];

  __device__ __forceinline__ static void copy(const Source& source, int record, int lane,
                                              uint32_t stage) {
    const unsigned char* from = source.codes + int64_t{record} * kCodeBytes;
    copy_async_16(stage + lane * 16, from);
    copy_async_16(stage + lane * 16 + 512, from + 512);
  }
  __device__ __forceinline__ void read(uint32_t stage, int lane) {
    rows[0] = load_shared_16(stage + lane * 16);
    rows[1] = load_shared_16(stage + lane * 16 + 512);
  }
};

__device__ __forceinline__ uint4 chunk_of(uint32_t x, int chunk) {
  return load_shared_16(x + chunk * kChunkBytes);
}

__device__ __forceinline__ uint32_t word_of(uint4 v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// What all tiles have:
//   kColumns, kStageBytes  columns of a block and bytes of its copy
//   kChunks                chunks of eight values that a lane has of either row
//   kFactor                power of two that fragments lack
//   kScaledGroups          groups of columns whose sums are scaled; 0: fragments are complete
//   kBf16                  fragments are bfloat16, not binary16
//   kRun                   columns in a row of one lane: four where lanes interleave, else eight
//   copy, read, chunk      global to shared memory, to registers, to fragments
struct Nvfp4Tile {
  static constexpr int kColumns = 128;
  static constexpr int kStageBytes = kCodeBytes + 128;
  static constexpr int kChunks = 4;
  static constexpr float kFactor = kNvfp4Factor;
  static constexpr int kScaledGroups = 0;
  static constexpr bool kBf16 = false;
  static constexpr int kRun = 8;
  Codes codes;
  uint32_t scales;

  __device__ __forceinline__ static void copy(const Source& source, const Cursor& at, int lane,
                                              uint32_t stage) {
    Codes::copy(source, at.record, lane, stage);
    copy_async_4(stage + kCodeBytes + lane * 4,
                 source.scales + int64_t{at.record} * 128 + lane * 4);
  }
  __device__ __forceinline__ void read(uint32_t stage, int lane) {
    codes.read(stage, lane);
    scales = load_shared_4(stage + kCodeBytes + lane * 4);
  }
  template <int kChunk>
  __device__ __forceinline__ void chunk(uint32_t (&g)[4], uint32_t (&h)[4]) const {
    constexpr int kGroup = kChunk / 2;
    const uint32_t g_pair = decode_nvfp4_scales(scales, 0);
    const uint32_t g_scale = mutant(Mutant::linear_scale_index) ? spread_scale<kGroup ^ 1>(g_pair)
                                                                : spread_scale<kGroup>(g_pair);
    nvfp4_values(word_of(codes.rows[0], kChunk), g_scale, g);
    nvfp4_values(word_of(codes.rows[1], kChunk),
                 spread_scale<kGroup>(decode_nvfp4_scales(scales, 1)), h);
  }
};

struct Fp8Tile {
  static constexpr int kColumns = 64;
  static constexpr int kStageBytes = kCodeBytes;
  static constexpr int kChunks = 2;
  static constexpr float kFactor = kE4m3Factor;
  static constexpr int kScaledGroups = 0;
  static constexpr bool kBf16 = false;
  static constexpr int kRun = 8;
  Codes codes;

  __device__ __forceinline__ static void copy(const Source& source, const Cursor& at, int lane,
                                              uint32_t stage) {
    Codes::copy(source, at.record, lane, stage);
  }
  __device__ __forceinline__ void read(uint32_t stage, int lane) { codes.read(stage, lane); }
  template <int kChunk>
  __device__ __forceinline__ void chunk(uint32_t (&g)[4], uint32_t (&h)[4]) const {
    decode_e4m3_word(word_of(codes.rows[0], 2 * kChunk), g);
    decode_e4m3_word(word_of(codes.rows[0], 2 * kChunk + 1), g + 2);
    decode_e4m3_word(word_of(codes.rows[1], 2 * kChunk), h);
    decode_e4m3_word(word_of(codes.rows[1], 2 * kChunk + 1), h + 2);
  }
};

// A block of 64 columns has one scale for all rows of a tile.
struct Fp8BlockTile : Fp8Tile {
  static constexpr int kStageBytes = kCodeBytes + 128;
  static constexpr int kScaledGroups = 1;
  float scale;

  __device__ __forceinline__ static void copy(const Source& source, const Cursor& at, int lane,
                                              uint32_t stage) {
    Codes::copy(source, at.record, lane, stage);
    copy_async_4(stage + kCodeBytes + lane * 4,
                 source.scales + 4 * (at.tile / 8 * source.scale_stride + at.block / 2));
  }
  __device__ __forceinline__ void read(uint32_t stage, int lane) {
    codes.read(stage, lane);
    scale = __uint_as_float(load_shared_4(stage + kCodeBytes + lane * 4));
  }
  __device__ __forceinline__ float group_scale(int, int) const { return scale; }
};

template <bool kIsBf16>
struct HalfTile {
  static constexpr int kColumns = 32;
  static constexpr int kStageBytes = kCodeBytes;
  static constexpr int kChunks = 1;
  static constexpr float kFactor = 1.0f;
  static constexpr int kScaledGroups = 0;
  static constexpr bool kBf16 = kIsBf16;
  static constexpr int kRun = 8;
  Codes codes;

  __device__ __forceinline__ static void copy(const Source& source, const Cursor& at, int lane,
                                              uint32_t stage) {
    Codes::copy(source, at.record, lane, stage);
  }
  __device__ __forceinline__ void read(uint32_t stage, int lane) { codes.read(stage, lane); }
  template <int kChunk>
  __device__ __forceinline__ void chunk(uint32_t (&g)[4], uint32_t (&h)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      g[i] = word_of(codes.rows[0], i);
      h[i] = word_of(codes.rows[1], i);
    }
  }
};

// kGroups groups of columns in a block of 128: 4, 2, or 1 for groups of 128 and more.
template <int kGroups>
struct Int4Tile {
  static constexpr int kColumns = 128;
  static constexpr int kStageBytes = sm80_int4_stage_bytes(kGroups);
  static constexpr int kChunks = 4;
  static constexpr float kFactor = 1.0f;
  static constexpr int kScaledGroups = kGroups;
  static constexpr bool kBf16 = false;
  static constexpr int kRun = 4;
  Codes codes;
  uint2 groups[2][kGroups];  // scale, zero point

  __device__ __forceinline__ static void copy(const Source& source, const Cursor& at, int lane,
                                              uint32_t stage) {
    Codes::copy(source, at.record, lane, stage);
    // Sixteen scales and zero points of a group are 128 bytes.
    constexpr int kBytes = 4 * kGroups;  // a lane
    const int group =
        kGroups == 1 ? at.block >> source.group_shift : at.block * kGroups + lane * kGroups / 32;
    const int row = group * source.scale_stride + at.tile * 16;
    const unsigned char* from = source.scales + int64_t{row} * 8 + lane * kBytes % 128;
    const uint32_t to = stage + kCodeBytes + lane * kBytes;
    if constexpr (kGroups == 4) copy_async_16(to, from);
    if constexpr (kGroups == 2) copy_async_8(to, from);
    if constexpr (kGroups == 1) copy_async_4(to, from);
  }
  __device__ __forceinline__ void read(uint32_t stage, int lane) {
    __syncwarp();  // scales were copied by other lanes
    codes.read(stage, lane);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const uint32_t from = stage + kCodeBytes + j * 128 + lane / 4 * 8;
      groups[0][j] = load_shared_8(from);
      groups[1][j] = load_shared_8(from + 64);
    }
  }
  template <int kChunk>
  __device__ __forceinline__ void chunk(uint32_t (&g)[4], uint32_t (&h)[4]) const {
    constexpr int kGroup = kChunk * kGroups / 4;
    int4_values(word_of(codes.rows[0], kChunk), Int4Zero(groups[0][kGroup].y), g);
    int4_values(word_of(codes.rows[1], kChunk), Int4Zero(groups[1][kGroup].y), h);
  }
  // Of row g (0) or g + 8 (1).
  __device__ __forceinline__ float group_scale(int row, int group) const {
    return __uint_as_float(groups[row][group].x);
  }
};

// One product of 16 columns: pairs `i` and i + 1 of either row.
template <bool kBf16, int i>
__device__ __forceinline__ void multiply_pairs(float (&acc)[4], const uint32_t (&g)[4],
                                               const uint32_t (&h)[4], uint32_t x0, uint32_t x1) {
  if constexpr (kBf16) {
    mma_m16n8k16_bf16(acc, g[i], h[i], g[i + 1], h[i + 1], x0, x1);
  } else {
    mma_m16n8k16_f16(acc, g[i], h[i], g[i + 1], h[i + 1], x0, x1);
  }
}

}  // namespace lockstep::cuda
