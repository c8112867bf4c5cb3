// Products of up to eight columns, sm_70. A block has 32 rows; its eight warps share K. The four
// quadpairs of mma.m8n8k4 stand side by side over the rows, columns of activations are the eight
// rows of the other operand. Weights come in the order of fragments and never touch shared memory.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/skinny.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kBatch = 2;  // blocks of weights that are loaded together
constexpr int kThreads = 256;

// Two vectors of 16 bytes: `kColumns` columns of this lane's row.
struct Codes {
  uint4 vectors[2];

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    const uint4* from = p.codes + (int64_t{tile} * p.n_blocks + block) * 64 + lane;
    vectors[0] = load_streaming(from);
    vectors[1] = load_streaming(from + 32);
  }
};

// Eight columns of the lane's row against eight activations of the lane's token.
__device__ __forceinline__ void multiply_eight(float (&acc)[8], const uint32_t (&v)[4], uint4 x) {
  mma_m8n8k4_f16(acc, x.x, x.y, v[0], v[1]);
  mma_m8n8k4_f16(acc, x.z, x.w, v[2], v[3]);
}

struct Nvfp4Tile {
  static constexpr int kColumns = 64;
  static constexpr float kFactor = kNvfp4Factor;
  Codes codes;
  uint32_t scales;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
    scales = load_streaming(static_cast<const uint32_t*>(p.scales) +
                            (int64_t{tile} * p.n_blocks + block) * 32 + lane);
  }
  template <int kGroup>
  __device__ __forceinline__ void group(uint32_t w0, uint32_t w1, const uint4* x,
                                        float (&acc)[8]) const {
    const uint32_t scale = mutant(Mutant::linear_scale_index) ? nvfp4_scale<kGroup ^ 1>(scales)
                                                              : nvfp4_scale<kGroup>(scales);
    uint32_t v[4];
    nvfp4_values(w0, scale, v);
    multiply_eight(acc, v, x[(2 * kGroup) * 8]);
    nvfp4_values(w1, scale, v);
    multiply_eight(acc, v, x[(2 * kGroup + 1) * 8]);
  }
  __device__ __forceinline__ void multiply(const SkinnyParams&, int, int, int, const uint4* x,
                                           float (&acc)[8]) const {
    group<0>(codes.vectors[0].x, codes.vectors[0].y, x, acc);
    group<1>(codes.vectors[0].z, codes.vectors[0].w, x, acc);
    group<2>(codes.vectors[1].x, codes.vectors[1].y, x, acc);
    group<3>(codes.vectors[1].z, codes.vectors[1].w, x, acc);
  }
};

template <bool kBlockScale>
struct Fp8Tile {
  static constexpr int kColumns = 32;
  static constexpr float kFactor = kE4m3Factor;
  Codes codes;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
  }
  __device__ __forceinline__ static void eight(uint32_t w0, uint32_t w1, uint4 x, float (&acc)[8]) {
    uint32_t v[4];
    decode_e4m3_word(w0, v);
    decode_e4m3_word(w1, v + 2);
    multiply_eight(acc, v, x);
  }
  __device__ __forceinline__ void all(const uint4* x, float (&acc)[8]) const {
    eight(codes.vectors[0].x, codes.vectors[0].y, x[0], acc);
    eight(codes.vectors[0].z, codes.vectors[0].w, x[8], acc);
    eight(codes.vectors[1].x, codes.vectors[1].y, x[16], acc);
    eight(codes.vectors[1].z, codes.vectors[1].w, x[24], acc);
  }
  __device__ __forceinline__ void multiply(const SkinnyParams& p, int tile, int block, int,
                                           const uint4* x, float (&acc)[8]) const {
    if constexpr (kBlockScale) {
      const float scale =
          static_cast<const float*>(p.scales)[tile / 4 * p.scale_stride + block / 4];
      float part[8] = {};
      all(x, part);
#pragma unroll
      for (int i = 0; i < 8; ++i) acc[i] = fmaf(part[i], scale, acc[i]);
    } else {
      all(x, acc);
    }
  }
};

struct HalfTile {
  static constexpr int kColumns = 16;
  static constexpr float kFactor = 1.0f;
  Codes codes;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
  }
  __device__ __forceinline__ void multiply(const SkinnyParams&, int, int, int, const uint4* x,
                                           float (&acc)[8]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t v[4] = {codes.vectors[i].x, codes.vectors[i].y, codes.vectors[i].z,
                             codes.vectors[i].w};
      multiply_eight(acc, v, x[i * 8]);
    }
  }
};

// Rows of the tile whose sums this lane's accumulators hold: 8 q + (i & 4) + (lane & 2) + (i & 1).
__device__ __forceinline__ int accumulator_row(int lane) {
  return 8 * (lane % 16 / 4) + (lane & 2);
}

// One scale a vector of 32 columns, on the sums: a scaled code would not fit binary16 exactly.
struct Int4Tile {
  static constexpr int kColumns = 64;
  static constexpr float kFactor = 1.0f;
  Codes codes;

  __device__ __forceinline__ void load(const SkinnyParams& p, int tile, int block, int lane) {
    codes.load(p, tile, block, lane);
  }
  __device__ __forceinline__ void multiply(const SkinnyParams& p, int tile, int block, int lane,
                                           const uint4* x, float (&acc)[8]) const {
    const int row = 8 * (lane % 16 / 4) + lane % 4 + 4 * (lane / 16);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t base = int64_t{(2 * block + i) >> p.group_shift} * p.scale_stride + tile * 32;
      const auto* groups = static_cast<const uint2*>(p.scales) + base;
      const Int4Zero zero(groups[row].y);
      const auto* scales = reinterpret_cast<const uint4*>(groups + accumulator_row(lane));
      const uint4 low = scales[0];
      const uint4 high = scales[2];
      const uint32_t words[4] = {codes.vectors[i].x, codes.vectors[i].y, codes.vectors[i].z,
                                 codes.vectors[i].w};
      float part[8] = {};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        uint32_t v[4];
        int4_values(words[w], zero, v);
        multiply_eight(part, v, x[(4 * i + w) * 8]);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint4 pair = j < 4 ? low : high;
        acc[j] = fmaf(part[j], __uint_as_float(j % 2 == 0 ? pair.x : pair.z), acc[j]);
      }
    }
  }
};

__device__ __forceinline__ void block_barrier() {
  if (!mutant(Mutant::linear_missing_barrier)) __syncthreads();
}

// Adds the sums of the eight warps in their order and stores 32 rows of up to eight columns.
template <typename Tile>
__device__ __forceinline__ void finish_tile(const SkinnyParams& p, const float (&acc)[8]) {
  __shared__ float partials[8][8 * kSm70PartialStride];
  const int lane = threadIdx.x % 32;
  float* mine = partials[threadIdx.x / 32];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int token = (lane & 1) + (i & 2) + 4 * (lane / 16);
    mine[token * kSm70PartialStride + accumulator_row(lane) + (i & 4) + (i & 1)] = acc[i];
  }
  block_barrier();
  const int token = threadIdx.x / 32;
  const int row = blockIdx.x * 32 + lane;
  const bool inside = row < p.n_rows || mutant(Mutant::linear_row_tail);
  if ((token >= p.n_tokens && !mutant(Mutant::linear_token_tail)) || !inside) return;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < 8; ++w) {
    const bool backwards = mutant(Mutant::linear_order_of_one) && p.n_tokens == 1;
    sum += partials[backwards ? 7 - w : w][token * kSm70PartialStride + lane];
  }
  const float factor = mutant(Mutant::linear_factor_lost) ? 1.0f : p.factors[token];
  store_output(p, token, row, sum * (factor * Tile::kFactor) * p.row_scale[row]);
}

// Loads of one batch. Beyond the end the last block again: a load under a condition would be moved
// down to the product under the same condition.
template <typename Tile>
__device__ __forceinline__ void load_batch(const SkinnyParams& p, int first, int n_blocks, int lane,
                                           Tile (&batch)[kBatch]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    batch[i].load(p, blockIdx.x, min(first + 8 * i, n_blocks - 1), lane);
  }
}

template <typename Tile>
__device__ __forceinline__ void multiply_batch(const SkinnyParams& p, int first, int n_blocks,
                                               int lane, const Tile (&batch)[kBatch],
                                               const uint4* x, float (&acc)[8]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (first + 8 * i < n_blocks) {
      batch[i].multiply(p, blockIdx.x, first + 8 * i, lane, x + i * (8 * Tile::kColumns), acc);
    }
  }
}

// Two batches in turn: one is on its way while the other is multiplied. The loads of a batch share
// a scoreboard, so a ring of single blocks would wait for its newest load each time.
template <typename Tile>
__global__ void __launch_bounds__(kThreads, 2) skinny_sm70(const SkinnyParams p) {
  constexpr int kStride = 8 * kBatch;
  const int lane = threadIdx.x % 32;
  const int slice = threadIdx.x / 32;
  const int n_blocks = p.n_blocks - (mutant(Mutant::linear_last_block) ? 1 : 0);
  Tile even[kBatch];
  Tile odd[kBatch];
  load_batch(p, slice, n_blocks, lane, even);
  float acc[8] = {};
  // Chunks of eight columns are eight tokens wide; this lane multiplies token `lane % 4 + 4 hi`.
  const uint4* x = p.x + slice * Tile::kColumns + lane % 4 + 4 * (lane / 16);
  for (int first = slice; first < n_blocks; first += 2 * kStride) {
    load_batch(p, first + kStride, n_blocks, lane, odd);
    multiply_batch(p, first, n_blocks, lane, even, x, acc);
    if (!mutant(Mutant::linear_stale_stage)) {
      load_batch(p, first + 2 * kStride, n_blocks, lane, even);
    }
    multiply_batch(p, first + kStride, n_blocks, lane, odd, x + kStride * Tile::kColumns, acc);
    x += 2 * kStride * Tile::kColumns;
  }
  finish_tile<Tile>(p, acc);
}

template <typename Tile>
void launch(const SkinnyParams& p, cudaStream_t stream) {
  arm_mutant();
  skinny_sm70<Tile><<<p.n_tiles, kThreads, 0, stream>>>(p);
  cuda_check_launch("linear skinny_sm70");
}

}  // namespace

void launch_skinny_sm70(Codec codec, const SkinnyParams& p, cudaStream_t stream) {
  switch (codec) {
    case Codec::nvfp4:
      return launch<Nvfp4Tile>(p, stream);
    case Codec::fp8:
      return launch<Fp8Tile<false>>(p, stream);
    case Codec::fp8_block:
      return launch<Fp8Tile<true>>(p, stream);
    case Codec::bf16:
    case Codec::f16:
      return launch<HalfTile>(p, stream);
    case Codec::int4:
      return launch<Int4Tile>(p, stream);
    default:
      no_kernel_for(codec);
  }
}

}  // namespace lockstep::cuda
